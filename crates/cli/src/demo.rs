//! Two simulated brokers, so that a NameServer has something to show.
//!
//! They register over TCP and again every 30 seconds, as brokers of 5.x do, under the addresses of two small
//! ports of their own. Behind these is no storage: a client that sends a message there is told so.

mod broker;
mod door;

use std::io;
use std::time::Duration;

use thiserror::Error;
use waypost_net::address::HostPort;
use waypost_net::tasks::Tasks;

pub use self::broker::CLUSTER;

use self::broker::DemoBroker;
use crate::call::CallError;

/// A topic that both brokers have, to try commands with.
pub const TOPIC: &str = "TopicTest";

/// How long the first registration of each may take.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Running brokers. They go on until the tasks that they were given are stopped, and then unregister.
#[derive(Debug)]
pub struct Demo {
    /// Names and advertised addresses.
    pub brokers: Vec<(String, String)>,
}

/// Why there are no brokers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// No port for one of them.
    #[error("a demo broker could not listen on 127.0.0.1: {0}")]
    Port(#[from] io::Error),
    /// The server did not take it.
    #[error("a demo broker could not register: {0}")]
    Register(#[from] CallError),
    /// The server did not answer.
    #[error("a demo broker could not register with {server} within {START_LIMIT:?}; start without --demo")]
    Silent {
        /// Whom.
        server: HostPort,
    },
}

impl Demo {
    /// Starts both and waits until they are registered with `server`.
    ///
    /// # Errors
    ///
    /// When one cannot listen or register; then none runs.
    pub async fn start(server: &HostPort, now_millis: u64, tasks: &Tasks) -> Result<Self, DemoError> {
        let mut started = Vec::new();
        for (index, name) in ["broker-a", "broker-b"].into_iter().enumerate() {
            let door = door::open().await?;
            let address = door.address().to_string();
            let mut broker = DemoBroker::new(name, &address, index, now_millis, server.clone());
            match tokio::time::timeout(START_LIMIT, broker.register()).await {
                Ok(registered) => registered?,
                Err(_) => return Err(DemoError::Silent { server: server.clone() }),
            }
            started.push((name, address, broker, door));
        }
        let mut brokers = Vec::new();
        for (name, address, broker, door) in started {
            let stop = tasks.stop();
            tasks.spawn(async move { door.answer_all(&stop).await });
            let stop = tasks.stop();
            tasks.spawn(async move { broker.stay_registered(&stop).await });
            brokers.push((name.to_owned(), address));
        }
        Ok(Self { brokers })
    }
}
