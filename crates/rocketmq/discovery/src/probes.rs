//! When brokers are probed, and what the answers mean (B12.4, decision 25).
//!
//! A probe asks for the largest offset of a queue (request code 30, fields `topic` and `queueId`), which the broker
//! must work for; a stopped process would still accept a connection.
//!
//! | broker | probed |
//! | --- | --- |
//! | well, and heard of within [`FaultPolicy::idle_probe_after`] | no |
//! | well and silent | after that time, plus up to a fifth by chance |
//! | well, and the last probe failed | at once, and avoided if that fails, too |
//! | avoided | at once, then every [`FaultPolicy::avoided_probe_period`], plus up to a tenth by chance |

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt};
use waypost_net::clock::Millis;
use waypost_rocketmq_wire::code::response;

use crate::brokers::Brokers;
use crate::faults::{FaultPolicy, Faults, Record};

/// How often [`Faults::due_probes`] should be called: often enough that two probes of 2 s find a silent broker well
/// within 15 s, rarely enough to cost nothing.
pub const PROBE_TICK: Duration = Duration::from_millis(250);

/// The queue that is asked about; every topic with queues has it (B12.4).
const PROBED_QUEUE: i32 = 0;

/// So many failed probes in a row make a well broker avoided. One may be a pause for collecting garbage, or a
/// connection that was closed for being idle.
const PROBES_TO_AVOID: u32 = 2;

/// A probe whose result was not given back this long after its limit is forgotten.
const RESULT_GRACE: Duration = Duration::from_secs(1);

/// The record of a broker that no topic in use has is kept for so long: routes of a name server that has just
/// started lack brokers for a moment, and a stopped one must not look well when it is back in them.
const KEPT_AFTER_LEAVING: Duration = Duration::from_secs(60);

/// A request to send to a broker, whose result goes to [`Faults::probe_result`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The broker group.
    pub broker: Arc<str>,
    /// Where to send it, `host:port`: the master, or the member with the least id.
    pub address: String,
    /// The topic to ask about.
    pub topic: Arc<str>,
    /// The queue to ask about.
    pub queue_id: i32,
    /// How long the answer may take, connecting included.
    pub limit: Duration,
}

/// What became of a [`Probe`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// An answer came.
    Answered {
        /// Its code. Nearly every code proves that the broker works, as one without permission does; see
        /// [`proves_health`].
        code: i32,
        /// From sending to the answer.
        latency: Duration,
    },
    /// The connection was refused, reset or closed.
    Failed,
    /// No answer came within the limit.
    TimedOut,
}

/// What the code of a probe's answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// The broker works.
    Works,
    /// It is there; whether it works is open.
    Open,
    /// It is there and says that it will not work.
    Refuses,
}

/// What the answer code `code` proves. Busy (2) proves nothing: the threads for messages are others than those for
/// such questions. Service not available (14) and going away (1500) are refusals. All others took work, also
/// system error (1): brokers with access control give it to a question that is not signed.
#[must_use]
pub fn proves_health(code: i32) -> Proof {
    const SERVICE_NOT_AVAILABLE: i32 = 14;
    match code {
        response::SYSTEM_BUSY => Proof::Open,
        SERVICE_NOT_AVAILABLE | response::GO_AWAY => Proof::Refuses,
        _ => Proof::Works,
    }
}

/// When a broker is probed next.
#[derive(Debug)]
pub(crate) struct Schedule {
    next: Millis,
    /// A probe is under way.
    sent: Option<Millis>,
    /// Failed probes in a row.
    failed: u32,
    /// What the next rest is longer by.
    jitter: Duration,
    /// Whom the last probe asked.
    address: Option<Box<str>>,
    /// When it was last reported, or in the route of a topic in use.
    seen: Millis,
}

impl Schedule {
    pub(crate) fn new(now: Millis) -> Self {
        Self { next: now, sent: None, failed: 0, jitter: Duration::ZERO, address: None, seen: now }
    }

    pub(crate) fn probe_at(&mut self, time: Millis) {
        self.next = time;
    }

    pub(crate) fn rest(&mut self, duration: Duration, now: Millis) {
        self.next = now.after(duration.saturating_add(self.jitter));
    }

    pub(crate) fn heard(&mut self, now: Millis) {
        self.failed = 0;
        self.seen = now;
    }

    fn is_due(&self, limit: Duration, now: Millis) -> bool {
        let lapse = limit.saturating_add(RESULT_GRACE);
        now >= self.next && self.sent.is_none_or(|sent| now.since(sent) >= lapse)
    }
}

