//! What is known of each broker's health (B12).
//!
//! 1. A broker is **well** until an outcome says otherwise; brokers nobody has heard of are well.
//! 2. One transport error, one time-out or one answer that blames the broker, and it is **avoided**. So is a broker
//!    whose success was slow by the published [`Threshold`]s.
//! 3. It stays avoided until a probe finds it well, not until some time is over: the original comes back to a
//!    stopped broker every ten seconds, with every caller. Only while nobody probes does the time decide.
//! 4. Then it is on **trial**: one choice goes there, and what comes of it decides. A broker whose probes are quick but
//!    whose messages hang therefore costs one choice now and then. Failed trials and relapses double the
//!    wait before the next.
//!
//! When to probe, and what its answers mean, is in [`probes`](crate::probes).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_wire::code::response;

use crate::probes::Schedule;

/// The broker cannot serve at present, as while it starts or stops.
const SERVICE_NOT_AVAILABLE: i32 = 14;

/// A success that took at least `latency` makes its broker avoided for `avoided`, unless a probe is quicker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold {
    /// From this latency on.
    pub latency: Duration,
    /// For this long.
    pub avoided: Duration,
}

const fn threshold(latency_ms: u64, avoided_ms: u64) -> Threshold {
    Threshold { latency: Duration::from_millis(latency_ms), avoided: Duration::from_millis(avoided_ms) }
}

/// The thresholds of clients from 5.1.4 on, the default (B12.1).
pub const THRESHOLDS: [Threshold; 7] = [
    threshold(50, 0),
    threshold(100, 0),
    threshold(550, 2_000),
    threshold(1_800, 5_000),
    threshold(3_000, 6_000),
    threshold(5_000, 10_000),
    threshold(15_000, 30_000),
];

/// The thresholds of clients up to 5.1.3 (B12.1).
pub const OLD_THRESHOLDS: [Threshold; 7] = [
    threshold(50, 0),
    threshold(100, 0),
    threshold(550, 30_000),
    threshold(1_000, 60_000),
    threshold(2_000, 120_000),
    threshold(3_000, 180_000),
    threshold(15_000, 600_000),
];

/// How outcomes are judged. The defaults are the published ones where there are such.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPolicy {
    /// By ascending latency. Default: [`THRESHOLDS`].
    pub thresholds: Vec<Threshold>,
    /// The latency that a failure counts as. Default: 10 s, hence 10 s (B12.1); it matters only while nobody
    /// probes.
    pub failure_latency: Duration,
    /// A probe that is answered within this is good by itself. Default: 200 ms, the published `detectTimeout`.
    pub good_probe: Duration,
    /// How long a probe may take. Default: 2 s. Longer than any pause that a working broker makes often, and two in
    /// a row leave room within the 15 s in which a silent broker must be found.
    pub probe_limit: Duration,
    /// How often an avoided broker is probed. Default: 2 s, the published `detectInterval`.
    pub avoided_probe_period: Duration,
    /// A broker that nothing was heard of for so long is probed (decision 25). Default: 5 s; with two probes of 2 s a
    /// silent broker is known after 10 s, and a fleet of idle clients costs a broker little.
    pub idle_probe_after: Duration,
}

impl Default for FaultPolicy {
    fn default() -> Self {
        Self {
            thresholds: THRESHOLDS.to_vec(),
            failure_latency: Duration::from_secs(10),
            good_probe: Duration::from_millis(200),
            probe_limit: Duration::from_secs(2),
            avoided_probe_period: Duration::from_secs(2),
            idle_probe_after: Duration::from_secs(5),
        }
    }
}

impl FaultPolicy {
    /// How long a broker is avoided after an answer that took `latency` (B12.1): the entry of the largest threshold
    /// that is not above it.
    #[must_use]
    pub fn avoided_for(&self, latency: Duration) -> Duration {
        let reached = self.thresholds.iter().rev().find(|threshold| threshold.latency <= latency);
        reached.map_or(Duration::ZERO, |threshold| threshold.avoided)
    }

    /// The least latency that makes a broker avoided; no limit if no threshold does.
    #[must_use]
    pub fn slow_from(&self) -> Duration {
        let first = self.thresholds.iter().find(|threshold| !threshold.avoided.is_zero());
        first.map_or(Duration::MAX, |threshold| threshold.latency)
    }
}

