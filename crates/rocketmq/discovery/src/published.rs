//! What callers read without asking anybody: the routes as they were last published.
//!
//! Readers take no lock: what is known of a topic is replaced as a whole. Whoever makes or removes a topic's place
//! does so under a lock, which readers never see.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use waypost_net::clock::Millis;

use crate::core::{Known, USED_PERIOD};
use crate::route::TopicRoute;

/// One topic's place.
#[derive(Debug)]
pub(crate) struct Slot {
    content: watch::Sender<Content>,
    /// Grows with each publishing, after the new state can be read.
    version: AtomicU64,
}

/// A content and its number, which grows with each change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) route: Option<Arc<TopicRoute>>,
    pub(crate) number: u64,
}

/// What readers see of a topic.
#[derive(Debug, Default)]
struct Entry {
    known: Known,
    /// When readers were last told to the core as users: [`Millis`] plus one, zero for never. Kept over publishings.
    used: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Both maps have the same topics; only the holder of this lock adds, replaces or removes any.
    slots: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
    entries: papaya::HashMap<Arc<str>, Entry, foldhash::quality::RandomState>,
    outage: AtomicBool,
}

/// A known route as a reader finds it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) known: Known,
    /// Whether the core is to be told that the topic is in use.
    pub(crate) tell: bool,
}

impl Published {
    fn slots(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topic's place, which is made if there is none.
    pub(crate) fn slot(&self, topic: &Arc<str>) -> Arc<Slot> {
        self.slot_in(&mut self.slots(), topic)
    }

    fn slot_in(&self, slots: &mut HashMap<Arc<str>, Arc<Slot>>, topic: &Arc<str>) -> Arc<Slot> {
        let slot = slots.entry(Arc::clone(topic)).or_insert_with(|| {
            self.entries.pin().insert(Arc::clone(topic), Entry::default());
            let (content, _) = watch::channel(Content::default());
            Arc::new(Slot { content, version: AtomicU64::new(0) })
        });
        Arc::clone(slot)
    }

    /// Makes `known` what readers see of the topic, and wakes its watchers if the content is another.
    pub(crate) fn publish(&self, topic: &Arc<str>, known: Known, changed: bool) {
        let mut slots = self.slots();
        let slot = self.slot_in(&mut slots, topic);
        let route = known.route.clone();
        let entries = self.entries.pin();
        let used = entries.get(topic).map(|entry| Arc::clone(&entry.used)).unwrap_or_default();
        entries.insert(Arc::clone(topic), Entry { known, used });
        slot.version.fetch_add(1, Ordering::Release);
        drop(slots);
        slot.content.send_if_modified(|content| {
            content.route = route;
            content.number = content.number.wrapping_add(u64::from(changed));
            // Subscribers would see no difference otherwise.
            changed
        });
    }

    /// Drops the topic's place unless somebody watches it: a watcher keeps the place that it knows.
    pub(crate) fn forget(&self, topic: &str) {
        let mut slots = self.slots();
        if slots.get(topic).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(topic);
            self.entries.pin().remove(topic);
        }
    }

    pub(crate) fn set_outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    /// What is known of the topic, if it has a place.
    pub(crate) fn known(&self, topic: &str) -> Option<Known> {
        self.entries.pin().get(topic).map(|entry| self.marked(&entry.known))
    }

    /// What is known of every topic that has a place.
    pub(crate) fn all_known(&self) -> Vec<(Arc<str>, Known)> {
        let entries = self.entries.pin();
        entries.iter().map(|(topic, entry)| (Arc::clone(topic), self.marked(&entry.known))).collect()
    }

