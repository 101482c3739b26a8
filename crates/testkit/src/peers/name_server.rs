//! A name server of either make, so that one test runs on all.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{JavaPeer, PeerError, Probe, Settings, Signal, Version, Workshop};
use crate::server::WaypostServer;

/// Which name server a test runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The Java NameServer of a version.
    Java(Version),
    /// The `waypost` binary at this path.
    Waypost(PathBuf),
}

impl Program {
    /// The program that the environment variable `WAYPOST_INTEROP_SERVER` names (`java-5`, `java-4`, `waypost`);
    /// `binary` if it is not set. The Java ones are there to see that the tests hold on the original.
    ///
    /// # Panics
    ///
    /// If the variable has another value.
    pub fn from_environment(binary: impl Into<PathBuf>) -> Self {
        match std::env::var("WAYPOST_INTEROP_SERVER").as_deref() {
            Ok("java-5") => Self::Java(Version::V5),
            Ok("java-4") => Self::Java(Version::V4),
            Ok("waypost") | Err(_) => Self::Waypost(binary.into()),
            Ok(other) => panic!("WAYPOST_INTEROP_SERVER={other}: java-5, java-4 or waypost"),
        }
    }

    /// Whether it is ours.
    pub fn is_waypost(&self) -> bool {
        matches!(self, Self::Waypost(_))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Java(version) => write!(f, "Java NameServer {version}"),
            Self::Waypost(_) => f.write_str("Waypost"),
        }
    }
}

/// A running name server. It keeps its home folder and its port when it is started again.
#[derive(Debug)]
pub enum NameServer {
    /// A Java one.
    Java(JavaPeer),
    /// Ours.
    Waypost(WaypostServer),
}

impl NameServer {
    /// Starts `program` with `settings` on a free port and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If the jars cannot be had. A server that does not start fails the test at once.
    pub fn start(workshop: &Workshop, program: &Program, settings: &Settings) -> Result<Self, PeerError> {
        Ok(match program {
            Program::Java(version) => Self::Java(JavaPeer::namesrv(workshop, *version, settings)?),
            Program::Waypost(binary) => Self::Waypost(WaypostServer::start(binary, settings)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Java(peer) => peer.address(),
            Self::Waypost(server) => server.address(),
        }
    }

    /// Asks it questions.
    pub fn probe(&self) -> Probe {
        Probe::new(self.address())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        match self {
            Self::Java(peer) => peer.id(),
            Self::Waypost(server) => server.id(),
        }
    }

    /// SIGSTOP, and waits until every thread stands still.
    pub fn stand_still(&mut self) {
        match self {
            Self::Java(peer) => peer.stand_still(),
            Self::Waypost(server) => server.stand_still(),
        }
    }

    /// Sends it a signal.
    pub fn send(&mut self, signal: Signal) {
        match self {
            Self::Java(peer) => peer.send(signal),
            Self::Waypost(server) => server.send(signal),
        }
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        match self {
            Self::Java(peer) => peer.kill(),
            Self::Waypost(server) => server.kill(),
        }
    }

    /// Starts it again after [`NameServer::kill`], on the same port. It knows no broker then.
    ///
    /// # Errors
    ///
    /// As [`NameServer::start`].
    pub fn start_again(&mut self) -> Result<(), PeerError> {
        match self {
            Self::Java(peer) => peer.start_again(),
            Self::Waypost(server) => {
                server.start_again();
                Ok(())
            }
        }
    }
}
