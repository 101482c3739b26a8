//! The RocketMQ NameServer: wire, registry and net put together.
//!
//! [`NameServer::start`] binds and serves until [`NameServer::shutdown`]. Route queries are answered where
//! they are read; everything that needs the table goes through threads of its own, so that nothing holds up a
//! query. The crate refuses to know command lines, HTTP and log files: a program brings those.
//!
//! ```no_run
//! use waypost_rocketmq_nameserver::config::{Configuration, Inputs, process_environment};
//! use waypost_rocketmq_nameserver::{NameServer, StartOptions};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let flags = vec![("listenPort".to_owned(), "0".to_owned())];
//! let configuration = Configuration::load(Inputs { file: None, flags, environment: process_environment() })?;
//! let on_stall = Box::new(|report: &_| panic!("{report}"));
//! let server = NameServer::start(configuration, StartOptions { kv_from_backup: false, on_stall })?;
//! println!("{:?}", server.addresses());
//! server.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! Invariants:
//!
//! 1. Every request gets exactly one answer, in the order of its connection, or its connection is closed.
//! 2. When a change is answered, readers see it, and what has to be on disk is on disk.
//! 3. A server that cannot serve closes rather than hangs.

pub mod config;
mod connection;
mod idle;
mod journal;
pub mod kv;
mod lane;
mod metrics;
mod notices;
mod owner;
mod reply;
mod requests;
mod server;
mod state;
mod text;
mod view;

pub use metrics::Metrics;
pub use server::{NameServer, StartError, StartOptions, load_tls};
pub use view::{
    BrokerView, CountsView, DataVersionView, DeletedView, QueueView, TableFilter, TableView, TopicView, View,
};
