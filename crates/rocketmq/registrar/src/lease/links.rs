//! Connections of a lease: the one in use, the one that challenges it, and those that were given up.

use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::error::CallError;

use super::{Kind, Lease, LinkId, SILENT_AFTER, Step, Ticket};
use crate::announcement::Announcement;
use crate::error::LeaseError;

/// How long a connection may take to open. Short, because a lost SYN is repeated by the system after a second
/// only, and a server that comes back should be found within one.
const OPEN_LIMIT: Duration = Duration::from_millis(900);
/// Every fourth attempt is for servers that are far away or slow to encrypt.
const PATIENT_OPEN_LIMIT: Duration = Duration::from_secs(2);
const PATIENT_EVERY: u32 = 4;
/// Pauses between attempts to open, with a fifth of jitter.
const OPEN_PAUSE_MIN: Duration = Duration::from_millis(50);
const OPEN_PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long a challenger waits for its answer, at first and at most: each that a hung server has accepted
/// waits in its queue, so they must become rare.
const CHALLENGE_MIN: Duration = Duration::from_secs(3);
const CHALLENGE_MAX: Duration = Duration::from_secs(30);
/// How long a connection that was given up is kept for the answer to a registration. The system gives up
/// sending before that.
const RETIRED_KEPT: Duration = Duration::from_secs(60);

/// The connection in use.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) up: bool,
}

/// A second connection, opened because the first is silent.
#[derive(Debug)]
pub(super) struct Challenger {
    pub(super) id: LinkId,
    pub(super) up: bool,
    pub(super) ticket: Option<Ticket>,
    until: Millis,
}

/// A connection that was given up but not closed yet.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) id: LinkId,
    /// The registration that waits on it.
    pub(super) awaits: Option<Ticket>,
    since: Millis,
}

impl Lease {
    /// A connection is there.
    pub(crate) fn opened(&mut self, link: LinkId, now: Millis) {
        let challenge = (CHALLENGE_MIN * 2_u32.saturating_pow(self.challenges.min(8))).min(CHALLENGE_MAX);
        if let Some(primary) = self.primary.as_mut().filter(|primary| primary.id == link) {
            primary.up = true;
            self.begin_link();
        } else if let Some(challenger) = self.challenger.as_mut().filter(|challenger| challenger.id == link) {
            challenger.up = true;
            challenger.until = now.after(challenge);
        } else {
            self.closing.push_back(link);
        }
    }

    /// A connection could not be opened.
    pub(crate) fn open_failed(&mut self, link: LinkId, error: Arc<CallError>, now: Millis) {
        if self.primary.as_ref().is_some_and(|primary| primary.id == link) {
            self.primary = None;
            self.fail(LeaseError::Connection(error), now);
            self.open_later(now);
        } else if self.challenger.as_ref().is_some_and(|challenger| challenger.id == link) {
            self.challenger = None;
            self.challenge_later(now);
        }
    }

    /// A connection has ended, by the other side or the network.
    pub(crate) fn closed(&mut self, link: LinkId, now: Millis) {
        if self.primary.as_ref().is_some_and(|primary| primary.id == link) {
            self.lose_primary(LeaseError::Closed { server: self.server.clone() }, now);
        } else if self.challenger.as_ref().is_some_and(|challenger| challenger.id == link) {
            self.challenger = None;
            self.challenge_later(now);
        } else if let Some(index) = self.retired.iter().position(|retired| retired.id == link)
            && self.retired.swap_remove(index).awaits.is_some()
        {
            // Its registration may have been the last one that the server read.
            self.holds = None;
        }
    }

    /// A request got no answer because its connection failed.
    pub(crate) fn call_failed(&mut self, ticket: Ticket, error: Arc<CallError>, now: Millis) {
        if self.pending.as_ref().is_some_and(|pending| pending.ticket == ticket)
            && let Some(primary) = &self.primary
        {
            // Most failures have closed the connection already; the others leave it of no use.
            self.closing.push_back(primary.id);
            self.lose_primary(LeaseError::Connection(error), now);
        }
    }

    fn lose_primary(&mut self, error: LeaseError, now: Millis) {
        self.fail(error, now);
        // A server removes a broker when its connection ends (decision 5).
        (self.pending, self.work, self.holds, self.registered_id) = (None, None, None, None);
        self.primary = None;
        match self.challenger.take() {
            Some(challenger) if challenger.up => {
                self.primary = Some(Link { id: challenger.id, up: true });
                self.begin_link();
            }
            challenger => self.closing.extend(challenger.map(|challenger| challenger.id)),
        }
        if self.attempt == 0 {
            self.attempt = 1;
            self.open_at = now;
        } else {
            self.open_later(now);
        }
    }

