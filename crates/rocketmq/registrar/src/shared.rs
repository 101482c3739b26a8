//! What the caller's side and the registrar's thread share. Nothing here is held while bytes travel.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use waypost_net::clock::{Clock, Millis};
use waypost_rocketmq_remoting::endpoint::Endpoint;

use crate::announcement::Announcement;
use crate::drill::Drill;
use crate::lease::News;
use crate::master::{Master, Opinions};
use crate::state::ServerState;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// Copied when it is changed while somebody reads it, which is rare.
    announcement: Mutex<Arc<Announcement>>,
    /// Counts changes of the announcement.
    changes: watch::Sender<u64>,
    states: Mutex<BTreeMap<SocketAddr, Seen>>,
    /// Counts changes of the states.
    sightings: watch::Sender<u64>,
    opinions: Mutex<Opinions>,
    master: watch::Sender<Option<Master>>,
    orders: Mutex<BTreeMap<SocketAddr, BTreeMap<String, String>>>,
    drill: Mutex<Drill>,
}

/// A state as it was published.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) state: ServerState,
    /// Revision of the topics and of the role that the server holds.
    pub(crate) holds: Option<(u64, u64)>,
    pub(crate) at: Millis,
}

impl Shared {
    pub(crate) fn new(clock: Clock, announcement: Announcement) -> Self {
        Self {
            clock,
            announcement: Mutex::new(Arc::new(announcement)),
            changes: watch::Sender::new(0),
            states: Mutex::default(),
            sightings: watch::Sender::new(0),
            opinions: Mutex::default(),
            master: watch::Sender::new(None),
            orders: Mutex::default(),
            drill: Mutex::default(),
        }
    }

    /// The broker as it is now.
    pub(crate) fn announcement(&self) -> Arc<Announcement> {
        Arc::clone(&lock(&self.announcement))
    }

    /// Changes the broker; those who keep its leases are woken if `change` says that it did something.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Announcement, Millis, i64) -> bool) -> bool {
        let (now, wall) = (self.clock.now(), i64::try_from(self.clock.wall_millis()).unwrap_or(i64::MAX));
        let changed = change(Arc::make_mut(&mut lock(&self.announcement)), now, wall);
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        changed
    }

    pub(crate) fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    // ---- states

    pub(crate) fn publish(&self, seen: Seen) {
        lock(&self.states).insert(seen.state.server.address, seen);
        self.sightings.send_modify(|sightings| *sightings += 1);
    }

    pub(crate) fn subscribe_states(&self) -> watch::Receiver<u64> {
        self.sightings.subscribe()
    }

    /// The states as of now.
    pub(crate) fn states(&self) -> Vec<ServerState> {
        let now = self.clock.now();
        let broker = self.announcement();
        let wanted = (broker.topics.revision(), broker.role_epoch);
        let states = lock(&self.states);
        states.values().map(|seen| seen.as_of(now, wanted)).collect()
    }

    /// The server is no longer on the list.
    pub(crate) fn forget(&self, server: &Endpoint) {
        lock(&self.states).remove(&server.address);
        lock(&self.orders).remove(&server.address);
        self.change_opinions(|opinions, _| opinions.forget(server));
        self.sightings.send_modify(|sightings| *sightings += 1);
    }

    // ---- what servers say

    pub(crate) fn hear(&self, server: &Endpoint, news: News) {
        if let Some(master) = news.master {
            self.change_opinions(|opinions, now| opinions.say(server, master, now));
        }
        if let Some(table) = news.orders {
            let known = lock(&self.orders).insert(server.address, table.clone());
            if known.as_ref() != Some(&table) {
                self.change(|broker, now, wall| {
                    broker.topics.mark_ordered(table.keys().map(String::as_str), now, wall)
                });
            }
        }
    }

    pub(crate) fn change_opinions(&self, change: impl FnOnce(&mut Opinions, Millis)) {
        let mut opinions = lock(&self.opinions);
        let now = self.clock.now();
        change(&mut opinions, now);
        let master = opinions.master(now);
        self.master.send_if_modified(|known| {
            let changed = *known != master;
            *known = master;
            changed
        });
    }

    pub(crate) fn subscribe_master(&self) -> watch::Receiver<Option<Master>> {
        self.master.subscribe()
    }

    /// The order configuration of all servers; where they differ, that of the greatest address.
    pub(crate) fn orders(&self) -> BTreeMap<String, String> {
        lock(&self.orders).values().flat_map(|table| table.clone()).collect()
    }

    // ---- drills

    pub(crate) fn drill(&self) -> Drill {
        *lock(&self.drill)
    }

    pub(crate) fn set_drill(&self, drill: Drill) {
        *lock(&self.drill) = drill;
        self.change(|broker, _, _| std::mem::replace(&mut broker.paused, drill.silent) != drill.silent);
    }
}

impl Seen {
    fn as_of(&self, now: Millis, wanted: (u64, u64)) -> ServerState {
        let later = now.since(self.at);
        let older = |age: Duration| age.saturating_add(later);
        let mut state = self.state.clone();
        if let Some(accepted) = &mut state.accepted {
            accepted.age = older(accepted.age);
        }
        if let Some((_, age)) = &mut state.failure {
            *age = older(*age);
        }
        state.answered = state.answered.map(older);
        state.current = self.holds == Some(wanted);
        state
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
