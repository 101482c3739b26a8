//! Topics that were deleted here while brokers have them: what a broker announced comes back with its next
//! registration, which surprises whoever deleted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How many deletions are remembered; the oldest is forgotten for another one. Mostly they are settled within the
/// 30 s between two registrations.
const REMEMBERED_MAX: usize = 10_000;

/// Which broker group had announced which topic when it was deleted.
#[derive(Debug, Default)]
pub(crate) struct DeletedTopics {
    by_broker: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Deletion>>,
    /// Broker and topic by the number of the deletion: oldest first.
    order: BTreeMap<u64, (Arc<str>, Arc<str>)>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Deletion {
    number: u64,
    at: Duration,
}

/// A deleted topic and who had announced it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeletedRow {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker names that had announced it and were not heard to have it no longer, sorted.
    pub brokers: Vec<Arc<str>>,
    /// When it was deleted last.
    pub deleted_at: Duration,
}

impl DeletedTopics {
    /// A topic of a group was deleted.
    pub(crate) fn remember(&mut self, broker: &Arc<str>, topic: &Arc<str>, now: Duration) {
        self.forget(broker, topic);
        if self.order.len() >= REMEMBERED_MAX
            && let Some((broker, topic)) = self.order.values().next().cloned()
        {
            self.forget(&broker, &topic);
        }
        let number = self.next;
        self.next += 1;
        self.order.insert(number, (Arc::clone(broker), Arc::clone(topic)));
        let topics = self.by_broker.entry(Arc::clone(broker)).or_default();
        topics.insert(Arc::clone(topic), Deletion { number, at: now });
    }

    /// Whether anything of a group is remembered.
    pub(crate) fn has(&self, broker: &str) -> bool {
        self.by_broker.contains_key(broker)
    }

    /// A group has the topic again.
    pub(crate) fn forget(&mut self, broker: &str, topic: &str) {
        let Some(topics) = self.by_broker.get_mut(broker) else { return };
        if let Some(deletion) = topics.remove(topic) {
            self.order.remove(&deletion.number);
        }
        if topics.is_empty() {
            self.by_broker.remove(broker);
        }
    }

    /// A group left, or said all that it has.
    pub(crate) fn forget_broker(&mut self, broker: &str) {
        let topics = self.by_broker.remove(broker).unwrap_or_default();
        for deletion in topics.values() {
            self.order.remove(&deletion.number);
        }
    }

    /// Those whose name `wanted` accepts, by name, at most `limit`.
    pub(crate) fn rows(&self, wanted: impl Fn(&str) -> bool, limit: usize) -> Vec<DeletedRow> {
        let mut rows: BTreeMap<&Arc<str>, (BTreeSet<&Arc<str>>, Duration)> = BTreeMap::new();
        for (broker, topics) in &self.by_broker {
            for (topic, deletion) in topics.iter().filter(|(topic, _)| wanted(topic)) {
                let (brokers, at) = rows.entry(topic).or_default();
                brokers.insert(broker);
                *at = (*at).max(deletion.at);
            }
        }
        let rows = rows.into_iter().take(limit);
        rows.map(|(topic, (brokers, deleted_at))| DeletedRow {
            topic: Arc::clone(topic),
            brokers: brokers.into_iter().cloned().collect(),
            deleted_at,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_deletions_are_forgotten_for_new_ones() {
        let mut deleted = DeletedTopics::default();
        let broker: Arc<str> = "b".into();
        for number in 0..REMEMBERED_MAX + 10 {
            deleted.remember(&broker, &format!("{number:05}").into(), Duration::ZERO);
        }
        let rows = deleted.rows(|_| true, usize::MAX);
        assert_eq!((rows.len(), &*rows[0].topic), (REMEMBERED_MAX, "00010"));
        // The same again takes no room.
        deleted.remember(&broker, &"00010".into(), Duration::from_secs(1));
        assert_eq!(deleted.order.len(), REMEMBERED_MAX);
        deleted.forget_broker("b");
        assert!(deleted.order.is_empty() && !deleted.has("b"));
    }
}