    /// The connection in use is new: nothing is known of what the server holds.
    pub(super) fn begin_link(&mut self) {
        (self.work, self.holds, self.fresh_link) = (None, None, true);
        self.met = false;
        self.retry_at = Millis::ZERO;
    }

    fn open_later(&mut self, now: Millis) {
        let growth = 2_u32.saturating_pow(self.attempt.min(8));
        let pause = (OPEN_PAUSE_MIN * growth).min(OPEN_PAUSE_MAX);
        self.attempt = self.attempt.saturating_add(1);
        self.open_at = now.after(self.jitter(pause, 0.8, 1.2));
    }

    pub(super) fn open(&mut self) -> Step {
        let link = self.link();
        self.primary = Some(Link { id: link, up: false });
        Step::Open { link, limit: open_limit(self.attempt) }
    }

    fn link(&mut self) -> LinkId {
        self.numbers += 1;
        LinkId(self.numbers)
    }

    // ---- challenging a silent connection

    /// What to do while an answer is waited for.
    pub(super) fn wait_for_answer(&mut self, broker: &Announcement, id: u64, now: Millis) -> Step {
        let Some(pending) = &mut self.pending else { return Step::Wait(now) };
        let silent_at = pending.sent_at.after(SILENT_AFTER);
        if now < silent_at {
            return Step::Wait(silent_at);
        }
        if !pending.found_silent {
            pending.found_silent = true;
            let request = pending.name;
            let error = LeaseError::Silent { server: self.server.clone(), request, waited: SILENT_AFTER };
            tracing::warn!(server = %self.server, request, "a name server does not answer");
            self.fail(error, now);
        }
        let Some(challenger) = &self.challenger else {
            return if now < self.challenge_at { Step::Wait(self.challenge_at) } else { self.challenge(now) };
        };
        let link = challenger.id;
        if !challenger.up {
            return Step::Wait(super::NEVER);
        }
        if challenger.ticket.is_none() {
            let ticket = self.ticket();
            if let Some(challenger) = &mut self.challenger {
                challenger.ticket = Some(ticket);
            }
            let version = self.holds.map_or_else(|| broker.topics.version(), |holds| holds.version);
            return Step::Send { link, ticket, request: broker.version_query(id, version, false) };
        }
        if now < challenger.until {
            return Step::Wait(challenger.until);
        }
        self.challenger = None;
        self.challenges = self.challenges.saturating_add(1);
        self.challenge_later(now);
        Step::Close(link)
    }

    fn challenge(&mut self, now: Millis) -> Step {
        let link = self.link();
        let limit = open_limit(self.challenges);
        self.challenger = Some(Challenger { id: link, up: false, ticket: None, until: now.after(limit) });
        Step::Open { link, limit }
    }

    fn challenge_later(&mut self, now: Millis) {
        self.challenge_at = now.after(self.jitter(OPEN_PAUSE_MAX, 0.8, 1.2));
    }

    /// The challenger was answered before the connection in use: it takes over. What it said does not matter,
    /// the server gets everything over it.
    pub(super) fn promote_challenger(&mut self, now: Millis) {
        let Some(challenger) = self.challenger.take() else { return };
        let awaits =
            self.pending.take().filter(|pending| pending.kind == Kind::Table).map(|pending| pending.ticket);
        if let Some(old) = self.primary.replace(Link { id: challenger.id, up: true }) {
            tracing::info!(server = %self.server, "a second connection is answered, the first one is given up");
            self.retired.push(Retired { id: old.id, awaits, since: now });
        }
        self.challenges = 0;
        self.begin_link();
        self.met = true;
    }

    /// The next connection that may be closed now.
    pub(super) fn retire_next(&mut self, now: Millis) -> Option<LinkId> {
        let replaced = self.holds.is_some();
        let over = |retired: &Retired| {
            (retired.awaits.is_none() && replaced) || now.since(retired.since) >= RETIRED_KEPT
        };
        let index = self.retired.iter().position(over)?;
        Some(self.retired.swap_remove(index).id)
    }

    /// Gives up all connections at once.
    pub(super) fn drop_links(&mut self) {
        self.closing.extend(self.primary.take().map(|link| link.id));
        self.closing.extend(self.challenger.take().map(|challenger| challenger.id));
        self.closing.extend(self.retired.drain(..).map(|retired| retired.id));
        (self.pending, self.work, self.holds, self.registered_id) = (None, None, None, None);
    }
}

const fn open_limit(attempt: u32) -> Duration {
    if attempt % PATIENT_EVERY == PATIENT_EVERY - 1 { PATIENT_OPEN_LIMIT } else { OPEN_LIMIT }
}
