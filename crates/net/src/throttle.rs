//! Keeps a warning that repeats from filling the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Millis;

/// Lets one occurrence in a period through and counts the others. Shared by reference.
#[derive(Debug)]
pub struct Throttle {
    period: Duration,
    /// When the next one may pass, in milliseconds.
    due: AtomicU64,
    withheld: AtomicU64,
}

impl Throttle {
    /// A throttle that lets the first occurrence through, then one every `period`.
    pub const fn new(period: Duration) -> Self {
        Self { period, due: AtomicU64::new(0), withheld: AtomicU64::new(0) }
    }

    /// Something occurred at `now`. If it may be told: how many were withheld since the last that was.
    pub fn pass(&self, now: Millis) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.after(self.period).get();
        let won = now.get() >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if won {
            return Some(self.withheld.swap(0, Ordering::Relaxed));
        }
        self.withheld.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_period_passes_and_tells_how_many_did_not() {
        let throttle = Throttle::new(Duration::from_secs(10));
        assert_eq!(throttle.pass(Millis::new(0)), Some(0));
        assert_eq!(throttle.pass(Millis::new(1)), None);
        assert_eq!(throttle.pass(Millis::new(9_999)), None);
        assert_eq!(throttle.pass(Millis::new(10_000)), Some(2));
        assert_eq!(throttle.pass(Millis::new(30_000)), Some(0));
    }
}
