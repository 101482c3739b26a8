//! Why there is no route, and who said so.

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::source::SourceError;

/// What became of one question to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whom.
    pub server: Endpoint,
    /// What it answered or what went wrong, for people.
    pub what: String,
    /// How long after the beginning of the lookup.
    pub after: Duration,
}

impl fmt::Display for Said {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} after {} ms: {}", self.server, self.after.as_millis(), self.what)
    }
}

/// Why a lookup has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The servers that answered agree that there is no such topic.
    #[error(
        "topic \"{topic}\" does not exist: no broker has registered it ({}); create it, or check its name",
        list(.said)
    )]
    NotExist {
        /// The topic.
        topic: String,
        /// What each server said.
        said: Vec<Said>,
    },
    /// Nobody gave an answer in time.
    #[error("{subject}: no name server answered within {limit:?} ({}); check the servers and the network", list(.said))]
    NoAnswer {
        /// What was asked for.
        subject: String,
        /// The time that was given.
        limit: Duration,
        /// What became of each question.
        said: Vec<Said>,
    },
    /// There is no server to ask.
    #[error("{subject}: the list of name servers is empty: no name in it could be resolved; check the list")]
    NoServers {
        /// What was asked for.
        subject: String,
    },
    /// Nobody may ask any more.
    #[error("the discovery was closed")]
    Closed,
}

impl LookupError {
    /// Whether asking again later can help without anybody changing something.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::NoServers { .. })
    }
}

fn list(said: &[Said]) -> String {
    if said.is_empty() {
        return "none was asked".to_owned();
    }
    said.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a discovery does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no list of servers.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no async runtime.
    #[error("discovery needs a tokio runtime with time and IO; start it inside one")]
    NoRuntime,
}
