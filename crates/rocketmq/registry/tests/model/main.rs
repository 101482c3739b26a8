//! The table against a naive model of the specification, over random histories.
//!
//! `WAYPOST_MODEL_HISTORIES` says how many histories are played (default 2,000), and
//! `WAYPOST_MODEL_SEED` with which seed they begin (default 0). A history that fails is made as
//! short as possible and printed; add its seed to `seeds.txt`.

mod generator;
mod model;
mod replay;
mod shrink;
mod step;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use replay::{Tally, replay};

/// Steps of a history.
const STEPS: usize = 60;

#[test]
fn kept_seeds_agree_with_the_model() {
    let seeds =
        include_str!("seeds.txt").lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    for seed in seeds.filter(|seed| !seed.is_empty()) {
        play(seed.parse().unwrap_or_else(|_| panic!("seeds.txt: {seed:?} is not a seed")));
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let histories = setting("WAYPOST_MODEL_HISTORIES").unwrap_or(2_000);
    let first = setting("WAYPOST_MODEL_SEED").unwrap_or(0);
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let tally = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| play_some(first, histories, &next))).collect();
        let mut tally = Tally::default();
        for worker in workers {
            match worker.join() {
                Ok(some) => tally.add(&some),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        tally
    });
    println!("{histories} histories of {STEPS} steps: {tally:?}");

    // The histories are worth something only if they come to the interesting places.
    let histories = usize::try_from(histories).expect("a number of histories");
    for (what, times, at_least) in [
        ("accepted registrations", tally.registered, histories * 10),
        ("bodies known by their digest", tally.digests_known, histories),
        ("refusals", tally.refused, histories / 4),
        ("larger state versions", tally.superseded, histories / 20),
        ("removals", tally.removed, histories * 2),
        ("changed routes", tally.routes_changed, histories * 20),
        ("notices of a new smallest id", tally.notices, histories / 20),
    ] {
        assert!(times >= at_least, "only {times} {what} in {histories} histories, not {at_least}");
    }
}

fn play_some(first: u64, histories: u64, next: &AtomicU64) -> Tally {
    let mut tally = Tally::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= histories {
            return tally;
        }
        tally.add(&play(first.wrapping_add(number)));
    }
}

fn play(seed: u64) -> Tally {
    let history = generator::history(seed, STEPS);
    match replay(&history) {
        Ok(tally) => tally,
        Err(failure) => {
            let (short, failure) = shrink::shrink(history, failure);
            panic!("seed {seed}, step {}: {}\n{short}", failure.step, failure.what);
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value:?} is not a number")))
}
