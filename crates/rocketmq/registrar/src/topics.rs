//! The broker's own topics and their version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_wire::body::{DataVersion, TopicQueueMapping};

use crate::error::TopicError;

/// The longest name of a topic, in bytes. Brokers allow 127 characters.
const NAME_MAX: usize = 255;

/// Changes within this time are sent together: a tool that creates topics one by one, or a program that makes
/// its topics at start, is one registration to each server and not hundreds.
pub const COALESCE: Duration = Duration::from_millis(50);

/// A topic as this broker has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// The name: not empty, at most 255 bytes, without blanks and control characters.
    pub name: String,
    /// Queues to read from.
    pub read_queues: i32,
    /// Queues to write to.
    pub write_queues: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit, 8 priority.
    pub permission: i32,
    /// Bits that say whether the topic is one of units.
    pub system_flag: i32,
    /// Whether the topic is ordered. Set by itself when a server names the topic in its order configuration.
    pub order: bool,
    /// The part of a static topic that this broker hosts.
    pub mapping: Option<TopicQueueMapping>,
}

impl Topic {
    /// A topic that can be read and written, with as many queues for both.
    #[must_use]
    pub fn new(name: &str, queues: i32) -> Self {
        Self {
            name: name.to_owned(),
            read_queues: queues,
            write_queues: queues,
            permission: 6,
            system_flag: 0,
            order: false,
            mapping: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), TopicError> {
        let name = &self.name;
        let printable = |c: char| !c.is_whitespace() && !c.is_control();
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(printable) {
            return Err(TopicError::Name { name: name.chars().take(64).collect(), limit: NAME_MAX });
        }
        if self.read_queues < 0 || self.write_queues < 0 {
            let (read, write) = (self.read_queues, self.write_queues);
            return Err(TopicError::Queues { name: name.clone(), read, write });
        }
        if !(0..=15).contains(&self.permission) {
            return Err(TopicError::Permission { name: name.clone(), permission: self.permission });
        }
        Ok(())
    }
}

/// The topics, the version that stands for them, and since when each is as it is.
#[derive(Clone, Debug)]
pub(crate) struct TopicTable {
    topics: BTreeMap<Arc<str>, Arc<Entry>>,
    version: DataVersion,
    /// Counts changes; what a server holds is told by it.
    revision: u64,
    /// The last revision that a table of single topics cannot express: something was removed.
    whole_since: u64,
    /// When the last batch of changes may be sent.
    settles_at: Millis,
}

#[derive(Debug)]
struct Entry {
    topic: Topic,
    changed: u64,
}

impl TopicTable {
    /// An empty table. Its version is later than any of an earlier life of this broker, if the time of day
    /// is.
    pub(crate) const fn new(state_version: i64, wall: i64) -> Self {
        Self {
            topics: BTreeMap::new(),
            version: DataVersion { state_version, timestamp: wall, counter: 0 },
            revision: 0,
            whole_since: 0,
            settles_at: Millis::ZERO,
        }
    }

    /// Adds or replaces topics; what is equal to what is there changes nothing (part C 9). Returns whether
    /// anything did.
    pub(crate) fn set(&mut self, topics: impl IntoIterator<Item = Topic>, now: Millis, wall: i64) -> bool {
        let mut changed = false;
        for topic in topics {
            if self.topics.get(topic.name.as_str()).is_some_and(|entry| entry.topic == topic) {
                continue;
            }
            if !changed {
                changed = true;
                self.advance(now, wall);
            }
            let entry = Entry { changed: self.revision, topic };
            self.topics.insert(Arc::from(entry.topic.name.as_str()), Arc::new(entry));
        }
        changed
    }

    /// Removes a topic; servers hear of it by the next whole table (part C 9).
    pub(crate) fn remove(&mut self, name: &str, now: Millis, wall: i64) -> bool {
        let removed = self.topics.remove(name).is_some();
        if removed {
            self.advance(now, wall);
            self.whole_since = self.revision;
        }
        removed
    }

    /// Marks as ordered what a server's order configuration names. Nothing is ever unmarked (part C 8).
    pub(crate) fn mark_ordered<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        now: Millis,
        wall: i64,
    ) -> bool {
        let unmarked: Vec<Topic> = names
            .filter_map(|name| self.topics.get(name))
            .filter(|entry| !entry.topic.order)
            .map(|entry| Topic { order: true, ..entry.topic.clone() })
            .collect();
        self.set(unmarked, now, wall)
    }

