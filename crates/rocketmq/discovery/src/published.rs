//! What callers read without asking anybody: the routes as they were last published.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;
use waypost_net::clock::Millis;

use crate::core::Known;
use crate::route::TopicRoute;

/// One topic's place.
#[derive(Debug)]
pub(crate) struct Slot {
    content: watch::Sender<Content>,
    /// [`Millis`] plus one; zero for never.
    checked: AtomicU64,
    stale: AtomicBool,
}

/// A content and its number, which grows with each change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) route: Option<Arc<TopicRoute>>,
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Published {
    slots: RwLock<HashMap<Arc<str>, Arc<Slot>>>,
    outage: AtomicBool,
}

impl Published {
    pub(crate) fn slot(&self, topic: &Arc<str>) -> Arc<Slot> {
        if let Some(slot) = self.find(topic) {
            return slot;
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(Arc::clone(topic)).or_insert_with(|| {
            let (content, _) = watch::channel(Content::default());
            Arc::new(Slot { content, checked: AtomicU64::new(0), stale: AtomicBool::new(false) })
        }))
    }

    pub(crate) fn find(&self, topic: &str) -> Option<Arc<Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).get(topic).map(Arc::clone)
    }

    /// Drops the topic's place unless somebody watches it: a watcher keeps the place that it knows.
    pub(crate) fn forget(&self, topic: &str) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if slots.get(topic).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(topic);
        }
    }

    pub(crate) fn topics(&self) -> Vec<(Arc<str>, Arc<Slot>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.iter().map(|(topic, slot)| (Arc::clone(topic), Arc::clone(slot))).collect()
    }

    pub(crate) fn set_outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::Relaxed);
    }

    pub(crate) fn known(&self, slot: &Slot) -> Known {
        let checked = slot.checked.load(Ordering::Relaxed);
        Known {
            route: slot.content.borrow().route.clone(),
            checked: checked.checked_sub(1).map(Millis::new),
            stale: slot.stale.load(Ordering::Relaxed) || self.outage.load(Ordering::Relaxed),
        }
    }
}

impl Slot {
    pub(crate) fn publish(&self, known: Known, changed: bool) {
        self.checked.store(known.checked.map_or(0, |at| at.get().saturating_add(1)), Ordering::Relaxed);
        self.stale.store(known.stale, Ordering::Relaxed);
        self.content.send_if_modified(|content| {
            content.route = known.route;
            content.number = content.number.wrapping_add(u64::from(changed));
            // Subscribers would see no difference otherwise.
            changed
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Content> {
        self.content.subscribe()
    }

    pub(crate) fn content(&self) -> Content {
        self.content.borrow().clone()
    }
}
