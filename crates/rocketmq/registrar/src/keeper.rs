//! The task that keeps the lease at one server: carries out its steps and brings it the events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use waypost_net::clock::Millis;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_wire::message::Request;

use crate::announcement::Outgoing;
use crate::lease::{Lease, LinkId, Step, Ticket};
use crate::shared::{Seen, Shared};
use crate::state::{Farewell, FarewellOutcome, Phase};

/// The end of patience with an answer; the connection is closed then. So long, because closing takes the
/// broker off the routes of a server that may still be serving it; the lease asks over a second connection
/// long before.
const CALL_LIMIT: Duration = Duration::from_secs(600);

/// Keeps one lease.
pub(crate) struct Keeper {
    pub(crate) server: Endpoint,
    pub(crate) shared: Arc<Shared>,
    pub(crate) servers: Servers,
    pub(crate) dialer: Dialer,
    pub(crate) seed: u64,
    /// Until when the broker should have left; `None` as long as it should stay.
    pub(crate) leave_by: watch::Receiver<Option<Millis>>,
}

enum Event {
    Opened(LinkId, Result<Connection, Arc<CallError>>),
    Closed(LinkId),
    Answered(Ticket, Result<Answer, Arc<CallError>>),
}

enum Line {
    Opening(JoinHandle<()>),
    Open(Connection),
}

impl Line {
    fn close(self) {
        match self {
            Self::Opening(opening) => opening.abort(),
            Self::Open(connection) => connection.close(),
        }
    }
}

struct Running {
    keeper: Keeper,
    lease: Lease,
    lines: HashMap<LinkId, Line>,
    events: mpsc::UnboundedSender<Event>,
    tasks: Tasks,
    chance: StdRng,
    phase: Option<Phase>,
}

impl Keeper {
    /// Keeps the lease until it is told to leave, and says how leaving went.
    pub(crate) async fn keep(self, tasks: Tasks) -> Farewell {
        let (events, mut received) = mpsc::unbounded_channel();
        let mut changes = self.shared.subscribe_changes();
        let mut leave_by = self.leave_by.clone();
        let lease = Lease::new(self.server.clone(), self.seed, self.shared.clock.now());
        let chance = StdRng::seed_from_u64(self.seed);
        let mut running =
            Running { keeper: self, lease, lines: HashMap::new(), events, tasks, chance, phase: None };
        loop {
            let deadline = *leave_by.borrow_and_update();
            if deadline.is_some() {
                running.lease.go();
            }
            changes.borrow_and_update();
            let wake = running.advance();
            let now = running.keeper.shared.clock.now();
            if let Some(deadline) = deadline
                && (running.lease.farewell().is_some() || now >= deadline)
            {
                return running.end();
            }
            let wait = deadline.map_or(wake, |deadline| wake.min(deadline)).since(now);
            tokio::select! {
                event = received.recv() => {
                    running.take(event);
                    while let Ok(event) = received.try_recv() {
                        running.take(Some(event));
                    }
                }
                // Fails only when the registrar is gone, and this task with it.
                _ = changes.changed() => {}
                _ = leave_by.changed() => {}
                // The wait is in whole milliseconds and may end in the middle of one.
                () = sleep(wait.saturating_add(Duration::from_millis(1))) => {}
            }
        }
    }
}

impl Running {
    /// Does what is to be done now; returns when to look again.
    fn advance(&mut self) -> Millis {
        let shared = Arc::clone(&self.keeper.shared);
        loop {
            let (broker, now) = (shared.announcement(), shared.clock.now());
            match self.lease.next(&broker, now) {
                Step::Wait(until) => {
                    self.publish();
                    return until;
                }
                Step::Open { link, limit } => self.open(link, limit),
                Step::Send { link, ticket, request } => self.send(link, ticket, request),
                Step::Close(link) => self.close(link),
            }
        }
    }

