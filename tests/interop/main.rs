//! Waypost among software that was not written here: Java brokers, mqadmin and clients in three languages.
//!
//! Every test first prints its scenario, then what happened and when. They run on the `waypost` binary; with
//! `WAYPOST_INTEROP_SERVER=java-5` they run on the Java NameServer instead, which shows that they hold on the
//! original. `README.md` beside this file has the rest.
#![allow(clippy::disallowed_methods, reason = "these tests measure real processes in real time")]

mod agent;
mod clients;
mod empty_restart;
mod exchange;
mod groups;
mod libraries;
mod lifecycle;
mod mqadmin;
mod registration;
mod stage;
