//! One saved route as a line of text.

use std::fmt::Write as _;

use waypost_rocketmq_wire::body::{BodyLimits, Dialect, TopicRouteData};
use xxhash_rust::xxh3::xxh3_64;

/// A line that was read.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    pub(super) topic: &'a str,
    /// Milliseconds since 1970.
    pub(super) confirmed: u64,
    pub(super) route: TopicRouteData,
}

impl<'a> Line<'a> {
    /// Reads a line, if it is whole. In a file with `unchecked_until` it may be without a checksum and has to make sense
    /// then: a time up to that one, and a route that a client could use.
    pub(super) fn parse(bytes: &'a [u8], unchecked_until: Option<u64>) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.splitn(4, '\t');
        let (topic, confirmed, json) = (parts.next()?, parts.next()?, parts.next()?);
        let sum = parts.next();
        let line = Self {
            topic,
            confirmed: confirmed.parse().ok()?,
            route: TopicRouteData::decode(json.as_bytes(), &BodyLimits::default()).ok()?,
        };
        let is_whole = match sum {
            Some(sum) => {
                let length = text.len().checked_sub(sum.len())?.checked_sub(1)?;
                *sum == checksum(text.get(..length)?)
            }
            None => unchecked_until.is_some_and(|until| line.confirmed <= until && is_usable(&line.route)),
        };
        (is_whole && !topic.is_empty()).then_some(line)
    }
}

/// Whether it has what every route of a name server has.
fn is_usable(route: &TopicRouteData) -> bool {
    let numbers_fit = |queues: &waypost_rocketmq_wire::body::QueueData| {
        queues.read_queue_nums >= 0 && queues.write_queue_nums >= 0 && queues.perm >= 0
    };
    let has_address = route.broker_datas.iter().any(|broker| !broker.broker_addrs.is_empty());
    has_address && !route.queue_datas.is_empty() && route.queue_datas.iter().all(numbers_fit)
}

/// Appends a line; gives the digest of the route, or nothing for a name that cannot be written.
pub(super) fn write(text: &mut String, topic: &str, confirmed: u64, route: &TopicRouteData) -> Option<u64> {
    // A name with a tab or a line end would be another line; no broker can have such a topic.
    if topic.contains(['\t', '\n', '\r']) || topic.is_empty() {
        return None;
    }
    let json = json(route);
    let start = text.len();
    // Writing to a text cannot fail.
    let _ = write!(text, "{topic}\t{confirmed}\t{}", String::from_utf8_lossy(&json));
    let sum = checksum(text.get(start..).unwrap_or_default());
    let _ = writeln!(text, "\t{sum}");
    Some(xxh3_64(&json))
}

/// Tells contents apart.
pub(super) fn digest(route: &TopicRouteData) -> u64 {
    xxh3_64(&json(route))
}

fn json(route: &TopicRouteData) -> Vec<u8> {
    let mut json = Vec::new();
    route.encode(Dialect::Standard, &mut json);
    json
}

fn checksum(text: &str) -> String {
    format!("{:016x}", xxh3_64(text.as_bytes()))
}
