//! One address of one server.

use std::fmt;
use std::net::SocketAddr;

use waypost_net::address::HostPort;

/// One resolved address of a server. A name with three addresses is three endpoints, each with a health of its
/// own (spec B17 item 12).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The server as it was configured; TLS checks certificates against it.
    pub name: HostPort,
    /// Where it is.
    pub address: SocketAddr,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { name: address.into(), address }
    }
}

impl fmt::Display for Endpoint {
    /// The name, followed by the address if that says more.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(formatter)?;
        match self.name.socket_address() {
            Some(_) => Ok(()),
            None => write!(formatter, " ({})", self.address),
        }
    }
}
