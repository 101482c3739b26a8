//! A name server on each machine, for programs that cannot be changed.
//!
//! Clients and brokers of the machine have the agent as their only name server. For clients it is
//! [discovery](waypost_rocketmq_discovery): hung and dying name servers are its matter, not theirs. For brokers it
//! is a relay that says to every name server what the broker says, byte for byte but for the opaque, and nothing of
//! its own. It refuses to hold a lease that the broker does not renew.

pub mod agent;
mod asker;
mod broker;
mod brokers;
mod changes;
mod desk;
mod fence;
mod heard;
mod kept;
mod loops;

mod metrics;
mod outbox;
mod reads;
pub mod relay;
mod remark;
mod rendered;
mod reply;
mod room;
mod routes;
mod saved;
mod session;
mod standing;
mod standings;
mod state_file;
pub mod status;
mod store;
mod under_way;
mod upkeep;
mod upstream;
mod writes;
