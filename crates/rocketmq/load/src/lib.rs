//! Load for RocketMQ name servers: route queries in a closed loop, registrations of big brokers, and what they cost.
//!
//! `waypost bench` and the comparisons in `bench/` drive servers with it. It sends bytes that were prepared once and
//! looks at answers in place, so that one thread can drive whatever answers fastest. It refuses to guess: an answer
//! that is no success is counted as wrong, never skipped; and it knows nothing of TLS, whose cost would be its own.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use waypost_rocketmq_load::closed::{self, ClosedLoad};
//! use waypost_rocketmq_load::frame::{RouteQueries, VERSION_5_5_0};
//!
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let queries = Arc::new(RouteQueries::new(&["TopicTest".to_owned()], VERSION_5_5_0, 1));
//! let load = ClosedLoad {
//!     connections: 8,
//!     depth: 1,
//!     whole_batches: true,
//!     threads: 1,
//!     duration: Duration::from_secs(2),
//!     shortest_answer: 0,
//! };
//! let measured = closed::run(&load, "127.0.0.1:9876".parse()?, None, &queries)?;
//! println!("{} answers a second", measured.answers_per_second);
//! # Ok(()) }
//! ```
//!
//! Invariants:
//!
//! 1. A connection never has more queries in flight than the load says.
//! 2. A latency counts from before the first byte is sent until after the last one has come.

// A load generator is made of clock readings; nothing here runs inside a server.
#![allow(clippy::disallowed_methods)]

pub mod broker;
pub mod closed;
pub mod error;
pub mod frame;
pub mod latency;
pub mod link;
pub mod names;
pub mod poller;
pub mod process;
