//! What answers mean.

use std::collections::BTreeMap;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::body::{BodyLimits, DataVersion, KvTable};
use waypost_rocketmq_wire::code::response;

use super::{
    FIRST_CHECK, Kind, Lease, MASTERLESS_PERIOD, NEVER, REFUSED_MAX, REFUSED_MIN, Target, Ticket, Work, next,
};
use crate::announcement::Announcement;
use crate::error::LeaseError;
use crate::identity::Role;
use crate::master::Master;
use crate::state::FarewellOutcome;

impl Lease {
    /// A request was answered.
    pub(crate) fn answered(&mut self, ticket: Ticket, answer: &Answer, broker: &Announcement, now: Millis) {
        self.answered_at = Some(now);
        self.server_version = Some(answer.version);
        if self.challenger.as_ref().is_some_and(|challenger| challenger.ticket == Some(ticket)) {
            return self.promote_challenger(now);
        }
        if let Some(retired) = self.retired.iter_mut().find(|retired| retired.awaits == Some(ticket)) {
            // The server has just bound the broker to the old connection again.
            retired.awaits = None;
            (self.holds, self.work) = (None, None);
            return;
        }
        let Some(pending) = self.pending.take_if(|pending| pending.ticket == ticket) else { return };
        if let Some(challenger) = self.challenger.take() {
            self.closing.push_back(challenger.id);
        }
        self.challenges = 0;
        self.met = true;
        match pending.kind {
            Kind::Table => self.table_answered(pending.name, answer, broker, now),
            Kind::Single => self.single_answered(pending.name, answer, broker, now),
            Kind::Query(version) => self.query_answered(version, pending.name, answer, now),
            Kind::Goodbye => self.goodbye_answered(answer),
        }
    }

    fn table_answered(&mut self, name: &'static str, answer: &Answer, broker: &Announcement, now: Millis) {
        if !answer.is_success() {
            return self.table_refused(name, answer, now);
        }
        self.hear(answer, broker);
        let Some(Work::Table { parts, next, whole, target, .. }) = &mut self.work else { return };
        *next += 1;
        if *next >= parts.len() {
            let (target, whole) = (*target, *whole);
            self.accept(target, whole, broker, now);
        }
    }

    fn table_refused(&mut self, name: &'static str, answer: &Answer, now: Millis) {
        let work = self.work.take();
        self.holds = None;
        match work {
            Some(Work::Table { compressed: true, .. }) => {
                // A server that cannot read it takes plain JSON; one that refuses for another reason says it
                // again.
                self.plain_only = true;
                self.note_refusal(name, answer, std::time::Duration::ZERO, now);
            }
            // The server does not know this broker any more: it gets everything, at once.
            Some(Work::Table { whole: false, .. }) => {
                self.note_refusal(name, answer, std::time::Duration::ZERO, now)
            }
            _ => self.back_off(name, answer, now),
        }
    }

    fn back_off(&mut self, name: &'static str, answer: &Answer, now: Millis) {
        let pause = (REFUSED_MIN * 2_u32.saturating_pow(self.refusals.min(8))).min(REFUSED_MAX);
        let pause = self.jitter(pause, 0.8, 1.2).clamp(REFUSED_MIN, REFUSED_MAX);
        self.refusals = self.refusals.saturating_add(1);
        self.retry_at = now.after(pause);
        self.note_refusal(name, answer, pause, now);
    }

    fn note_refusal(
        &mut self,
        request: &'static str,
        answer: &Answer,
        again: std::time::Duration,
        now: Millis,
    ) {
        let (code, remark) = (answer.code, answer.remark.clone().unwrap_or_default());
        tracing::warn!(server = %self.server, request, code, error = remark, "a name server refused");
        self.fail(LeaseError::Refused { server: self.server.clone(), request, code, remark, again }, now);
    }

