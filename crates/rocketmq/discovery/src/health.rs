//! What is known of one name server from its answers (spec B17 item 1).

use std::time::Duration;

use rand::{Rng, RngExt};
use waypost_net::clock::Millis;

/// Time before the first probe of a server that failed.
const QUARANTINE_FIRST: Duration = Duration::from_secs(1);

/// The longest time between two probes of a server that keeps failing. Short enough that clients are back on a
/// server that recovered well within one poll period.
const QUARANTINE_MAX: Duration = Duration::from_secs(10);

/// Latencies below this are all the same: the choice among healthy servers is left to chance, or a herd of
/// clients would run to the one that is a millisecond nearer.
const LATENCY_CLASS: Duration = Duration::from_millis(20);

/// One part in this many of each new latency enters the average.
const LATENCY_WEIGHT: u32 = 4;

/// The health of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Decaying average of the time to an answer; `None` before the first.
    pub latency: Option<Duration>,
    /// Failures since the last answer.
    pub failures: u32,
    /// When it last answered.
    pub last_answer: Option<Millis>,
    /// What it last did wrong, and when; kept when it is well again.
    pub last_fault: Option<(Fault, Millis)>,
    /// When it is to be probed, while it is in quarantine.
    pub probe_at: Option<Millis>,
}

/// What a server did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// There was no connection.
    Connect,
    /// No answer within the first-try budget, or at all.
    Silent,
    /// The connection ended while an answer was due.
    Closed,
    /// It answered that it cannot: busy, an internal error, stopping.
    Refused,
    /// What it sent cannot be read, or lacks the body.
    Nonsense,
}

impl Fault {
    /// A short fixed name for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Nonsense => "nonsense",
        }
    }
}

impl Health {
    /// Notes an answer that took `latency`. Ends the quarantine.
    pub fn answered(&mut self, latency: Duration, now: Millis) {
        let kept =
            |old: Duration| old.saturating_sub(old / LATENCY_WEIGHT).saturating_add(latency / LATENCY_WEIGHT);
        self.latency = Some(self.latency.map_or(latency, kept));
        self.failures = 0;
        self.probe_at = None;
        self.last_answer = Some(now);
    }

    /// Notes a failure. The server is in quarantine until it answers; it is probed after 1 s, then after twice
    /// as long each time up to 10 s, give or take a fifth.
    pub fn failed(&mut self, fault: Fault, now: Millis, random: &mut impl Rng) {
        self.last_fault = Some((fault, now));
        // Many calls that wait for one hung server are one failure.
        if self.probe_at.is_some_and(|at| now < at) {
            return;
        }
        let doubled = QUARANTINE_FIRST.saturating_mul(1 << self.failures.min(5));
        self.failures = self.failures.saturating_add(1);
        self.probe_at = Some(now.after(jittered(doubled.min(QUARANTINE_MAX), random)));
    }

    /// Whether it failed and has not answered since. It is asked only when nobody better is left.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.failures > 0
    }

    /// A rough rank, smaller is better: suspects last, then by powers of four of 20 ms.
    #[must_use]
    pub fn class(&self) -> (bool, u32) {
        let latency = self.latency.unwrap_or_default().as_millis();
        let mut class = 0;
        let mut bound = LATENCY_CLASS.as_millis();
        while latency > bound && class < 8 {
            class += 1;
            bound *= 4;
        }
        (self.is_suspect(), class)
    }
}

/// `span` give or take a fifth, so that many clients do not act at the same moment (spec B17 item 10).
pub(crate) fn jittered(span: Duration, random: &mut impl Rng) -> Duration {
    span.mul_f64(random.random_range(0.8..=1.2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn quarantine_doubles_up_to_ten_seconds_with_jitter() {
        let mut random = StdRng::seed_from_u64(1);
        let mut health = Health::default();
        let mut now = Millis::ZERO;
        for expected in [1, 2, 4, 8, 10, 10] {
            health.failed(Fault::Silent, now, &mut random);
            let wait = health.probe_at.expect("in quarantine").since(now);
            let expected = Duration::from_secs(expected);
            assert!(
                wait >= expected.mul_f64(0.79) && wait <= expected.mul_f64(1.21),
                "{wait:?} {expected:?}"
            );
            now = health.probe_at.expect("in quarantine");
        }
        health.answered(Duration::from_millis(1), now);
        assert!(!health.is_suspect());
        assert_eq!(health.probe_at, None);
    }

    #[test]
    fn failures_within_one_quarantine_count_once() {
        let mut random = StdRng::seed_from_u64(1);
        let mut health = Health::default();
        for _ in 0..100 {
            health.failed(Fault::Silent, Millis::ZERO, &mut random);
        }
        assert_eq!(health.failures, 1);
    }

    #[test]
    fn small_differences_of_latency_do_not_rank() {
        let health = |milliseconds| {
            let mut health = Health::default();
            health.answered(Duration::from_millis(milliseconds), Millis::ZERO);
            health
        };
        assert_eq!(health(0).class(), health(19).class());
        assert!(health(5).class() < health(100).class());
        assert!(health(100).class() < health(2_900).class());
    }

    #[test]
    fn the_average_follows() {
        let mut health = Health::default();
        health.answered(Duration::from_millis(400), Millis::ZERO);
        for _ in 0..40 {
            health.answered(Duration::from_millis(10), Millis::ZERO);
        }
        assert!(health.latency.expect("answered") < Duration::from_millis(15), "{health:?}");
    }
}