/// What became of an attempt at a broker (B12.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The broker did it, in whatever store status.
    Success {
        /// From sending to the answer.
        latency: Duration,
    },
    /// The connection was refused, reset or closed.
    TransportError,
    /// No answer came within the limit of the attempt.
    TimedOut {
        /// The limit, from which follows when the attempt began.
        limit: Duration,
    },
    /// The broker answered with an error; see [`blames_broker`].
    BrokerError {
        /// The code of the answer.
        code: i32,
    },
    /// The attempt failed on this side, or was given up: says nothing about the broker.
    ClientError,
}

impl Outcome {
    /// Whether the broker failed the attempt. After such an outcome the topic's route may be out of date, so it
    /// should be asked for again at once.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Success { .. } | Self::ClientError)
    }
}

/// Whether an error code says that the broker, and not the request or its topic, is at fault: system error (1), busy
/// (2), service not available (14), going away (1500).
///
/// Others mean that the broker works. The original avoids it for all topics after any code, so that one topic
/// without permission takes the broker from all others.
#[must_use]
pub fn blames_broker(code: i32) -> bool {
    matches!(code, response::SYSTEM_ERROR | response::SYSTEM_BUSY | SERVICE_NOT_AVAILABLE | response::GO_AWAY)
}

/// What choices make of a broker at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It takes part.
    Well,
    /// It takes one choice, whose outcome decides.
    OnTrial,
    /// It is chosen only if there is no other.
    Avoided,
}

/// One broker's record, for people and metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerHealth {
    /// The broker group, or a slave's address.
    pub broker: Arc<str>,
    /// What choices make of it.
    pub standing: Standing,
    /// Whether the last sign was an answer, however bad.
    pub reachable: bool,
    /// The latency of the last answer, or what its failure counted as.
    pub latency: Duration,
    /// Since when it is well or not.
    pub since: Millis,
}

/// A trial whose outcome nobody reports is over after this: longer than the limits that callers set, or a slow
/// broker would be tried again while it still thinks about the first.
const TRIAL_LAPSE: Duration = Duration::from_secs(10);

/// The wait before the trial that follows a failed one, or a relapse; doubled each time.
const FIRST_TRIAL_WAIT: Duration = Duration::from_secs(2);

/// The longest wait between trials: the longest published avoidance (B12.1).
const LONGEST_TRIAL_WAIT: Duration = Duration::from_secs(30);

/// A broker that was well for this long and fails has no relapse but a new illness.
const RELAPSE_WITHIN: Duration = Duration::from_secs(30);

/// The record of one broker (B12.3).
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) ill: Option<Illness>,
    pub(crate) reachable: bool,
    pub(crate) latency: Duration,
    /// When it became well or ill.
    pub(crate) since: Millis,
    /// When it last became well again.
    recovered: Option<Millis>,
    /// How long the last relapse has to wait for its trial.
    trial_wait: Duration,
    pub(crate) schedule: Schedule,
}

/// What choices have to know of a broker that is not well. A broker without a charge may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Charge {
    /// Whether it answers, however badly.
    pub(crate) reachable: bool,
    /// From then on [`Faults::admit`] decides; until then the broker is avoided unless the charge changes.
    pub(crate) trial_due: Option<Millis>,
}

/// Why and until when a broker is avoided.
#[derive(Debug)]
pub(crate) struct Illness {
    /// The end of the avoidance if nobody probes. Never moved forward to an earlier time.
    until: Millis,
    /// No trial before this.
    trial_from: Millis,
    /// When a choice was let through to see.
    trial: Option<Millis>,
    /// Whether any probe came to an end since it is ill.
    pub(crate) probed: bool,
    /// Whether probes say that it is well.
    pub(crate) proven: bool,
    /// Answered probes in a row.
    pub(crate) answered: u32,
}

impl Illness {
    /// When a choice may be let through to see, if nothing else is heard of the broker until then.
    fn trial_due(&self) -> Option<Millis> {
        let cause = match (self.proven, self.probed) {
            (true, _) => Millis::ZERO,
            (false, false) => self.until,
            (false, true) => return None,
        };
        let lapsed = self.trial.map_or(Millis::ZERO, |begun| begun.after(TRIAL_LAPSE));
        Some(cause.max(self.trial_from).max(lapsed))
    }

    fn may_try(&self, now: Millis) -> bool {
        self.trial_due().is_some_and(|due| now >= due)
    }

