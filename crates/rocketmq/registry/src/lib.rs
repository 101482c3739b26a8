//! The NameServer's route table as a pure state machine, and the index that readers use.
//!
//! A RocketMQ NameServer keeps soft state: brokers register with it and stay by sending signs of
//! life, clients ask where a topic lives. [`RouteTable`] is that state. All of it changes through
//! [`RouteTable::apply`], which does no IO, takes the time as an argument and returns what follows
//! as plain data ([`Effects`]). [`RouteIndex`] holds the routes for readers on other threads.
//!
//! This crate refuses to know sockets, clocks, files, frames and configuration files.
//!
//! ```
//! use std::time::Duration;
//! use waypost_rocketmq_registry::{Command, ConnectionId, Outcome, Policy, RouteTable, Sign, TableLimits};
//!
//! let mut table = RouteTable::new(Policy::default(), TableLimits::default());
//! let sign = Sign { cluster: "c", address: "10.0.0.1:10911", connection: ConnectionId(1) };
//! let effects = table.apply(Command::QueryDataVersion { sign, version: None }, Duration::ZERO);
//! assert_eq!(effects.outcome, Outcome::DataVersion { changed: true, stored: None });
//! ```
//!
//! Invariants, held after every command:
//!
//! 1. Every queue in a route names a broker that is in the same route.
//! 2. One address has one cluster, one broker name and one id; a group without address does not exist.
//! 3. A removal never removes a registration that is newer than the reason for the removal.
//! 4. A reader never sees a topic go back to older content.
//! 5. The same commands in the same order give the same effects.
//!
//! "Spec" in this crate's documentation is the account of the original's behaviour in
//! `docs/behaviour.md`. All cited numbers are explained there: sections and their steps, decisions,
//! defects (D), behaviours that are kept (K) and field reports (A, C).

mod admission;
mod announcement;
mod broker;
mod command;
mod deleted;
mod effects;
mod group;
mod index;
mod policy;
mod query;
mod registration;
mod removal;
mod route;
mod snapshot;
mod table;
mod topic;
mod topics;

pub use command::{
    Announcement, BodyDigest, BrokerIdentity, Command, ConnectionEnd, ConnectionId, Registration, Sign,
    Unregistration,
};
pub use deleted::DeletedRow;
pub use effects::{
    ConflictKind, Effects, Event, Member, MinBrokerNotice, Outcome, RegistrationRefusal, RemovalCause,
    RouteChange,
};
pub use index::RouteIndex;
pub use policy::{Policy, TableLimits};
pub use route::{MEMBER_GROUP_TOPIC_PREFIX, Route};
pub use snapshot::{BrokerRow, QueueRow, TableCounts, TopicRow};
pub use table::RouteTable;
