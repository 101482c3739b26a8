//! What goes wrong between and inside machines, made on purpose: networks that fall silent or lose packets, a proxy
//! that delays, stalls and cuts connections, a supervisor that restarts what was killed, a thread that
//! no longer runs.
//!
//! Everything made here goes away on drop, and its names belong to this process alone.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]

mod network;
mod proxy;
mod service;
mod supervisor;
mod thread;

pub use network::{Machine, Network};
pub use proxy::{Behaviour, Proxy};
pub use service::{Service, Unit};
pub use supervisor::Supervised;
pub use thread::HeldThread;

/// Says in one line what is not run and why.
///
/// # Panics
///
/// If the environment says `CI=true`: there everything must run.
pub fn not_run(what: &str, why: &str) {
    let line = format!("not run, {why}: {what}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}