    /// Whether a trial went by without a word about it.
    pub(crate) fn trial_lapsed(&self, now: Millis) -> bool {
        self.trial.is_some_and(|begun| now.since(begun) >= TRIAL_LAPSE)
    }

    /// Another broker has taken over the name: what was held against the old one is void.
    pub(crate) fn forgive(&mut self, now: Millis) {
        self.proven = true;
        self.trial_from = now;
        self.trial = None;
    }
}

impl Record {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            ill: None,
            reachable: true,
            latency: Duration::ZERO,
            since: now,
            recovered: None,
            trial_wait: Duration::ZERO,
            schedule: Schedule::new(now),
        }
    }

    /// What is held against the broker.
    pub(crate) fn charge(&self) -> Option<Charge> {
        let illness = self.ill.as_ref()?;
        Some(Charge { reachable: self.reachable, trial_due: illness.trial_due() })
    }

    fn standing(&self, now: Millis) -> Standing {
        match &self.ill {
            None => Standing::Well,
            Some(illness) if illness.may_try(now) => Standing::OnTrial,
            Some(_) => Standing::Avoided,
        }
    }

    pub(crate) fn recover(&mut self, now: Millis) {
        if self.ill.take().is_some() {
            self.since = now;
            self.recovered = Some(now);
        }
        self.reachable = true;
    }

    fn succeeded(&mut self, latency: Duration, policy: &FaultPolicy, now: Millis) {
        let began = before(now, latency);
        let avoided = policy.avoided_for(latency);
        if !avoided.is_zero() && self.is_stale(began) {
            return;
        }
        self.latency = latency;
        if !avoided.is_zero() {
            self.reachable = true;
            self.avoid(avoided, now);
        } else if began >= self.since {
            self.recover(now);
        }
        self.heard(policy, now);
    }

    fn failed(&mut self, reachable: bool, took: Duration, policy: &FaultPolicy, now: Millis) {
        if self.is_stale(before(now, took)) {
            return;
        }
        self.latency = policy.failure_latency;
        self.reachable = reachable;
        self.avoid(policy.avoided_for(policy.failure_latency), now);
        self.heard(policy, now);
    }

    /// A well broker that was heard of needs no probe for a while; an ill one keeps its schedule.
    pub(crate) fn heard(&mut self, policy: &FaultPolicy, now: Millis) {
        self.schedule.heard(now);
        if self.ill.is_none() {
            self.schedule.rest(policy.idle_probe_after, now);
        }
    }

    /// Whether something newer is known than an attempt that began then can tell: the broker has become well since, or
    /// it is on a trial that began later.
    fn is_stale(&self, began: Millis) -> bool {
        let known = self.ill.as_ref().map_or(self.recovered, |illness| illness.trial);
        known.is_some_and(|known| began < known)
    }

    /// Avoids the broker. A trial that is under way has failed.
    pub(crate) fn avoid(&mut self, duration: Duration, now: Millis) {
        let mut until = now.after(duration);
        let relapse = match &mut self.ill {
            Some(illness) => {
                until = illness.until.max(until);
                illness.until = until;
                if illness.trial.is_none() {
                    return;
                }
                true
            }
            None => self.recovered.is_some_and(|recovered| now.since(recovered) < RELAPSE_WITHIN),
        };
        self.trial_wait = match self.trial_wait {
            _ if !relapse => Duration::ZERO,
            Duration::ZERO => FIRST_TRIAL_WAIT,
            wait => wait.saturating_mul(2).min(LONGEST_TRIAL_WAIT),
        };
        if self.ill.is_none() {
            self.since = now;
        }
        self.ill = Some(Illness {
            until,
            trial_from: now.after(self.trial_wait),
            trial: None,
            probed: false,
            proven: false,
            answered: 0,
        });
        self.schedule.probe_at(now);
    }
}

/// The health of all brokers that a client deals with. One for the client: what one topic's traffic finds out
/// serves the others.
///
/// Callers report what became of each attempt by [`Faults::report`], successes too: without them slow brokers are not
/// seen, and brokers that were ill come back later. Whoever has a connection to the brokers runs
/// [`Faults::due_probes`].
#[derive(Debug, Default)]
pub struct Faults {
    pub(crate) policy: FaultPolicy,
    pub(crate) records: BTreeMap<Arc<str>, Record>,
    /// Whether callers report successes. If not, a trial without a failure is one.
    pub(crate) successes_reported: bool,
    changes: Arc<AtomicU64>,
}