impl Faults {
    /// The probes that are due, to be called every [`PROBE_TICK`]: of brokers of topics in use only, each at most
    /// once at a time. Brokers seen for the first time start at a random point of the idle time.
    pub fn due_probes(&mut self, brokers: &Brokers, now: Millis, rng: &mut impl Rng) -> Vec<Probe> {
        let mut due = Vec::new();
        let mut changed = false;
        let idle = self.policy.idle_probe_after;
        for broker in brokers.names() {
            let Some((address, topic)) = brokers.probe_target(broker) else { continue };
            let record = self.records.entry(Arc::clone(broker)).or_insert_with(|| {
                let mut record = Record::new(now);
                record.schedule.probe_at(now.after(share_of(idle, 1, rng)));
                record
            });
            record.schedule.seen = now;
            let charge = record.charge();
            record.moved_to(address, now);
            changed |= record.charge() != charge;
            if !record.schedule.is_due(self.policy.probe_limit, now) {
                continue;
            }
            record.schedule.sent = Some(now);
            record.schedule.jitter = share_of(idle, 5, rng);
            let period = self.policy.avoided_probe_period;
            record.schedule.probe_at(now.after(period.saturating_add(share_of(period, 10, rng))));
            due.push(Probe {
                broker: Arc::clone(broker),
                address: address.to_owned(),
                topic: Arc::clone(topic),
                queue_id: PROBED_QUEUE,
                limit: self.policy.probe_limit,
            });
        }
        self.records.retain(|_, record| {
            let kept = now.since(record.schedule.seen) < KEPT_AFTER_LEAVING;
            changed |= !kept && record.charge().is_some();
            kept
        });
        if changed {
            self.count_change();
        }
        due
    }

    /// Notes the result of a probe of `broker`.
    pub fn probe_result(&mut self, broker: &str, outcome: ProbeOutcome, now: Millis) {
        let charge = self.charge(broker);
        let Some(record) = self.records.get_mut(broker) else { return };
        record.schedule.sent = None;
        match outcome {
            ProbeOutcome::Failed | ProbeOutcome::TimedOut => record.probe_failed(false, &self.policy, now),
            ProbeOutcome::Answered { code, latency } => match proves_health(code) {
                Proof::Works => record.probe_answered(latency, &self.policy, now),
                Proof::Refuses => record.probe_failed(true, &self.policy, now),
                Proof::Open => {
                    record.reachable = true;
                    record.heard(&self.policy, now);
                }
            },
        }
        self.note_change(broker, charge);
    }
}

impl Record {
    /// A master at another address is another broker, which gets its trial at once.
    fn moved_to(&mut self, address: &str, now: Millis) {
        match &self.schedule.address {
            Some(known) if **known == *address => return,
            Some(_) => {
                if let Some(illness) = &mut self.ill {
                    illness.forgive(now);
                    self.schedule.probe_at(now);
                    self.reachable = true;
                }
            }
            None => {}
        }
        self.schedule.address = Some(address.into());
    }

    fn probe_failed(&mut self, reachable: bool, policy: &FaultPolicy, now: Millis) {
        if let Some(illness) = &mut self.ill {
            illness.probed = true;
            illness.proven = false;
            illness.answered = 0;
            self.reachable = reachable;
            return;
        }
        self.schedule.failed = self.schedule.failed.saturating_add(1);
        if self.schedule.failed < PROBES_TO_AVOID {
            self.schedule.probe_at(now);
            return;
        }
        self.schedule.failed = 0;
        self.latency = policy.failure_latency;
        self.reachable = reachable;
        self.avoid(policy.avoided_for(policy.failure_latency), now);
        if let Some(illness) = &mut self.ill {
            illness.probed = true;
        }
    }

    /// One quick answer is good. Of answers that choices would not mind either, two in a row are; of slower ones
    /// three, or a broker on the other side of the world would never come back.
    fn probe_answered(&mut self, latency: Duration, policy: &FaultPolicy, now: Millis) {
        self.reachable = true;
        let Some(illness) = &mut self.ill else {
            self.latency = latency;
            self.heard(policy, now);
            return;
        };
        illness.probed = true;
        illness.answered = illness.answered.saturating_add(1);
        let needed = if latency <= policy.good_probe {
            1
        } else if latency < policy.slow_from() {
            2
        } else {
            3
        };
        if illness.answered < needed {
            return;
        }
        illness.proven = true;
    }
}

/// A random time of at most the `part`th part of `duration`.
fn share_of(duration: Duration, part: u64, rng: &mut impl Rng) -> Duration {
    let most = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).checked_div(part).unwrap_or_default();
    Duration::from_millis(rng.random_range(0..=most))
}
