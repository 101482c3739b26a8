//! Finding the brokers of RocketMQ topics, and choosing among their queues.
//!
//! A client of name servers that survives them: hung, slow, dead, lying or empty ones cost a caller a fraction of
//! a second once, and nothing after that. It asks name servers, remembers and watches routes, and chooses queues
//! around brokers that fail. It does not send or receive messages: it is meant to stand beside a client that does.
//!
//! ```no_run
//! use std::time::Duration;
//! use waypost_rocketmq_discovery::client::{Discovery, Options};
//! use waypost_rocketmq_remoting::source::Source;
//!
//! # async fn find() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = Source::from_environment(Some("10.0.0.1:9876;10.0.0.2:9876"))?;
//! let discovery = Discovery::start(Options::new(servers))?;
//! let route = discovery.route("Orders", Duration::from_secs(3)).await?;
//! println!("{} queues to send to", route.publish().len());
//! let choice = discovery.chooser("Orders").choose(None)?;
//! println!("send to queue {} of {} at {}", choice.queue.id, choice.queue.broker, choice.address);
//! discovery.close(Duration::from_secs(1)).await;
//! # Ok(()) }
//! ```
//!
//! The parts: [`core`] decides and knows no IO; [`fleet`] and [`health`] rank servers; [`route`], [`publish`] and
//! [`subscribe`] are the views of a route; [`faults`], [`probes`] and [`picker`] choose queues; [`client`] and
//! [`chooser`] are what applications hold.
//!
//! Invariants:
//!
//! 1. A call ends at its deadline, whatever the servers do.
//! 2. One question a topic is under way, however many callers wait for it; nothing is locked while bytes travel.
//! 3. A route that was known is never lost because servers fail: it is served and marked stale.
//! 4. No subscriber sees older content after newer, as long as no two servers agree on the older.
//! 5. Both views of a route are of one version.

pub mod brokers;
pub mod chooser;
pub mod client;
pub mod core;
pub mod error;
pub mod faults;
pub mod fleet;
pub mod health;
pub mod observer;
pub mod picker;
pub mod probes;
pub mod publish;
pub mod queue;
pub mod read;
pub mod route;
pub mod static_topic;
pub mod subscribe;

mod driver;
mod link;
mod names;
mod prober;
mod published;
mod query;
mod topic;
