//! How a simulated broker misbehaves, and when.

use std::fmt;
use std::time::Duration;

use crate::render::span;

/// A stretch of misbehaviour.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// When it begins, after the broker's start.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// What it is.
    pub kind: FaultKind,
}

/// A kind of misbehaviour.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FaultKind {
    /// Like a process that is stopped (SIGSTOP): nothing is sent to servers, clients get no answer, new connections are
    /// taken by the kernel and wait. All connections stay open.
    Pause,
    /// Nothing is sent to servers; clients are answered.
    Silence,
    /// Clients are answered later than they asked by this much.
    Slow(Duration),
    /// Unregisters, and registers again, in turn after each of this time.
    Flapping(Duration),
    /// This share, between 0 and 1, of the requests to servers and of the answers to clients is lost.
    Lossy(f64),
}

/// How a broker behaves at a moment. The default is well.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Conduct {
    /// Stands still.
    pub paused: bool,
    /// Sends nothing to servers.
    pub silent: bool,
    /// Is not registered.
    pub absent: bool,
    /// How late clients are answered.
    pub delay: Duration,
    /// The share that is lost.
    pub loss: f64,
}

impl Fault {
    /// Whether it lasts, so long after the broker's start.
    #[must_use]
    pub fn is_on(&self, elapsed: Duration) -> bool {
        elapsed >= self.at && elapsed < self.at.saturating_add(self.length)
    }
}

impl Conduct {
    /// The conduct of a broker with these faults, so long after its start. Of several at a time each acts; of two of a
    /// kind the worse.
    #[must_use]
    pub fn of(faults: &[Fault], elapsed: Duration) -> Self {
        let mut conduct = Self::default();
        for fault in faults.iter().filter(|fault| fault.is_on(elapsed)) {
            match fault.kind {
                FaultKind::Pause => conduct.paused = true,
                FaultKind::Silence => conduct.silent = true,
                FaultKind::Slow(by) => conduct.delay = conduct.delay.max(by),
                FaultKind::Flapping(every) => {
                    let turns = elapsed.saturating_sub(fault.at).as_nanos() / every.as_nanos().max(1);
                    conduct.absent |= turns.is_multiple_of(2);
                }
                FaultKind::Lossy(share) => conduct.loss = conduct.loss.max(share),
            }
        }
        conduct
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds =
            |duration: &Duration| span(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        match self {
            Self::Pause => formatter.write_str("stands still like a stopped process"),
            Self::Silence => formatter.write_str("sends nothing to name servers, but serves clients"),
            Self::Slow(by) => write!(formatter, "answers clients {} late", milliseconds(by)),
            Self::Flapping(every) => {
                write!(formatter, "unregisters and registers in turn, every {}", milliseconds(every))
            }
            Self::Lossy(share) => {
                write!(formatter, "loses {:.0} % of its requests and answers", share * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at: u64, length: u64, kind: FaultKind) -> Fault {
        Fault { at: Duration::from_secs(at), length: Duration::from_secs(length), kind }
    }

    fn at(milliseconds: u64, faults: &[Fault]) -> Conduct {
        Conduct::of(faults, Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_fault_begins_and_ends_at_its_time() {
        let faults = [fault(10, 5, FaultKind::Pause)];
        for (milliseconds, paused) in
            [(0, false), (9_999, false), (10_000, true), (14_999, true), (15_000, false)]
        {
            assert_eq!(at(milliseconds, &faults).paused, paused, "{milliseconds}");
        }
    }

    #[test]
    fn flapping_unregisters_first_and_ends_registered() {
        let faults = [fault(10, 5, FaultKind::Flapping(Duration::from_secs(2)))];
        let absent: Vec<bool> = (9..=16).map(|second| at(second * 1_000, &faults).absent).collect();
        assert_eq!(absent, [false, true, true, false, false, true, false, false]);
    }

    #[test]
    fn faults_at_the_same_time_all_act_and_the_worse_of_a_kind_wins() {
        let slow = |seconds| FaultKind::Slow(Duration::from_secs(seconds));
        let faults = [
            fault(0, 10, slow(3)),
            fault(0, 5, slow(1)),
            fault(0, 5, FaultKind::Lossy(0.2)),
            fault(0, 5, FaultKind::Lossy(0.5)),
            fault(1, 1, FaultKind::Silence),
        ];
        let expected =
            Conduct { delay: Duration::from_secs(3), loss: 0.5, silent: true, ..Conduct::default() };
        assert_eq!(at(1_500, &faults), expected);
        assert_eq!(at(6_000, &faults), Conduct { delay: Duration::from_secs(3), ..Conduct::default() });
    }
}