impl Faults {
    /// No records, and outcomes judged by `policy`.
    #[must_use]
    pub fn new(policy: FaultPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// How outcomes are judged.
    #[must_use]
    pub fn policy(&self) -> &FaultPolicy {
        &self.policy
    }

    /// A number that is another whenever what is held against any broker has changed. Who chooses often keeps
    /// each broker's [`Charge`] and looks at this alone.
    pub(crate) fn changes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.changes)
    }

    /// Counts a change if `charge`, which the record had a moment ago, is outdated.
    pub(crate) fn note_change(&self, broker: &str, charge: Option<Charge>) {
        if self.charge(broker) != charge {
            self.count_change();
        }
    }

    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// What is held against the broker at present.
    pub(crate) fn charge(&self, broker: &str) -> Option<Charge> {
        self.records.get(broker).and_then(Record::charge)
    }

    /// Notes the outcome of an attempt at `broker` (a broker group, or the address of a slave) that came to its end
    /// now. A failure that began before the broker became well again changes nothing, nor does a success that
    /// began before it became ill.
    pub fn report(&mut self, broker: &str, outcome: Outcome, now: Millis) {
        if outcome == Outcome::ClientError {
            return;
        }
        if !self.records.contains_key(broker) {
            self.records.insert(broker.into(), Record::new(now));
        }
        let charge = self.charge(broker);
        let Some(record) = self.records.get_mut(broker) else { return };
        self.successes_reported |= matches!(outcome, Outcome::Success { .. });
        match outcome {
            Outcome::Success { latency } => record.succeeded(latency, &self.policy, now),
            Outcome::BrokerError { code } if blames_broker(code) => {
                record.failed(true, Duration::ZERO, &self.policy, now);
            }
            Outcome::BrokerError { .. } => record.heard(&self.policy, now),
            Outcome::TransportError => record.failed(false, Duration::ZERO, &self.policy, now),
            Outcome::TimedOut { limit } => record.failed(false, limit, &self.policy, now),
            Outcome::ClientError => {}
        }
        self.note_change(broker, charge);
    }

    /// What choices make of the broker.
    #[must_use]
    pub fn standing(&self, broker: &str, now: Millis) -> Standing {
        self.records.get(broker).map_or(Standing::Well, |record| record.standing(now))
    }

    /// Whether a choice may fall on the broker: it is well, or due for a trial.
    #[must_use]
    pub fn is_available(&self, broker: &str, now: Millis) -> bool {
        self.standing(broker, now) != Standing::Avoided
    }

    /// Whether the last sign of the broker was an answer, or there was none yet.
    #[must_use]
    pub fn is_reachable(&self, broker: &str) -> bool {
        self.records.get(broker).is_none_or(|record| record.reachable)
    }

    /// [`Faults::is_available`] for a choice that is about to fall on the broker: one that is due for a trial is not
    /// available again until the trial's outcome is reported, or 10 s have passed.
    pub fn admit(&mut self, broker: &str, now: Millis) -> bool {
        let charge = self.charge(broker);
        let admitted = self.admit_now(broker, now);
        self.note_change(broker, charge);
        admitted
    }

    fn admit_now(&mut self, broker: &str, now: Millis) -> bool {
        let silent = !self.successes_reported;
        let Some(record) = self.records.get_mut(broker) else { return true };
        match &mut record.ill {
            None => true,
            Some(illness) if silent && illness.proven && illness.trial_lapsed(now) => {
                record.recover(now);
                true
            }
            Some(illness) if illness.may_try(now) => {
                illness.trial = Some(now);
                true
            }
            Some(_) => false,
        }
    }

    /// All records, by broker.
    pub fn health(&self, now: Millis) -> impl Iterator<Item = BrokerHealth> + '_ {
        self.records.iter().map(move |(broker, record)| BrokerHealth {
            broker: Arc::clone(broker),
            standing: record.standing(now),
            reachable: record.reachable,
            latency: record.latency,
            since: record.since,
        })
    }
}

/// The point `duration` before `now`, not before the start of time.
fn before(now: Millis, duration: Duration) -> Millis {
    Millis::new(now.get().saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests;
