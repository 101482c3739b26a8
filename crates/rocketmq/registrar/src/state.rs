//! What is known about one server, for those who want to see it.

use std::fmt;
use std::time::Duration;

use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::DataVersion;

use crate::error::LeaseError;
use crate::master::Master;

/// One server as the registrar sees it. Ages are as of the moment that it was asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerState {
    /// Which server.
    pub server: Endpoint,
    /// How it stands.
    pub phase: Phase,
    /// What it accepted last, also if it lost it since.
    pub accepted: Option<Accepted>,
    /// Whether it holds all topics as they are now.
    pub current: bool,
    /// How long ago it answered anything.
    pub answered: Option<Duration>,
    /// What went wrong last, also if it went well since; with its age.
    pub failure: Option<(LeaseError, Duration)>,
    /// How often in a row it could not be reached or refused.
    pub failures: u32,
    /// The master that it names, if this broker is a slave.
    pub master: Option<Master>,
}

/// How a server stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// There is no connection yet or any more.
    Connecting,
    /// Connected; the whole table is on its way.
    Registering,
    /// It holds a registration and answers.
    Registered,
    /// It has a request and has not answered it for 3 s.
    Silent,
    /// It answered with an error; it is tried again.
    Refused,
    /// Nothing is registered: the role is not decided.
    Absent,
    /// The broker is unregistering.
    Leaving,
}

/// A registration that a server accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Accepted {
    /// The version of the table.
    pub version: DataVersion,
    /// How many topics it has.
    pub topics: usize,
    /// How long ago.
    pub age: Duration,
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Connecting => "connecting",
            Self::Registering => "registering",
            Self::Registered => "registered",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Absent => "absent",
            Self::Leaving => "leaving",
        })
    }
}

impl fmt::Display for ServerState {
    /// One line: the server, its phase, and the last failure unless it is registered.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}", self.server, self.phase)?;
        match &self.failure {
            Some((error, age)) if self.phase != Phase::Registered => {
                write!(formatter, " ({error}; {:.1} s ago)", age.as_secs_f64())
            }
            _ => Ok(()),
        }
    }
}

/// What a server said when the broker left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Farewell {
    /// Which server.
    pub server: Endpoint,
    /// What it said.
    pub outcome: FarewellOutcome,
}

/// How leaving a server went.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FarewellOutcome {
    /// It took the broker off its routes.
    Unregistered,
    /// It held no registration that was known of: there was no connection to it.
    NotRegistered,
    /// It answered with an error.
    Refused {
        /// The code of the answer.
        code: i32,
        /// What it says.
        remark: String,
    },
    /// It did not answer in time. It notices the end of the connection once it runs again.
    NoAnswer,
}

impl fmt::Display for Farewell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.outcome {
            FarewellOutcome::Unregistered => write!(formatter, "{server} took the broker off its routes"),
            FarewellOutcome::NotRegistered => write!(formatter, "{server} was not connected"),
            FarewellOutcome::Refused { code, remark } => {
                write!(formatter, "{server} refused to unregister the broker with code {code}: {remark}")
            }
            FarewellOutcome::NoAnswer => {
                write!(
                    formatter,
                    "{server} did not answer in time; it drops the broker when the connection ends"
                )
            }
        }
    }
}
