//! Finding the brokers of RocketMQ topics, and choosing among their queues.

pub mod publish;
pub mod queue;
pub mod route;
pub mod static_topic;
pub mod subscribe;

mod names;
