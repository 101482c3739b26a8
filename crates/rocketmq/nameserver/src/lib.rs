//! The RocketMQ NameServer: wire, registry and net put together.
