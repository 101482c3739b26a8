//! What can go wrong.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use waypost_net::address::HostPort;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;

/// Why a broker cannot be announced as it is described.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A name that no server could keep apart.
    #[error("the {what} {name:?} is empty or has blanks; give it a name without blanks")]
    Name {
        /// Which name.
        what: &'static str,
        /// As it was given.
        name: String,
    },
    /// The address has no port.
    #[error("the broker's address {address} has no port; announce the port that the broker listens on")]
    NoPort {
        /// The address.
        address: HostPort,
    },
    /// Clients on other machines would connect to themselves.
    #[error(
        "the broker's address {address} cannot be reached from other machines{}; announce an address of this \
         machine that clients can reach, or set allow_unreachable",
        elsewhere(server.as_ref())
    )]
    Unreachable {
        /// The address.
        address: HostPort,
        /// A server that is on another machine, if one is known.
        server: Option<HostPort>,
    },
    /// Id 0 is the master's.
    #[error("a slave cannot have the broker id 0, which is the master's; give it an id of 1 or more")]
    SlaveWithIdZero,
    /// Ids have 63 bits.
    #[error("the broker id {id} is too large; choose one below 2^63")]
    IdTooLarge {
        /// The id.
        id: u64,
    },
}

fn elsewhere(server: Option<&HostPort>) -> String {
    server.map_or_else(String::new, |server| format!(", and the name server {server} is on another one"))
}

/// Why a topic cannot be announced.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name is empty, too long, or has blanks or control characters.
    #[error("the topic name {name:?} is empty, longer than {limit} bytes or has blanks; choose another name")]
    Name {
        /// The name, cut to 64 characters.
        name: String,
        /// The most bytes that a name may have.
        limit: usize,
    },
    /// A number of queues is negative.
    #[error("topic {name} has {read} queues to read and {write} to write; neither may be negative")]
    Queues {
        /// The topic.
        name: String,
        /// Queues to read from.
        read: i32,
        /// Queues to write to.
        write: i32,
    },
    /// The permission has unknown bits.
    #[error(
        "topic {name} has the permission {permission}; add up 4 (read), 2 (write), 1 (inherit), 8 (priority)"
    )]
    Permission {
        /// The topic.
        name: String,
        /// The permission.
        permission: i32,
    },
}

/// Why a registrar did not start. Nothing of it runs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The broker cannot be announced so.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// One of the topics cannot be announced.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The operating system gave no thread or no timer.
    #[error("the registrar's thread could not be started: {0}; raise the limit of processes (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// What keeps a server from holding this broker's registration.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// There is no connection, or it ended. It is being opened again.
    #[error(transparent)]
    Connection(Arc<CallError>),
    /// The server closed the connection.
    #[error(
        "name server {server} closed the connection; it is being opened again, look at that server's log"
    )]
    Closed {
        /// Whom.
        server: Endpoint,
    },
    /// The server takes requests and answers none.
    #[error(
        "name server {server} has not answered a {request} for {waited:?}; it is asked again over a second \
         connection, see whether it is stopped or overloaded"
    )]
    Silent {
        /// Whom.
        server: Endpoint,
        /// Which request.
        request: &'static str,
        /// How long it has been waited for when this was noticed.
        waited: Duration,
    },
    /// The server refused.
    #[error(
        "name server {server} refused a {request} with code {code}: {remark}; it is tried again in {again:?}"
    )]
    Refused {
        /// Whom.
        server: Endpoint,
        /// Which request.
        request: &'static str,
        /// The code of the answer.
        code: i32,
        /// What the server says.
        remark: String,
        /// When it is tried again.
        again: Duration,
    },
}

/// Not enough servers held the broker's topics in time.
#[derive(Debug, Error)]
#[error("the broker is not registered as wanted after {waited:?}: {}", describe(servers))]
#[non_exhaustive]
pub struct NotRegistered {
    /// How long it was waited for.
    pub waited: Duration,
    /// The servers at that time.
    pub servers: Vec<crate::state::ServerState>,
}

impl NotRegistered {
    pub(crate) const fn new(waited: Duration, servers: Vec<crate::state::ServerState>) -> Self {
        Self { waited, servers }
    }
}

fn describe(servers: &[crate::state::ServerState]) -> String {
    if servers.is_empty() {
        return String::from("no name server is known; check the list of servers");
    }
    let lines: Vec<String> = servers.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
