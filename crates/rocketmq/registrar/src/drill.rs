//! Faults on purpose, for drills with simulated brokers.

use std::time::Duration;

/// How a registrar misbehaves. The default is not at all.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Drill {
    /// Send nothing at all; connections stay open, as with a stopped process.
    pub silent: bool,
    /// Wait so long before each request.
    pub delay: Duration,
    /// The share of requests that are lost, between 0 and 1.
    pub loss: f64,
}
