//! Foreign software as peers: Java name servers, brokers and mqadmin of RocketMQ 5.5.0 and 4.9.7, and the Java,
//! Go and C++ clients.
//!
//! [`Workshop`] fetches and builds what is needed, once a machine, from the package registries through Maven,
//! Go and pip. Everything started here runs in its own home folder, is killed by its process id on drop, and
//! shows the end of its log when the test fails.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]

mod admin;
mod client;
mod java;
mod name_server;
mod ports;
mod probe;
mod process;
mod settings;
mod steady;
mod story;
mod workshop;

pub use admin::{Mqadmin, Output};
pub use client::{Client, ClientKind, Received, Sent};
pub(crate) use java::mortal;
pub use java::{Broker, JavaPeer, broker_settings};
pub use name_server::{NameServer, Program};
pub use ports::{free_broker_port, free_port};
pub use probe::{Answer, Probe, Route};
pub use process::{Process, Scratch, Signal, poll_until};
pub use settings::Settings;
pub use steady::{Message, RouteQuery, SteadyPlan, SteadyProducer, Told, epoch_millis};
pub use story::Story;
pub use workshop::{PeerError, Version, Workshop, tools_present};
