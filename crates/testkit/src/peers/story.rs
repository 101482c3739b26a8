//! What a test prints: the scenario, then what happened and when.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// A running scenario. Its lines go to standard error at once, past the capture of libtest: these tests take
/// minutes, and whoever waits sees where they are.
#[derive(Debug)]
pub struct Story {
    name: String,
    started: Instant,
}

impl Story {
    /// Prints the scenario's text and starts its clock.
    pub fn begin(name: &str, text: &str) -> Self {
        let story = Self { name: name.to_owned(), started: Instant::now() };
        for line in text.trim().lines() {
            story.print(&format!("    {}", line.trim()));
        }
        story
    }

    /// Prints one thing that happened.
    pub fn step(&self, what: impl fmt::Display) {
        for line in what.to_string().lines() {
            self.print(&format!("{:7.2}s {line}", self.started.elapsed().as_secs_f64()));
        }
    }

    /// Runs `work`, prints `what` and how long it took, and returns both its result and the time.
    pub fn timed<T>(&self, what: impl fmt::Display, work: impl FnOnce() -> T) -> (T, Duration) {
        let before = Instant::now();
        let result = work();
        let took = before.elapsed();
        self.step(format_args!("{what}: {} ms", took.as_millis()));
        (result, took)
    }

    fn print(&self, line: &str) {
        // Not eprintln!, which libtest captures. A closed standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "{:<16} {line}", self.name);
    }
}
