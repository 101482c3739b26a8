//! The lease at one server: what it holds, what it must be sent next, and when.
//!
//! A state machine without IO: [`Lease::next`] says what to do now, the events say what came of it. Rules:
//!
//! 1. One request that wants an answer is under way at a time, and one whole registration at most.
//! 2. A connection that is new gets the whole table. So does a server that says, when it is asked for the
//!    version, that it has another or none (part C 6), one that refused a change, and all after the process
//!    stood still.
//! 3. Otherwise a server gets what changed since the revision that it has.
//! 4. A connection is opened again at once when it ends, then with growing pauses of half a second at most.
//! 5. A server that leaves a request unanswered for 3 s is asked over a second connection (the challenger),
//!    by a query that changes nothing. The first connection stays: closing it takes the broker off that
//!    server's routes, and a server that is slow or behind a bad network may still answer. Only if the
//!    challenger is answered first, it takes over: it registers, then the first connection is closed.
//! 6. A connection that is given up while a registration waits on it is kept until that is answered and the
//!    broker has registered once more over the newer one: the late registration moves the server's binding
//!    back to the old connection, whose end would then remove the broker.
//! 7. Servers of 4.x get whole tables in one piece only. They ignore what comes with a version that they have.

mod answers;
mod links;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use waypost_net::clock::{FREEZE_THRESHOLD, Millis};
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::DataVersion;
use waypost_rocketmq_wire::version::V5_0_0;

use self::links::{Challenger, Link, Retired};
use crate::announcement::{Announcement, Outgoing, Part};
use crate::error::LeaseError;
use crate::master::Master;
use crate::options::Beat;
use crate::state::{Accepted, FarewellOutcome, Phase, ServerState};
use crate::topics::Topic;

/// A request without an answer for so long makes the server suspect.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Heartbeats stop after so long a silence, so that they do not pile up before a server that does not read.
const BEATS_END_AFTER: Duration = Duration::from_secs(30);
/// The longest time until the lease looks at the clock again; standing still is noticed by it.
const TICK: Duration = Duration::from_secs(1);
/// The first question after a registration on a new connection: late ends of older ones have done their harm
/// then.
const FIRST_CHECK: Duration = Duration::from_secs(1);
/// A slave that knows no master asks again so soon: the shortest period of registrations.
const MASTERLESS_PERIOD: Duration = Duration::from_secs(10);
/// How long leaving waits for the answer to what was asked before: servers may take requests out of order.
const ANSWER_BEFORE_LEAVING: Duration = Duration::from_millis(500);
/// More changed topics than this are sent as a table even where topics go one by one.
const SINGLES_MAX: usize = 32;
/// The shortest time between heartbeats.
const BEAT_MIN: Duration = Duration::from_millis(100);
/// Pauses after refusals.
const REFUSED_MIN: Duration = Duration::from_millis(200);
const REFUSED_MAX: Duration = Duration::from_secs(5);

const NEVER: Millis = Millis::new(u64::MAX);

/// A connection of a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LinkId(pub(crate) u64);

/// A request that an answer may come to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ticket(pub(crate) u64);

/// What to do now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing before this moment, unless an event comes.
    Wait(Millis),
    /// Open a connection; [`Lease::opened`] or [`Lease::open_failed`] must follow.
    Open { link: LinkId, limit: Duration },
    /// Send a request. Unless it is one-way, [`Lease::answered`] or [`Lease::call_failed`] may follow.
    Send { link: LinkId, ticket: Ticket, request: Outgoing },
    /// Close a connection. No event needs to follow.
    Close(LinkId),
}

/// What a server said beside success.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct News {
    /// The master that it names, if this broker is a slave.
    pub(crate) master: Option<Option<Master>>,
    /// Its order configuration.
    pub(crate) orders: Option<std::collections::BTreeMap<String, String>>,
}

/// The state at one server.
#[derive(Debug)]
pub(crate) struct Lease {
    server: Endpoint,
    rng: StdRng,
    numbers: u64,
    ticked: Millis,
    paused: bool,
    gone: bool,

    primary: Option<Link>,
    attempt: u32,
    open_at: Millis,
    challenger: Option<Challenger>,
    challenges: u32,
    challenge_at: Millis,
    retired: Vec<Retired>,
    closing: VecDeque<LinkId>,

    pending: Option<Pending>,
    work: Option<Work>,
    holds: Option<Target>,
    fresh_link: bool,
    /// Something was answered over the connection in use.
    met: bool,
    registered_id: Option<u64>,
    retry_at: Millis,
    period_at: Millis,
    check_at: Millis,
    beat_at: Millis,

    server_version: Option<i32>,
    plain_only: bool,
    tables_only: bool,
    no_query: bool,