    fn publish(&mut self) {
        let shared = &self.keeper.shared;
        let (broker, now) = (shared.announcement(), shared.clock.now());
        let news = self.lease.take_news();
        let state = self.lease.state(&broker, now);
        if self.phase != Some(state.phase) {
            let server = &self.keeper.server;
            tracing::info!(%server, phase = %state.phase, "the lease at a name server changed");
            if !matches!(state.phase, Phase::Registered | Phase::Registering) {
                shared.change_opinions(|opinions, _| opinions.fall_silent(server));
            }
            self.phase = Some(state.phase);
        }
        shared.hear(&self.keeper.server, news);
        // The word of a server that fell silent counts for a while only.
        shared.change_opinions(|_, _| {});
        shared.publish(Seen { state, holds: self.lease.holds(), at: now });
    }

    fn take(&mut self, event: Option<Event>) {
        let shared = &self.keeper.shared;
        let now = shared.clock.now();
        match event {
            Some(Event::Opened(link, Ok(connection))) if self.lines.contains_key(&link) => {
                self.watch(link, &connection);
                self.lines.insert(link, Line::Open(connection));
                self.lease.opened(link, now);
            }
            Some(Event::Opened(link, Err(error))) => {
                self.lines.remove(&link);
                self.keeper.servers.recheck();
                self.lease.open_failed(link, error, now);
            }
            Some(Event::Closed(link)) if self.lines.remove(&link).is_some() => self.lease.closed(link, now),
            Some(Event::Answered(ticket, Ok(answer))) => {
                self.lease.answered(ticket, &answer, &shared.announcement(), now);
            }
            Some(Event::Answered(ticket, Err(error))) => self.lease.call_failed(ticket, error, now),
            // The lease closed the connection itself, perhaps while it opened.
            Some(Event::Opened(_, Ok(_)) | Event::Closed(_)) | None => {}
        }
    }

    fn open(&mut self, link: LinkId, limit: Duration) {
        let (dialer, server) = (self.keeper.dialer.clone(), self.keeper.server.clone());
        let (events, tasks) = (self.events.clone(), self.tasks.clone());
        let opening = self.tasks.spawn(async move {
            let opened = Connection::open(&dialer, &server, limit, &tasks).await.map_err(Arc::new);
            // Fails only when the keeper has ended.
            let _ = events.send(Event::Opened(link, opened));
        });
        self.lines.insert(link, Line::Opening(opening));
    }

    fn watch(&self, link: LinkId, connection: &Connection) {
        let (connection, events) = (connection.clone(), self.events.clone());
        self.tasks.spawn(async move {
            connection.closed().await;
            let _ = events.send(Event::Closed(link));
        });
    }

    fn send(&mut self, link: LinkId, ticket: Ticket, request: Outgoing) {
        let Some(Line::Open(connection)) = self.lines.get(&link) else { return };
        let drill = self.keeper.shared.drill();
        if drill.loss > 0.0 && self.chance.random::<f64>() < drill.loss {
            return;
        }
        if request.oneway && drill.delay.is_zero() {
            // A connection that ended says so itself.
            let _ = with(&request, |request| connection.send(request));
            return;
        }
        let (connection, events) = (connection.clone(), self.events.clone());
        self.tasks.spawn(async move {
            if !drill.delay.is_zero() {
                tokio::select! {
                    () = connection.closed() => return,
                    () = sleep(drill.delay) => {}
                }
            }
            if request.oneway {
                let _ = with(&request, |request| connection.send(request));
                return;
            }
            let ext: Vec<(&str, &str)> =
                request.ext.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let call = Request { ext: &ext, body: &request.body, ..Request::new(request.code) };
            let answer = connection.call(&call, CALL_LIMIT).await.map_err(Arc::new);
            let _ = events.send(Event::Answered(ticket, answer));
        });
    }

    fn close(&mut self, link: LinkId) {
        self.lines.remove(&link).into_iter().for_each(Line::close);
    }

    fn end(mut self) -> Farewell {
        self.lines.drain().for_each(|(_, line)| line.close());
        let outcome = self.lease.farewell().cloned().unwrap_or(FarewellOutcome::NoAnswer);
        Farewell { server: self.keeper.server, outcome }
    }
}

fn with<T>(outgoing: &Outgoing, then: impl FnOnce(&Request<'_>) -> T) -> T {
    let ext: Vec<(&str, &str)> = outgoing.ext.iter().map(|(key, value)| (*key, value.as_str())).collect();
    then(&Request { ext: &ext, body: &outgoing.body, ..Request::new(outgoing.code) })
}
