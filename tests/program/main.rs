//! The real binary from outside: starting, being asked, stopping.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]

mod admin;
mod agent;
mod bench;
mod changes;
mod configuration;
mod demo;
mod doctor;
mod encryption;
mod harness;
mod hung_disk;
mod lists;
mod logs;
mod questions;
mod register;
mod standings;
mod starting;
mod stopping;
mod watch;
