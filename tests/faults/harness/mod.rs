//! What the tests share: the server under test, clients that send raw frames, and brokers made of frames.

mod beside;
mod broker;
mod child;
mod client;
mod files;
mod frames;
mod machine;
mod metrics;
mod random;
mod server;

pub(crate) use beside::Beside;
pub(crate) use broker::Broker;
pub(crate) use child::ChildBroker;
pub(crate) use client::{Answer, Client};
pub(crate) use files::files_allow;
pub(crate) use frames::{binary, envelope, json, route_query};
pub(crate) use machine::Machine;
pub(crate) use metrics::Metrics;
pub(crate) use random::Random;
pub(crate) use server::Server;
pub(crate) use waypost_testkit::faults::not_run;
pub(crate) use waypost_testkit::peers::{Scratch, Settings, Signal, poll_until};

use std::time::Duration;

/// Long enough for anything that should happen at once, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// How long one answer may take while the server is under attack: far below a client's own limit of three
/// seconds, far above what the two busy cores of a test machine cost.
pub(crate) const BEARABLE: Duration = Duration::from_millis(1_500);
