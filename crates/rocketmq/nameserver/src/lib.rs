//! The RocketMQ NameServer: wire, registry and net put together.

pub mod access;
pub mod audit;
pub mod config;
mod connection;
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
mod view;

pub use metrics::Metrics;
pub use server::{NameServer, StartError, StartOptions};
pub use view::{BrokerView, CountsView, DataVersionView, QueueView, TableFilter, TableView, TopicView, View};
