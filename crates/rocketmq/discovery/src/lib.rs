//! Finding the brokers of RocketMQ topics, and choosing among their queues.
