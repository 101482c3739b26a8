//! What can go wrong.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Why a load could not be put on a server, or was cut short.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no connection.
    #[error(
        "no connection to {server}: {source}; is the server up, and the limit of files high enough (ulimit -n)?"
    )]
    Connect {
        /// Whom.
        server: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A connection broke, or the system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server closed a connection.
    #[error("{server} closed a connection under load; its log should say why")]
    Closed {
        /// Who.
        server: SocketAddr,
    },
    /// The server does not read what it is sent.
    #[error("{server} does not read: {queries} queries do not fit into the socket")]
    NotRead {
        /// Who.
        server: SocketAddr,
        /// How many were sent at once.
        queries: usize,
    },
    /// There were more answers than questions.
    #[error("{server} sent more answers than it was asked questions; is it a RocketMQ NameServer?")]
    TooManyAnswers {
        /// Who.
        server: SocketAddr,
    },
    /// Nothing came back.
    #[error("{server} answered nothing while it was measured; `waypost doctor` looks for the reason")]
    NoAnswer {
        /// Who.
        server: SocketAddr,
    },
    /// The server answered that it will not.
    #[error("{what} was refused: {header}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The header of the answer.
        header: String,
    },
    /// Whoever asked for the load gave up.
    #[error("the load was stopped")]
    Stopped,
    /// A thread of the load ended by a bug.
    #[error("a thread of the load generator panicked")]
    Panicked,
}

impl LoadError {
    /// Says what was being done when the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }
}
