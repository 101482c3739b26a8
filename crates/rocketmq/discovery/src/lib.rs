//! Finding the brokers of RocketMQ topics, and choosing among their queues.

pub mod brokers;
pub mod core;
pub mod error;
pub mod faults;
pub mod fleet;
pub mod health;
pub mod picker;
pub mod probes;
pub mod publish;
pub mod queue;
pub mod route;
pub mod static_topic;
pub mod subscribe;

mod names;
mod query;
mod topic;
