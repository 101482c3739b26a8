//! A client under test: the real core, with its promises watched.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use waypost_net::clock::Millis;
use waypost_rocketmq_discovery::core::{Action, Core, Lookup, Ticket};

pub(crate) struct Client {
    pub(crate) core: Core,
    /// When the next wake-up is planned, so that older plans are ignored.
    pub(crate) wakes: Option<Millis>,
    /// How often it woke up in this millisecond.
    woken: (Millis, u32),
    /// Calls that have not ended, and their deadlines.
    calls: BTreeMap<Ticket, Millis>,
    /// The version of each topic that subscribers saw last.
    pub(crate) seen: BTreeMap<Arc<str>, u64>,
    next_ticket: u64,
    pub(crate) calls_ended: usize,
    pub(crate) changes_seen: usize,
    pub(crate) broken: Vec<String>,
}

impl Client {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            core: Core::new(Duration::from_secs(30), StdRng::seed_from_u64(seed)),
            wakes: None,
            woken: (Millis::ZERO, 0),
            calls: BTreeMap::new(),
            seen: BTreeMap::new(),
            next_ticket: 0,
            calls_ended: 0,
            changes_seen: 0,
            broken: Vec::new(),
        }
    }

    /// Counts wake-ups: a core that wants to be woken again and again for nothing would burn a processor.
    pub(crate) fn woken(&mut self, now: Millis) {
        let (at, count) = self.woken;
        self.woken = if at == now { (now, count + 1) } else { (now, 1) };
        assert!(self.woken.1 < 100, "woken 100 times at {now}");
    }

    pub(crate) fn call(&mut self, topic: &str, max_age: Option<Duration>, limit: Duration, now: Millis) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let deadline = now.after(limit);
        self.calls.insert(ticket, deadline);
        let lookup = Lookup { topic: topic.into(), max_age, strict: max_age.is_some(), deadline };
        self.core.lookup(ticket, lookup, now);
    }

    /// Looks at what the core wants done and keeps what is for this client.
    pub(crate) fn take_actions(&mut self, now: Millis) -> Vec<Action> {
        let actions = self.core.take_actions();
        let mut rest = Vec::new();
        for action in actions {
            match action {
                Action::Found(ticket, _) => {
                    let deadline = self.calls.remove(&ticket).expect("the call was not answered before");
                    self.calls_ended += 1;
                    if now > deadline {
                        self.broken.push(format!("a call ended {now}, its deadline was {deadline}"));
                    }
                }
                Action::Publish { topic, known, changed: true } => self.see(&topic, &known.route, now),
                action => rest.push(action),
            }
        }
        rest
    }

    fn see(
        &mut self,
        topic: &Arc<str>,
        route: &Option<Arc<waypost_rocketmq_discovery::route::TopicRoute>>,
        now: Millis,
    ) {
        let Some(route) = route else {
            self.broken.push(format!("{topic} is gone at {now}, but it always existed"));
            return;
        };
        let version = u64::try_from(route.queue_entries()[0].read_queues).expect("a version");
        let before = self.seen.insert(Arc::clone(topic), version).unwrap_or_default();
        self.changes_seen += 1;
        if version <= before {
            self.broken.push(format!("{topic} went from {before} to {version} at {now}"));
        }
    }

    pub(crate) fn overdue(&mut self, now: Millis) {
        let overdue = self.calls.iter().find(|(_, deadline)| now > **deadline);
        if let Some((ticket, deadline)) = overdue {
            self.broken.push(format!("{ticket:?} has not ended at {now}, its deadline was {deadline}"));
        }
    }
}