    fn single_answered(&mut self, name: &'static str, answer: &Answer, broker: &Announcement, now: Millis) {
        if !answer.is_success() {
            // The version of the server stays behind, so nothing less than everything helps.
            self.tables_only |= answer.code == response::REQUEST_CODE_NOT_SUPPORTED;
            (self.work, self.holds) = (None, None);
            return self.note_refusal(name, answer, std::time::Duration::ZERO, now);
        }
        let Some(Work::Singles { left, target }) = &mut self.work else { return };
        left.pop_front();
        if left.is_empty() {
            let target = *target;
            self.accept(target, false, broker, now);
        }
    }

    fn query_answered(&mut self, asked: DataVersion, name: &'static str, answer: &Answer, now: Millis) {
        if answer.is_success() {
            if self.holds.is_some() && differs(asked, answer) {
                tracing::info!(server = %self.server, "a name server has lost the registration or has another one");
                self.holds = None;
            }
        } else if answer.code == response::REQUEST_CODE_NOT_SUPPORTED {
            self.no_query = true;
            self.check_at = NEVER;
        } else {
            // Not a vote (part C 6); the period goes on.
            self.note_refusal(name, answer, std::time::Duration::ZERO, now);
        }
    }

    fn goodbye_answered(&mut self, answer: &Answer) {
        (self.holds, self.registered_id) = (None, None);
        if self.leaving_since.is_none() {
            // The broker has a role again; it registers anew.
            return;
        }
        let outcome = if answer.is_success() {
            FarewellOutcome::Unregistered
        } else {
            let remark = answer.remark.clone().unwrap_or_default();
            FarewellOutcome::Refused { code: answer.code, remark }
        };
        self.farewell = Some(outcome);
        self.drop_links();
    }

    fn accept(&mut self, target: Target, whole: bool, broker: &Announcement, now: Millis) {
        (self.work, self.holds) = (None, Some(target));
        self.accepted = Some((target, now));
        (self.attempt, self.refusals, self.failures) = (0, 0, 0);
        if !whole {
            return;
        }
        self.check_at = if self.no_query { NEVER } else { next(now, broker.timing.check) };
        if std::mem::take(&mut self.fresh_link) {
            let delay = broker.timing.first_delay.min(broker.timing.clamped_period());
            self.period_at = now.after(self.jitter(delay, 0.5, 1.0));
            if self.check_at != NEVER {
                self.check_at = self.check_at.min(now.after(FIRST_CHECK));
            }
        }
        if matches!(broker.role, Role::Slave(_)) && self.master.is_none() {
            self.period_at = self.period_at.min(now.after(MASTERLESS_PERIOD));
        }
    }

    /// The master and the order configuration (part C 8).
    fn hear(&mut self, answer: &Answer, broker: &Announcement) {
        if matches!(broker.role, Role::Slave(_)) {
            let field = |name| answer.field(name).filter(|text| !text.is_empty()).map(str::to_owned);
            self.master =
                field("masterAddr").map(|address| Master { address, ha_address: field("haServerAddr") });
            self.news.master = Some(self.master.clone());
        } else if self.master.take().is_some() {
            self.news.master = Some(None);
        }
        if !answer.body.is_empty() {
            match KvTable::decode(&answer.body, &BodyLimits::default()) {
                Ok(KvTable { table }) => self.news.orders = Some(table),
                Err(error) => {
                    tracing::warn!(server = %self.server, %error, "order configuration is unreadable")
                }
            }
        } else {
            self.news.orders = Some(BTreeMap::new());
        }
    }
}

/// Whether the server has another version than it was asked about (part C 6). Servers of 4.x keep no
/// `stateVersion`.
fn differs(asked: DataVersion, answer: &Answer) -> bool {
    if !answer.field("changed").is_some_and(|changed| changed.eq_ignore_ascii_case("false")) {
        return true;
    }
    if answer.body.is_empty() {
        return false;
    }
    DataVersion::decode(&answer.body, &BodyLimits::default())
        .is_ok_and(|version| (version.counter, version.timestamp) != (asked.counter, asked.timestamp))
}
