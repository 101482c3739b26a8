//! What a route query (105) asks for. The NameServer and the agent answer alike because both ask here.

use crate::body::Dialect;
use crate::header::Header;
use crate::version::V4_9_4;

/// What a route query asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteQuery<'a> {
    /// The topic; a query without one asks for `null`, as the original reads it.
    pub topic: &'a str,
    /// The dialect that the caller gets (spec 2.9 step 7).
    pub dialect: Dialect,
    /// The zone that the caller wants to be kept in (spec 3.5).
    pub zone: Option<&'a str>,
}

impl<'a> RouteQuery<'a> {
    /// Reads a query's header.
    #[inline]
    #[must_use]
    pub fn of(header: &'a Header<'_>) -> Self {
        Self {
            topic: header.ext.get("topic").unwrap_or("null"),
            dialect: dialect(header),
            zone: zone(header),
        }
    }

    /// The remark of the answer that there is no such topic.
    #[must_use]
    pub fn no_route_remark(&self) -> String {
        format!(
            "No topic route info in name server for the topic: {}\n\
             See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
            self.topic
        )
    }
}

#[inline]
fn dialect(header: &Header<'_>) -> Dialect {
    if header.version >= V4_9_4 || header.ext.get_bool("acceptStandardJsonOnly") == Some(true) {
        Dialect::Standard
    } else {
        Dialect::Legacy
    }
}

#[inline]
fn zone<'a>(header: &'a Header<'_>) -> Option<&'a str> {
    if header.ext.get_bool("__ZONE_MODE") != Some(true) {
        return None;
    }
    header.ext.get("__ZONE_NAME").filter(|zone| !zone.trim().is_empty())
}
