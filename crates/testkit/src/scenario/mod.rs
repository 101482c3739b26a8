//! Plays scenario files to a NameServer and compares what two servers answered.
//!
//! A scenario is a text file, one step a line: requests over named connections, raw bytes, closes,
//! resets, waits. [`Scenario::parse`] reads it, [`play`] plays it to a [`Server`] and gives a
//! [`Trace`]: every answer in a canonical form, in which two servers that mean the same are equal.
//! [`compare`] puts two traces side by side and lets through only the differences that a
//! [`Differences`] file lists. The frames are written and read by code of this module alone, so that
//! a mistake of the server's own wire crate cannot hide itself. The format of the files is described
//! in `tests/differential/README.md`.
#![allow(clippy::disallowed_methods)] // a test runner waits for real servers on the real clock

mod compare;
mod connection;
mod differences;
mod frame;
mod json;
mod observe;
mod play;
mod request;
mod server;
mod step;
mod text;
mod trace;

pub use compare::{Comparison, compare};
pub use differences::{Difference, Differences};
pub use play::play;
pub use server::{JavaHost, JavaServer, Server, WaypostServer};
pub use step::Scenario;
pub use trace::{Observation, Trace};

/// Why a scenario could not be read, played or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// A line of a scenario file that does not follow the format.
    #[error("{scenario}:{line}: {reason}: `{text}`")]
    Syntax {
        /// The scenario's name.
        scenario: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
        /// The line itself.
        text: String,
    },
    /// A step whose expectation about the reference server was not met.
    #[error("{scenario}:{line}: expected {expected}, seen {seen}")]
    Expectation {
        /// The scenario's name.
        scenario: String,
        /// The line's number, from 1.
        line: usize,
        /// What the line asks for.
        expected: String,
        /// The last observation, in short.
        seen: String,
    },
    /// A server that could not be started or stopped.
    #[error("{server}: {reason}")]
    Server {
        /// Which server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// A server that ended by itself instead of starting.
    #[error("{server} did not start: {reason}")]
    Refused {
        /// Which server.
        server: String,
        /// The end of what it said.
        reason: String,
    },
    /// A recorded trace or a list of differences that cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
}
