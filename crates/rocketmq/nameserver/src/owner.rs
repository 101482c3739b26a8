//! The owner of the route table: applies commands in order and acts on what follows from them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use waypost_net::clock::Clock;
use waypost_net::sessions::Sessions;
use waypost_rocketmq_registry::{Command, Effects, Event, MinBrokerNotice, Outcome, RouteIndex, RouteTable};

use crate::journal::Journal;
use crate::metrics::Metrics;

/// Notices (905) that may wait to be sent; more are dropped and counted, as brokers also poll.
pub(crate) const NOTICES_MAX: usize = 10_000;

/// Holds the table. Its lock is taken by the lanes alone, never where connections are served.
#[derive(Debug)]
pub(crate) struct Owner {
    table: Mutex<RouteTable>,
    index: Arc<RouteIndex>,
    clock: Clock,
    sessions: Sessions,
    notices: mpsc::Sender<MinBrokerNotice>,
    metrics: Arc<Metrics>,
    journal: Journal,
}

impl Owner {
    pub(crate) fn new(
        table: RouteTable,
        clock: Clock,
        sessions: Sessions,
        notices: mpsc::Sender<MinBrokerNotice>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let index = Arc::new(RouteIndex::new());
        Self { table: Mutex::new(table), index, clock, sessions, notices, metrics, journal: Journal }
    }

    /// What readers look into.
    pub(crate) fn index(&self) -> &Arc<RouteIndex> {
        &self.index
    }

    /// The time as the table counts it.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.clock.now().get())
    }

    /// Applies a command, publishes what changed, acts on the rest. When this returns, readers see
    /// the change.
    pub(crate) fn apply(&self, command: Command<'_>) -> Outcome {
        let mut table = self.lock();
        let Effects { outcome, changed, notices, close, events, .. } = table.apply(command, self.now());
        self.index.publish(&changed);
        self.metrics.route_changes.inc_by(changed.len() as u64);
        for event in &events {
            self.count(event);
            self.journal.record(event);
        }
        for connection in close {
            self.sessions.close(connection.0, "broker_expired");
        }
        for notice in notices {
            if self.notices.try_send(notice).is_err() {
                self.metrics.notices_dropped.inc();
            }
        }
        outcome
    }

    /// Reads from the table.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&RouteTable) -> R) -> R {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, RouteTable> {
        // A panic in `apply` may have left the table half changed; serving from it could send
        // clients to the wrong brokers, so nobody goes on.
        match self.table.lock() {
            Ok(table) => table,
            Err(poisoned) => {
                tracing::error!("the route table is damaged by an earlier panic: the server stops");
                drop(PoisonError::into_inner(poisoned));
                std::process::abort();
            }
        }
    }

    fn count(&self, event: &Event) {
        match event {
            Event::BrokerRemoved { cause, .. } => {
                self.metrics.removals.of(*cause).inc();
            }
            Event::Conflict { kind, .. } => {
                self.metrics.conflicts.of(*kind).inc();
            }
            _ => {}
        }
    }
}
