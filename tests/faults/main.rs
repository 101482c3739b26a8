//! Bad input, deaths, silence and attacks, on the real binary over real sockets.
//!
//! The rule of every test: the connection that misbehaves gets the answer that the protocol has for it or is
//! closed; a counter or a log line says why; the table, the other connections and the process do not notice.
//! Tests that need root, `ip` and `nft`, or many files, say in one line what they did not run without them, and
//! fail where `CI=true`.
#![allow(clippy::disallowed_methods, reason = "these tests measure real processes in real time")]

mod access;
mod big_frames;
mod broker_deaths;
mod costly_requests;
mod dual_stack;
mod graceful_stop;
mod half_open;
mod harness;
mod hostile_bodies;
mod idle_connections;
mod kv_durability;
mod limits;
mod list_storm;
mod proxy_preamble;
mod random_bytes;
mod registration_storm;
mod request_fields;
mod service_manager;
mod silent_machine;
mod slow_readers;
mod start_gate;
mod stopped_server;
mod stuck_threads;
mod tls;
mod wrong_frames;
