//! Why a call has no answer.

use std::io;
use std::time::Duration;

use thiserror::Error;
use waypost_net::dialer::DialError;
use waypost_rocketmq_wire::frame::FrameError;
use waypost_rocketmq_wire::header::HeaderError;

use crate::endpoint::Endpoint;

/// Why a call has no answer. The message names the server, the reason and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no connection.
    #[error(transparent)]
    Connect(DialError),
    /// The connection is there, the answer did not come in time. The connection is closed.
    #[error(
        "{endpoint} sent no answer within {limit:?}: it is hung, overloaded or cut off; look at its machine"
    )]
    TimedOut {
        /// Whom.
        endpoint: Endpoint,
        /// The time that was given.
        limit: Duration,
    },
    /// The other end closed the connection, or another call did after its own time-out.
    #[error("the connection to {endpoint} was closed before the answer came; it may be stopping or want TLS")]
    Closed {
        /// Whom.
        endpoint: Endpoint,
    },
    /// The connection broke.
    #[error("the connection to {endpoint} broke: {source}; check the network")]
    Broken {
        /// Whom.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// What it sent is no RocketMQ frame. The connection is closed.
    #[error("{endpoint} sent what is no RocketMQ answer: {fault}; is the address right?")]
    Malformed {
        /// Whom.
        endpoint: Endpoint,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Too many bytes wait for a peer that does not read.
    #[error("{endpoint} does not read: {waiting} bytes wait for it already; look at its machine")]
    Full {
        /// Whom.
        endpoint: Endpoint,
        /// How many bytes wait.
        waiting: usize,
    },
}

/// What is wrong with received bytes.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The header.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl CallError {
    /// A short fixed name for programs and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Connect(DialError::Refused { .. }) => "refused",
            Self::Connect(DialError::TimedOut { .. } | DialError::TlsTimedOut { .. }) => "connect_timeout",
            Self::Connect(_) => "connect",
            Self::TimedOut { .. } => "timeout",
            Self::Closed { .. } => "closed",
            Self::Broken { .. } => "broken",
            Self::Malformed { .. } => "malformed",
            Self::Full { .. } => "full",
        }
    }

    /// Whether the request may have reached the other end.
    #[must_use]
    pub const fn may_have_arrived(&self) -> bool {
        !matches!(self, Self::Connect(_) | Self::Full { .. })
    }
}
