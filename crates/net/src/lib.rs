//! Listeners, TLS, sessions, limits and drain; knows no protocol.
//!
//! This crate brings bytes from a socket to whoever understands them and back: it binds, accepts,
//! dials, encrypts, counts, limits, watches and stops. It refuses to know what the bytes mean: nothing
//! here names a request code, and nothing here decodes a frame.
//!
//! ```no_run
//! use std::net::Ipv4Addr;
//! use waypost_net::accept::{AcceptLimits, Acceptor};
//! use waypost_net::listener::{BindAddress, ListenOptions, bind};
//! use waypost_net::tasks::Tasks;
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let listeners = bind(&BindAddress::Any, 9876, &ListenOptions::default())?;
//! let tasks = Tasks::new();
//! let acceptor = Acceptor::new(listeners, AcceptLimits::default());
//! let stop = tasks.stop();
//! tasks.spawn(async move { acceptor.run(&stop, |accepted| drop(accepted)).await });
//! # Ok(()) }
//! ```
//!
//! Invariants:
//!
//! 1. Time is read in [`clock`] and tasks are started in [`tasks`], nowhere else.
//! 2. Bytes from a peer never panic: the parsers take slices and return values.
//! 3. Everything that a peer can make grow has a limit, and reaching it is counted.
//! 4. A connection whose first bytes cannot be served is closed, never left to hang.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod accept;
pub mod address;
pub mod budget;
pub mod clock;
pub mod dialer;
pub mod durable;
pub mod entrance;
pub mod frame_pool;
pub mod host_names;
pub mod listener;
pub mod network;
pub mod plain;
pub mod preamble;
pub mod proxy_protocol;
pub mod queues;
pub mod session;
pub mod sessions;
pub mod socket;
pub mod stream;
pub mod tasks;
pub mod throttle;
pub mod tls;
pub mod watchdog;
pub mod workers;
