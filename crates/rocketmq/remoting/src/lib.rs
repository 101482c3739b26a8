//! Connections to RocketMQ servers, as clients and brokers have them.
//!
//! Two things that everybody who speaks to name servers or brokers needs: a [`Connection`](connection::Connection)
//! on which many calls wait for their answers at once, and the live list of [`Servers`](servers::Servers), whose
//! names are resolved again and again. Which server is asked, how long, and what an answer means is the business
//! of the crates above.
//!
//! ```no_run
//! use std::time::Duration;
//! use waypost_net::{dialer::Dialer, tasks::Tasks};
//! use waypost_rocketmq_remoting::{connection::Connection, endpoint::Endpoint};
//! use waypost_rocketmq_wire::{code, message::Request};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let limit = Duration::from_secs(3);
//! let server = Endpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], 9876)));
//! let connection = Connection::open(&Dialer::default(), &server, limit, &Tasks::new()).await?;
//! let request = Request { ext: &[("topic", "Orders")], ..Request::new(code::request::GET_ROUTEINFO_BY_TOPIC) };
//! let answer = connection.call(&request, limit).await?;
//! println!("code {}", answer.code);
//! # Ok(()) }
//! ```
//!
//! Invariants:
//!
//! 1. A call ends within its limit, whatever the server does.
//! 2. A call that got no answer in time closes its connection: what else waits on it fails at once, and a late
//!    answer can meet no other call.
//! 3. What waits to be written is bounded; nothing is locked while bytes travel.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod address_server;
pub mod answer;
pub mod connection;
pub mod endpoint;
pub mod error;
pub mod list;
mod page;
pub mod servers;
pub mod source;
