//! Finding the brokers of RocketMQ topics, and choosing among their queues.

pub mod brokers;
pub mod chooser;
pub mod client;
pub mod core;
pub mod error;
pub mod faults;
pub mod fleet;
pub mod health;
pub mod observer;
pub mod picker;
pub mod probes;
pub mod publish;
pub mod queue;
pub mod read;
pub mod route;
pub mod static_topic;
pub mod subscribe;

mod driver;
mod link;
mod names;
mod prober;
mod published;
mod query;
mod topic;
