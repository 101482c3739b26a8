//! How long something took.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::error::LoadError;

/// Times up to two minutes, to three digits.
const LONGEST_NS: u64 = 120_000_000_000;

/// Many latencies, in little memory.
#[derive(Clone, Debug)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

/// Latencies in microseconds; of so many parts of all, none was longer.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// The middle one.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { nanoseconds: bounds.expect("invariant: these bounds are allowed") }
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.nanoseconds.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of the other.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.nanoseconds.add(&other.nanoseconds);
    }

    /// What is to be told of them.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.nanoseconds.value_at_quantile(quantile) as f64 / 1_000.0;
        Percentiles {
            count: self.nanoseconds.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// Does something `rounds` times, one after the other, and takes the time of each. `tick` is told how many are done
/// and may stop it.
///
/// # Errors
///
/// The first error of `action`, or [`LoadError::Stopped`].
pub fn repeat(
    rounds: usize,
    mut action: impl FnMut(usize) -> Result<(), LoadError>,
    mut tick: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Latencies, LoadError> {
    let mut latencies = Latencies::default();
    for round in 0..rounds {
        let start = Instant::now();
        action(round)?;
        latencies.record(start.elapsed());
        if tick(round + 1).is_break() {
            return Err(LoadError::Stopped);
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let (mut low, mut high) = (Latencies::default(), Latencies::default());
        (1..=500).for_each(|us| low.record(Duration::from_micros(us)));
        (501..=1_000).for_each(|us| high.record(Duration::from_micros(us)));
        low.add(&high);
        let told = low.percentiles();
        assert_eq!(told.count, 1_000);
        for (found, exact) in [
            (told.p50_us, 500.0),
            (told.p90_us, 900.0),
            (told.p99_us, 990.0),
            (told.p999_us, 999.0),
            (told.max_us, 1_000.0),
        ] {
            assert!((found - exact).abs() <= exact / 500.0, "{told:?}");
        }
    }

    #[test]
    fn a_repetition_ends_at_an_error_or_when_it_is_told_to() {
        let go = |_| ControlFlow::Continue(());
        assert_eq!(repeat(3, |_| Ok(()), go).map(|all| all.percentiles().count).ok(), Some(3));
        let failed = repeat(3, |round| if round == 1 { Err(LoadError::Panicked) } else { Ok(()) }, go);
        assert!(matches!(failed, Err(LoadError::Panicked)));
        let stopped = repeat(3, |_| Ok(()), |done| if done == 2 { ControlFlow::Break(()) } else { go(done) });
        assert!(matches!(stopped, Err(LoadError::Stopped)));
    }
}
