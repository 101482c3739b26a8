//! Simulated brokers: they register like real ones, answer clients, store nothing, and fail when they are told to.

mod broker;
mod door;
mod fault;
mod plan;

pub use self::broker::{SimulatedBroker, SimulationError};
pub use self::fault::{Conduct, Fault, FaultKind};
pub use self::plan::{BrokerPlan, PlanError, read};