    leaving_since: Option<Millis>,
    farewell: Option<FarewellOutcome>,
    news: News,
    accepted: Option<(Target, Millis)>,
    answered_at: Option<Millis>,
    failure: Option<(LeaseError, Millis)>,
    failures: u32,
    refusals: u32,
    master: Option<Master>,
}

/// What a server holds once it has accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    revision: u64,
    version: DataVersion,
    role_epoch: u64,
    topics: usize,
}

/// A registration of several requests.
#[derive(Debug)]
enum Work {
    Table { parts: Arc<[Part]>, next: usize, whole: bool, compressed: bool, target: Target },
    Singles { left: VecDeque<Topic>, target: Target },
}

impl Work {
    const fn target(&self) -> Target {
        match self {
            Self::Table { target, .. } | Self::Singles { target, .. } => *target,
        }
    }
}

/// The request whose answer is waited for.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    name: &'static str,
    kind: Kind,
    sent_at: Millis,
    found_silent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// 103; it binds the broker to the connection.
    Table,
    /// 217.
    Single,
    /// 322 with this version.
    Query(DataVersion),
    /// 104.
    Goodbye,
}

impl Lease {
    /// A lease that holds nothing. It begins with its first [`Lease::next`].
    pub(crate) fn new(server: Endpoint, seed: u64, now: Millis) -> Self {
        Self {
            server,
            rng: StdRng::seed_from_u64(seed),
            numbers: 0,
            ticked: now,
            paused: false,
            gone: false,
            primary: None,
            attempt: 0,
            open_at: now,
            challenger: None,
            challenges: 0,
            challenge_at: now,
            retired: Vec::new(),
            closing: VecDeque::new(),
            pending: None,
            work: None,
            holds: None,
            fresh_link: false,
            met: false,
            registered_id: None,
            retry_at: now,
            period_at: NEVER,
            check_at: NEVER,
            beat_at: now,
            server_version: None,
            plain_only: false,
            tables_only: false,
            no_query: false,
            leaving_since: None,
            farewell: None,
            news: News::default(),
            accepted: None,
            answered_at: None,
            failure: None,
            failures: 0,
            refusals: 0,
            master: None,
        }
    }

    /// What to do now. To be asked again after each step but [`Step::Wait`], and after each event.
    pub(crate) fn next(&mut self, broker: &Announcement, now: Millis) -> Step {
        if now.since(self.ticked) > FREEZE_THRESHOLD {
            self.thaw(now);
        }
        self.ticked = now;
        if let Some(link) = self.closing.pop_front() {
            return Step::Close(link);
        }
        if broker.paused {
            self.paused = true;
            return Step::Wait(now.after(TICK));
        }
        if std::mem::take(&mut self.paused) {
            // Whatever the silence made of it, the server gets everything.
            self.start_over(now);
        }
        let step = match broker.role.id() {
            Some(id) if !self.gone => self.stay(broker, id, now),
            _ => self.leave(broker, now),
        };
        match step {
            Step::Wait(until) => Step::Wait(until.min(now.after(TICK))),
            step => step,
        }
    }

    /// The server is no longer wanted: unregister, then close. Irrevocable.
    pub(crate) const fn go(&mut self) {
        self.gone = true;
    }

    /// How leaving went, once it is over.
    pub(crate) const fn farewell(&self) -> Option<&FarewellOutcome> {
        self.farewell.as_ref()
    }

    /// What the server said since the last time.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// The revision of the topics and the role that the server holds.
    pub(crate) fn holds(&self) -> Option<(u64, u64)> {
        self.holds.map(|target| (target.revision, target.role_epoch))
    }

    /// How it stands.
    pub(crate) fn state(&self, broker: &Announcement, now: Millis) -> ServerState {
        ServerState {
            server: self.server.clone(),
            phase: self.phase(broker),
            accepted: self.accepted.map(|(target, at)| Accepted {
                version: target.version,
                topics: target.topics,
                age: now.since(at),
            }),
            current: self.holds() == Some((broker.topics.revision(), broker.role_epoch)),
            answered: self.answered_at.map(|at| now.since(at)),
            failure: self.failure.clone().map(|(error, at)| (error, now.since(at))),
            failures: self.failures,
            master: self.master.clone(),
        }
    }

    fn phase(&self, broker: &Announcement) -> Phase {
        if self.gone || broker.role.id().is_none() {
            return if self.farewell.is_some() { Phase::Absent } else { Phase::Leaving };
        }
        if !self.primary.as_ref().is_some_and(|link| link.up) {
            Phase::Connecting
        } else if self.pending.as_ref().is_some_and(|pending| pending.found_silent) {
            Phase::Silent
        } else if self.refusals > 0 {
            Phase::Refused
        } else if self.holds.is_some() {
            Phase::Registered
        } else {
            Phase::Registering
        }
    }

