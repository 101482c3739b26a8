//! The queues of a topic that messages can be read from (B8).

use std::ops::Deref;
use std::sync::Arc;

use crate::names::Names;
use crate::queue::{PERM_READ, QueueList, QueueRange};
use crate::route::RouteContent;
use crate::static_topic::logical_queues;

/// The queues that a topic's messages can be read from, computed from one version of its route (B8).
///
/// A static topic has its logical queues. Any other has the read queues of every broker with the read
/// permission, also of one that has no address at present: it will be back, and dividing the queues among
/// consumers must not depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscribeView {
    queues: QueueList,
}

impl Deref for SubscribeView {
    type Target = QueueList;

    fn deref(&self) -> &QueueList {
        &self.queues
    }
}

impl SubscribeView {
    pub(crate) fn compute(route: &RouteContent, names: &mut Names) -> Self {
        let has_address =
            |broker: &str| route.group(broker).is_some_and(|group| !group.broker_addrs.is_empty());
        let ranges = match route.mappings.as_ref() {
            Some(mappings) if !mappings.is_empty() => logical_queues(mappings, names, has_address),
            _ => {
                let read = route.queues.iter().filter(|entry| entry.perm & PERM_READ != 0);
                let ranges = read.map(|entry| QueueRange {
                    broker: Arc::clone(&entry.broker),
                    logical: None,
                    first: 0,
                    count: u32::try_from(entry.read_queues).unwrap_or_default(),
                    addressed: has_address(&entry.broker),
                });
                ranges.collect()
            }
        };
        Self { queues: QueueList::new(ranges) }
    }
}
