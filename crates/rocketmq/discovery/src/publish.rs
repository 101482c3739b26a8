//! The queues of a topic that messages can be sent to (B7).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error;
use waypost_rocketmq_wire::body::TopicRouteData;

use crate::names::Names;
use crate::queue::{PERM_WRITE, QueueList, QueueRange};
use crate::route::RouteContent;
use crate::static_topic::logical_queues;

/// The topic whose route stands in for topics that do not exist yet (B11).
pub const DEFAULT_TOPIC: &str = "TBW102";

/// How many queues a producer asks for when a topic is created by its first message (B11).
pub const DEFAULT_TOPIC_QUEUES: i32 = 4;

/// The queues that a topic's messages can be sent to, computed from one version of its route (B7).
///
/// 1. An order configuration that is not empty decides alone, without checks of permission or master.
/// 2. Without any order configuration, a static topic has its logical queues.
/// 3. Otherwise: the write queues of brokers that have the write permission and a master, by broker name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishView {
    queues: QueueList,
    ordered: bool,
    malformed: Box<[MalformedOrderItem]>,
}

impl Deref for PublishView {
    type Target = QueueList;

    fn deref(&self) -> &QueueList {
        &self.queues
    }
}

impl PublishView {
    pub(crate) fn compute(route: &RouteContent, names: &mut Names) -> Self {
        let has_master =
            |broker: &str| route.group(broker).is_some_and(|group| group.broker_addrs.contains_key(&0));
        match (route.order_conf.as_deref(), route.mappings.as_ref()) {
            (Some(conf), _) if !conf.is_empty() => Self::from_order_conf(conf, names, has_master),
            (None, Some(mappings)) if !mappings.is_empty() => {
                let queues = QueueList::new(logical_queues(mappings, names, has_master));
                Self { queues, ..Self::default() }
            }
            _ => {
                let written = route.queues.iter().filter(|entry| entry.perm & PERM_WRITE != 0);
                let ranges = written.filter(|entry| has_master(&entry.broker)).map(|entry| QueueRange {
                    broker: Arc::clone(&entry.broker),
                    logical: None,
                    first: 0,
                    count: u32::try_from(entry.write_queues).unwrap_or_default(),
                    addressed: true,
                });
                Self { queues: QueueList::new(ranges.collect()), ..Self::default() }
            }
        }
    }

    /// Reads `broker-a:8;broker-b:8`. The original fails at the first malformed item; here it is left out and
    /// reported.
    fn from_order_conf(conf: &str, names: &mut Names, has_master: impl Fn(&str) -> bool) -> Self {
        let mut ranges = Vec::new();
        let mut malformed = Vec::new();
        for (position, item) in (1..).zip(conf.trim_end_matches(';').split(';')) {
            let mut parts = item.split(':');
            let name = parts.next().filter(|name| !name.is_empty());
            let count = parts.next().and_then(|count| count.parse::<i32>().ok());
            let (Some(name), Some(count)) = (name, count) else {
                malformed.push(MalformedOrderItem { position, item: item.chars().take(128).collect() });
                continue;
            };
            ranges.push(QueueRange {
                broker: names.share(name),
                logical: None,
                first: 0,
                count: u32::try_from(count).unwrap_or_default(),
                addressed: has_master(name),
            });
        }
        Self { queues: QueueList::new(ranges), ordered: true, malformed: malformed.into_boxed_slice() }
    }

    /// Whether an order configuration decides: then keys must stay on their queues, also while a broker fails.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The items of the order configuration that were left out, to be reported once to whoever maintains it.
    #[must_use]
    pub fn malformed_order_items(&self) -> &[MalformedOrderItem] {
        &self.malformed
    }
}

/// An item of an order configuration that is no `broker:count`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("item {position} of the order configuration, {item:?}, is left out: write broker-name:queue-count")]
pub struct MalformedOrderItem {
    /// Which item, counted from 1.
    pub position: usize,
    /// The item, cut to 128 characters.
    pub item: String,
}

/// A topic exists but has no queue that could be written.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "topic {topic} exists but cannot be written: {}; give a broker of the topic write permission, write queues \
     and a running master", Reasons(.brokers)
)]
pub struct Unwritable {
    /// The topic.
    pub topic: String,
    /// Why each broker that has queues of the topic cannot take messages; empty if no broker has any.
    pub brokers: Vec<(Arc<str>, UnwritableReason)>,
}

/// Why a broker cannot take messages of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UnwritableReason {
    /// The permission of the topic on this broker lacks the bit for writing.
    NoWritePermission {
        /// The permission bits: 4 read, 2 write.
        perm: i32,
    },
    /// The broker group has members, but none is the master.
    NoMaster,
    /// The route names the broker but has no address of it at all.
    NoAddress,
    /// The topic has no write queues on this broker, as while it is being shrunk.
    NoWriteQueues,
    /// An order configuration decides, and gives this broker no queue.
    NotInOrderConfiguration,
}

impl fmt::Display for UnwritableReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWritePermission { perm } => write!(formatter, "no write permission (perm {perm})"),
            Self::NoMaster => formatter.write_str("no master"),
            Self::NoAddress => formatter.write_str("no address"),
            Self::NoWriteQueues => formatter.write_str("no write queues"),
            Self::NotInOrderConfiguration => formatter.write_str("no queue in the order configuration"),
        }
    }
}

struct Reasons<'a>(&'a [(Arc<str>, UnwritableReason)]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("no broker has queues of it");
        }
        for (position, (broker, reason)) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(formatter, "{separator}broker {broker} has {reason}")?;
        }
        Ok(())
    }
}

/// Why no broker of `route` can take messages.
pub(crate) fn unwritable(topic: &str, route: &RouteContent) -> Unwritable {
    let ordered = route.order_conf.as_deref().is_some_and(|conf| !conf.is_empty());
    let reason = |entry: &crate::route::QueueEntry| {
        let group = route.group(&entry.broker);
        if ordered {
            UnwritableReason::NotInOrderConfiguration
        } else if entry.perm & PERM_WRITE == 0 {
            UnwritableReason::NoWritePermission { perm: entry.perm }
        } else if group.is_none_or(|group| group.broker_addrs.is_empty()) {
            UnwritableReason::NoAddress
        } else if group.is_some_and(|group| !group.broker_addrs.contains_key(&0)) {
            UnwritableReason::NoMaster
        } else {
            UnwritableReason::NoWriteQueues
        }
    };
    let brokers = route.queues.iter().map(|entry| (Arc::clone(&entry.broker), reason(entry))).collect();
    Unwritable { topic: topic.to_owned(), brokers }
}

/// The route of a topic that does not exist yet, from the route of [`DEFAULT_TOPIC`]: each broker has at most
/// `queues` queues ([`DEFAULT_TOPIC_QUEUES`] unless the producer says otherwise), and not more than the default
/// topic has to *read* (B5 step 2, B11). The broker that gets the first message creates the topic.
#[must_use]
pub fn default_topic_route(mut default: TopicRouteData, queues: i32) -> TopicRouteData {
    for entry in &mut default.queue_datas {
        let count = queues.min(entry.read_queue_nums);
        entry.read_queue_nums = count;
        entry.write_queue_nums = count;
    }
    default
}
