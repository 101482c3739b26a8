//! The commands of waypost: arguments to calls, results to tables or JSON.
//!
//! Three layers that know nothing of the one above: [`call`] speaks to one NameServer, the modules named
//! after what they ask for ([`route`], [`topics`], [`kv`] and so on) turn a question into calls to the
//! servers of a list and the answers into data, [`render`] turns the data into text. [`run`] puts them
//! together for a parsed command line. Nothing here prints, exits or reads the environment, but for the parsing of
//! arguments, which reads `NAMESRV_ADDR`.
//!
//! ```no_run
//! use std::time::Duration;
//! use waypost_cli::{call::Caller, route, servers::Servers};
//! use waypost_net::dialer::Dialer;
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let servers: Servers = "name-a:9876;name-b:9876".parse()?;
//! let caller = Caller::new(Dialer::default(), Duration::from_secs(3));
//! let found = route::ask(&caller, &servers, "TopicTest").await?;
//! print!("{}", waypost_cli::render::route(&found.value));
//! # Ok(()) }
//! ```
//!
//! Invariants:
//!
//! 1. Reads ask the next server when one is slow, and take the first that knows; writes go to every
//!    server of the list and tell what became of each.
//! 2. No command waits longer than its time limit, whatever servers do.
//! 3. What servers send never reaches a terminal with control characters in it.

pub mod agent_status;
pub mod announcers;
pub mod arguments;
pub mod bench;
pub mod brokers;
pub mod call;
pub mod changes;
pub mod check;
pub mod configuration;
pub mod deletion;
pub mod demo;
pub mod doctor;
pub mod everywhere;
pub mod exit;
pub mod first;
pub mod kv;
pub mod live_table;
pub mod manual;
pub mod nearest;
pub mod permission;
pub mod register;
pub mod render;
pub mod route;
pub mod run;
pub mod sentences;
pub mod servers;
pub mod settings;
pub mod simulated;
pub mod topics;
pub mod voice;
pub mod watch;