    // ---- staying registered

    fn stay(&mut self, broker: &Announcement, id: u64, now: Millis) -> Step {
        (self.farewell, self.leaving_since) = (None, None);
        if self.work.as_ref().is_some_and(|work| work.target().role_epoch != broker.role_epoch) {
            self.work = None;
        }
        if let Some(link) = self.retire_next(now) {
            return Step::Close(link);
        }
        let Some(primary) = &self.primary else {
            return if now < self.open_at { Step::Wait(self.open_at) } else { self.open() };
        };
        if !primary.up {
            return Step::Wait(NEVER);
        }
        let link = primary.id;
        if let Some(beat) = self.beat(broker, id, link, now) {
            return beat;
        }
        let step = if self.pending.is_some() {
            self.wait_for_answer(broker, id, now)
        } else {
            self.speak(broker, id, link, now)
        };
        match step {
            Step::Wait(until) => Step::Wait(until.min(self.next_beat(broker, now))),
            step => step,
        }
    }

    fn beats(&self, now: Millis) -> bool {
        let silence = self.pending.as_ref().map_or(Duration::ZERO, |pending| now.since(pending.sent_at));
        self.holds.is_some() && silence < BEATS_END_AFTER
    }

    fn next_beat(&self, broker: &Announcement, now: Millis) -> Millis {
        if broker.timing.acting_master.is_some() && self.beats(now) { self.beat_at } else { NEVER }
    }

    fn beat(&mut self, broker: &Announcement, id: u64, link: LinkId, now: Millis) -> Option<Step> {
        let acting = broker.timing.acting_master?;
        let holds = self.holds?;
        if now < self.beat_at || !self.beats(now) {
            return None;
        }
        self.beat_at = now.after(acting.beat.max(BEAT_MIN));
        let with = if self.is_old_server() { Beat::DataVersion } else { acting.with };
        Some(Step::Send { link, ticket: self.ticket(), request: broker.heartbeat(with, id, holds.version) })
    }

    /// Whether the server is below 5.0, which leaves 217 and 904 without an answer and an effect.
    fn is_old_server(&self) -> bool {
        self.server_version.is_some_and(|version| (1..V5_0_0).contains(&version))
    }

    /// The next request, when nothing is waited for.
    fn speak(&mut self, broker: &Announcement, id: u64, link: LinkId, now: Millis) -> Step {
        if now < self.retry_at {
            return Step::Wait(self.retry_at);
        }
        if self.work.is_none() {
            if self.must_meet(broker) {
                let version = broker.topics.version();
                let request = broker.version_query(id, version, false);
                return self.ask(link, request, Kind::Query(version), now);
            }
            self.work = self.plan(broker, now);
        }
        if let Some((request, kind)) = self.next_part(broker, id) {
            return self.ask(link, request, kind, now);
        }
        // A period that is only a question (part C 6), and the questions between periods.
        let due = self.check_at.min(if self.repeats(broker) { NEVER } else { self.period_at });
        if let Some(holds) = self.holds
            && now >= due
        {
            let period = now.after(broker.timing.clamped_period());
            self.check_at = if self.no_query { NEVER } else { next(now, broker.timing.check) };
            if now >= self.period_at {
                self.period_at = period;
            }
            let request = broker.version_query(id, holds.version, false);
            return self.ask(link, request, Kind::Query(holds.version), now);
        }
        let settles = match self.holds {
            Some(holds) if holds.revision < broker.topics.revision() => broker.topics.settles_at(),
            _ => NEVER,
        };
        Step::Wait(self.period_at.min(self.check_at).min(settles))
    }

    /// Whether a period is a whole registration.
    const fn repeats(&self, broker: &Announcement) -> bool {
        broker.timing.force || self.no_query
    }

    /// Whether the server's version must be learnt before it gets a table: a first part would spoil the whole
    /// for servers of 4.x.
    fn must_meet(&self, broker: &Announcement) -> bool {
        !self.met && broker.whole(self.compresses(broker), true).len() > 1
    }

    const fn compresses(&self, broker: &Announcement) -> bool {
        broker.form.compressed && !self.plain_only
    }

