//! Registers a RocketMQ broker with every name server and keeps it registered.
//!
//! Each server has a lease of its own: one that hangs delays no other and never the caller. It is registered
//! at once when it is new, restarted or has forgotten the broker, hears of topics 50 ms after they change,
//! and is told goodbye when the broker leaves. All of that happens on a thread of its own, so that a busy
//! application does not lose its leases.
//!
//! It refuses to serve: it knows nothing of messages, clients or slaves, installs no signal handler, and
//! sends nothing when it is dropped ([`Registrar::close`] says goodbye).
//!
//! ```no_run
//! use std::time::Duration;
//! use waypost_rocketmq_registrar::{Identity, Options, Quorum, Registrar, Role, Topic};
//! use waypost_rocketmq_remoting::source::Source;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::new("DefaultCluster", "broker-a", "10.0.0.7:10911".parse()?);
//! let mut options = Options::new(identity, Source::parse("10.0.0.1:9876;10.0.0.2:9876")?);
//! options.role = Role::Master;
//! let registrar = Registrar::start(options)?;
//! registrar.wait_registered(Quorum::One, Duration::from_secs(5)).await?;
//! registrar.set_topic(Topic::new("orders", 8))?;
//! registrar.close(Duration::from_secs(3)).await;
//! # Ok(()) }
//! ```
//!
//! Wire formats, codes and periods are those of brokers (part C 4 to 12; `docs/behaviour.md` explains the
//! numbers), when and to whom things are sent is its own.
//!
//! Invariants:
//!
//! 1. What waits for a server is that server's task, never a lock, a caller or another server.
//! 2. A server that answers holds the current topics, or is sent what it lacks.
//! 3. No connection is closed over which a server keeps the broker on its routes, until it does over another
//!    one.
//! 4. At most one registration is under way to a server.
//! 5. Id 0 is announced only by [`Role::Master`].

mod announcement;
mod drill;
mod error;
mod identity;
mod keeper;
mod lease;
mod master;
mod options;
mod registrar;
mod shared;
mod state;
mod topics;

pub use self::drill::Drill;
pub use self::error::{IdentityError, LeaseError, NotRegistered, StartError, TopicError};
pub use self::identity::{Identity, Role};
pub use self::master::Master;
pub use self::options::{ActingMaster, Beat, Form, Options, Timing};
pub use self::registrar::{MasterWatch, Quorum, Registrar};
pub use self::state::{Accepted, Farewell, FarewellOutcome, Phase, ServerState};
pub use self::topics::{COALESCE, Topic};
