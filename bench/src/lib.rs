//! Measures a RocketMQ name server from outside: CPU per route query, registrations, memory, latency
//! under a storm of registrations, time to the first answer.
//!
//! Everything is measured beside a *floor*: one epoll thread that answers every frame with canned bytes.
//! What a name server costs above the floor is its own work; what both pay is the kernel's. The absolute
//! figures belong to one machine, the ratios travel.
//!
//! The generator sends bytes that were prepared once and looks at answers in place, so that it can drive
//! the floor with one thread. It refuses to guess: an answer that it did not expect is counted as wrong
//! and shown, never skipped.
//!
//! `bench/README.md` lists the programs and their output.

// A benchmark is made of clock readings; nothing here runs inside the server.
#![allow(clippy::disallowed_methods)]

mod command;
mod fleet;
mod floor;
mod open;
mod route;
mod server;

mod table;
mod truth;

use waypost_rocketmq_load::{broker, closed, frame, link, names, poller, process};

pub use command::run;