    /// Which registration is due. Servers of 4.x get whole tables only: they take a change from a broker that
    /// they have forgotten, and then the rest, which has the same version, never (A4).
    fn plan(&mut self, broker: &Announcement, now: Millis) -> Option<Work> {
        let (topics, form) = (&broker.topics, &broker.form);
        let target = Target {
            revision: topics.revision(),
            version: topics.version(),
            role_epoch: broker.role_epoch,
            topics: topics.len(),
        };
        let (compressed, old) = (self.compresses(broker), self.is_old_server());
        let held = self.holds.filter(|holds| holds.role_epoch == broker.role_epoch);
        let repeat = self.repeats(broker) && now >= self.period_at;
        let changed = |holds: Target| holds.revision < target.revision && now >= topics.settles_at();
        match held {
            Some(holds) if !repeat && !changed(holds) => None,
            Some(holds) if !repeat && !old && form.incremental && !topics.needs_whole(holds.revision) => {
                let left: VecDeque<Topic> =
                    topics.changed_since(holds.revision).take(SINGLES_MAX + 1).cloned().collect();
                let singly = form.single_topic && !self.tables_only;
                // 217 carries no mapping of a static topic.
                if singly && left.len() <= SINGLES_MAX && left.iter().all(|topic| topic.mapping.is_none()) {
                    let target = Target { version: holds.version, ..target };
                    return Some(Work::Singles { left, target });
                }
                let parts = broker.changes(holds.revision, compressed);
                Some(Work::Table { parts, next: 0, whole: false, compressed, target })
            }
            _ => {
                self.period_at = now.after(broker.timing.clamped_period());
                let parts = broker.whole(compressed, !old);
                Some(Work::Table { parts, next: 0, whole: true, compressed, target })
            }
        }
    }

    fn next_part(&self, broker: &Announcement, id: u64) -> Option<(Outgoing, Kind)> {
        match self.work.as_ref()? {
            Work::Table { parts, next, compressed, .. } => {
                let part = parts.get(*next)?;
                Some((broker.registration(id, part, *compressed), Kind::Table))
            }
            Work::Singles { left, .. } => Some((broker.single_topic(left.front()?), Kind::Single)),
        }
    }

    fn ask(&mut self, link: LinkId, request: Outgoing, kind: Kind, now: Millis) -> Step {
        let ticket = self.ticket();
        if kind == Kind::Table {
            // It may take effect whatever becomes of its answer.
            self.registered_id =
                request.ext.iter().find(|(key, _)| *key == "brokerId").and_then(|(_, id)| id.parse().ok());
        }
        let name = request.name();
        self.pending = Some(Pending { ticket, name, kind, sent_at: now, found_silent: false });
        Step::Send { link, ticket, request }
    }

    fn ticket(&mut self) -> Ticket {
        self.numbers += 1;
        Ticket(self.numbers)
    }

    // ---- leaving

    fn leave(&mut self, broker: &Announcement, now: Millis) -> Step {
        let since = *self.leaving_since.get_or_insert(now);
        if self.farewell.is_some() {
            return Step::Wait(NEVER);
        }
        let link = self.primary.as_ref().filter(|link| link.up).map(|link| link.id);
        let (Some(link), Some(id)) = (link, self.registered_id) else {
            return self.part(FarewellOutcome::NotRegistered);
        };
        match &self.pending {
            Some(pending) if pending.kind == Kind::Goodbye => return Step::Wait(NEVER),
            Some(_) if now < since.after(ANSWER_BEFORE_LEAVING) => {
                return Step::Wait(since.after(ANSWER_BEFORE_LEAVING));
            }
            _ => {}
        }
        self.work = None;
        self.ask(link, broker.goodbye(id), Kind::Goodbye, now)
    }

    /// Leaving is over.
    fn part(&mut self, outcome: FarewellOutcome) -> Step {
        self.farewell = Some(outcome);
        self.drop_links();
        self.closing.pop_front().map_or(Step::Wait(NEVER), Step::Close)
    }

    // ---- starting over

    /// The process stood still: servers may have dropped the broker, and what waits may be answered never.
    /// Whoever still has a connection gets everything at once; a connection that has ended meanwhile says so
    /// right after.
    fn thaw(&mut self, now: Millis) {
        tracing::info!(server = %self.server, "the process stood still, registering again");
        self.start_over(now);
    }

    fn start_over(&mut self, now: Millis) {
        (self.holds, self.work) = (None, None);
        if self.pending.as_ref().is_some_and(|pending| pending.kind != Kind::Goodbye) {
            self.pending = None;
        }
        if let Some(challenger) = self.challenger.take() {
            self.closing.push_back(challenger.id);
        }
        (self.retry_at, self.open_at, self.challenge_at) = (now, now, now);
        (self.attempt, self.challenges, self.refusals) = (0, 0, 0);
    }

    fn jitter(&mut self, span: Duration, from: f64, to: f64) -> Duration {
        span.mul_f64(self.rng.random_range(from..to))
    }

    fn fail(&mut self, error: LeaseError, now: Millis) {
        self.failures = self.failures.saturating_add(1);
        self.failure = Some((error, now));
    }
}

/// The next time of something that happens every `period`; never if that is zero.
fn next(now: Millis, period: Duration) -> Millis {
    if period.is_zero() { NEVER } else { now.after(period) }
}