    /// A change that concerns every topic, such as another permission of the broker.
    pub(crate) fn touch_all(&mut self, now: Millis, wall: i64) {
        self.advance(now, wall);
        self.whole_since = self.revision;
    }

    fn advance(&mut self, now: Millis, wall: i64) {
        self.revision += 1;
        self.version.counter += 1;
        // The time of day may go back; two contents must not share a version all the same, the counter sees
        // to it.
        self.version.timestamp = wall.max(self.version.timestamp);
        if now >= self.settles_at {
            self.settles_at = now.after(COALESCE);
        }
    }

    pub(crate) const fn version(&self) -> DataVersion {
        self.version
    }

    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) const fn settles_at(&self) -> Millis {
        self.settles_at
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether only the whole table brings a server from `revision` to now.
    pub(crate) const fn needs_whole(&self, revision: u64) -> bool {
        self.whole_since > revision
    }

    /// All topics, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Topic> {
        self.topics.values().map(|entry| &entry.topic)
    }

    /// The topics that changed after `revision`, by name.
    pub(crate) fn changed_since(&self, revision: u64) -> impl Iterator<Item = &Topic> {
        self.topics.values().filter(move |entry| entry.changed > revision).map(|entry| &entry.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Millis = Millis::new(1_000);

    fn at(milliseconds: u64) -> Millis {
        T0.after(Duration::from_millis(milliseconds))
    }

    #[test]
    fn every_change_makes_another_version_and_an_equal_topic_makes_none() {
        let mut table = TopicTable::new(3, 100);
        assert!(table.set([Topic::new("a", 4)], T0, 200));
        assert_eq!(table.version(), DataVersion { state_version: 3, timestamp: 200, counter: 1 });
        assert!(!table.set([Topic::new("a", 4)], T0, 300));
        assert_eq!(table.version().timestamp, 200);
        assert!(table.set([Topic::new("a", 8)], T0, 150), "the time of day went back");
        assert_eq!(table.version(), DataVersion { state_version: 3, timestamp: 200, counter: 2 });
        assert!(!table.remove("b", T0, 300));
        assert!(table.remove("a", T0, 300));
        assert_eq!(table.version().counter, 3);
    }

    #[test]
    fn changes_within_50_ms_settle_together() {
        let mut table = TopicTable::new(0, 0);
        table.set([Topic::new("a", 4)], T0, 0);
        assert_eq!(table.settles_at(), at(50));
        table.set([Topic::new("b", 4)], at(49), 0);
        assert_eq!(table.settles_at(), at(50), "a stream of changes does not put the first one off");
        table.set([Topic::new("c", 4)], at(50), 0);
        assert_eq!(table.settles_at(), at(100));
    }

    #[test]
    fn what_a_server_lacks_is_what_changed_since() {
        let mut table = TopicTable::new(0, 0);
        table.set([Topic::new("a", 4), Topic::new("b", 4)], T0, 0);
        let known = table.revision();
        table.set([Topic::new("b", 8), Topic::new("c", 1)], T0, 0);
        let names: Vec<_> = table.changed_since(known).map(|topic| topic.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        assert!(!table.needs_whole(known));
        table.remove("a", T0, 0);
        assert!(table.needs_whole(known));
        assert!(!table.needs_whole(table.revision()));
    }

    #[test]
    fn topics_of_the_order_configuration_are_marked_once() {
        let mut table = TopicTable::new(0, 0);
        table.set([Topic::new("a", 4), Topic::new("b", 4)], T0, 0);
        assert!(table.mark_ordered(["a", "foreign"].into_iter(), T0, 0));
        assert!(!table.mark_ordered(["a"].into_iter(), T0, 0));
        let ordered: Vec<_> = table.all().filter(|topic| topic.order).map(|topic| &topic.name).collect();
        assert_eq!(ordered, ["a"]);
    }

    #[test]
    fn topics_that_would_break_a_registration_are_refused() {
        assert!(Topic::new("%RETRY%group-1", 1).check().is_ok());
        for name in ["", "two words", "tab\t", "new\nline", &"n".repeat(256)] {
            assert!(matches!(Topic::new(name, 1).check(), Err(TopicError::Name { .. })), "{name:?}");
        }
        assert!(matches!(Topic::new("a", -1).check(), Err(TopicError::Queues { .. })));
        let odd = Topic { permission: 16, ..Topic::new("a", 1) };
        assert!(matches!(odd.check(), Err(TopicError::Permission { .. })));
    }
}