    /// The known route of a topic if it was confirmed within `max_age`; with `None`, however old it is.
    pub(crate) fn fresh(&self, topic: &str, max_age: Option<Duration>, now: Millis) -> Option<Found> {
        let entries = self.entries.pin();
        let entry = entries.get(topic)?;
        if entry.known.route.is_none() || !entry.known.is_young(max_age, now) {
            return None;
        }
        let told = entry.used.load(Ordering::Relaxed).checked_sub(1).map(Millis::new);
        let tell = told.is_none_or(|told| now.since(told) >= USED_PERIOD);
        if tell {
            entry.used.store(now.get().saturating_add(1), Ordering::Relaxed);
        }
        Some(Found { known: self.marked(&entry.known), tell })
    }

    fn marked(&self, known: &Known) -> Known {
        Known { stale: known.stale || self.outage.load(Ordering::Relaxed), ..known.clone() }
    }
}

impl Slot {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Content> {
        self.content.subscribe()
    }

    /// Another number than before says that something was published since.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Millis {
        Millis::new(seconds * 1_000)
    }

    fn confirmed(checked: Millis) -> Known {
        Known { route: Some(Arc::default()), checked: Some(checked), stale: false }
    }

    #[test]
    fn a_reader_is_given_what_is_young_enough() {
        let (published, topic): (Published, Arc<str>) = (Published::default(), "T".into());
        let age = |seconds| Some(Duration::from_secs(seconds));
        assert!(published.fresh("T", None, at(1)).is_none(), "never heard of");
        let slot = published.slot(&topic);
        assert!(published.fresh("T", None, at(1)).is_none(), "watched, and no answer yet");
        assert!(published.known("T").is_some_and(|known| known.route.is_none()));
        published.publish(&topic, confirmed(at(10)), true);
        assert!(published.fresh("T", None, at(100)).is_some());
        assert!(published.fresh("T", age(5), at(15)).is_some());
        assert!(published.fresh("T", age(5), at(16)).is_none());
        assert!(published.fresh("T", age(0), at(10)).is_none(), "no age at all asks the servers");
        published.publish(&topic, Known { stale: true, checked: None, ..confirmed(at(0)) }, false);
        assert!(published.fresh("T", age(5), at(10)).is_none(), "restored, and never confirmed");
        assert!(published.fresh("T", None, at(10)).is_some_and(|found| found.known.stale));
        published.publish(&topic, Known::default(), true);
        assert!(published.fresh("T", None, at(10)).is_none(), "gone");
        assert_eq!(slot.version(), 3);
    }

    #[test]
    fn an_outage_marks_every_route_as_stale() {
        let (published, topic): (Published, Arc<str>) = (Published::default(), "T".into());
        published.publish(&topic, confirmed(at(1)), true);
        let stale = || {
            let found = published.fresh("T", None, at(1)).map(|found| found.known);
            (found.is_some_and(|known| known.stale), published.all_known()[0].1.stale)
        };
        assert_eq!(stale(), (false, false));
        published.set_outage(true);
        assert_eq!(stale(), (true, true));
        published.set_outage(false);
        assert_eq!(stale(), (false, false));
    }

    #[test]
    fn readers_are_told_as_users_now_and_then() {
        let (published, topic): (Published, Arc<str>) = (Published::default(), "T".into());
        published.publish(&topic, confirmed(at(0)), true);
        let tell = |second| published.fresh("T", None, at(second)).is_some_and(|found| found.tell);
        assert!(tell(0));
        assert!(!tell(0) && !tell(9));
        published.publish(&topic, confirmed(at(9)), false);
        assert!(!tell(9), "a publishing does not make it forgotten");
        assert!(tell(10));
        assert!(!tell(19));
    }

    #[test]
    fn a_forgotten_topic_leaves_unless_somebody_watches_it() {
        let (published, topic): (Published, Arc<str>) = (Published::default(), "T".into());
        published.publish(&topic, confirmed(at(0)), true);
        let watched = published.slot(&topic);
        published.forget("T");
        assert!(published.known("T").is_some());
        drop(watched);
        published.forget("T");
        assert!(published.known("T").is_none() && published.all_known().is_empty());
    }
}
