//! Connections to others: resolve, connect, set options, encrypt, all within one time limit.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::address::{Host, HostPort};
use crate::socket::SocketOptions;
use crate::stream::Stream;
use crate::tls::{HandshakeError, TlsConnector};

/// Opens connections.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    /// What the sockets are told.
    pub socket: SocketOptions,
    /// Encrypts the connections, if set.
    pub tls: Option<TlsConnector>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DialError {
    /// The name has no address.
    #[error("cannot find the address of {address}: {source}; check the name")]
    UnknownName {
        /// Whom.
        address: HostPort,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error("cannot connect to {address}: connection refused; is a server running there, on this port?")]
    Refused {
        /// Whom.
        address: HostPort,
    },
    /// No answer in time.
    #[error(
        "cannot connect to {address}: no answer within {limit:?}; check the address, the network and firewalls"
    )]
    TimedOut {
        /// Whom.
        address: HostPort,
        /// The time that was given.
        limit: Duration,
    },
    /// Any other failure to connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Whom.
        address: HostPort,
        /// What the system said.
        source: io::Error,
    },
    /// The connection came to be, the other end did not answer the TLS handshake in time.
    #[error(
        "{address} accepted the connection but did not answer the TLS handshake within {limit:?}; it may be hung, or \
         speak no TLS"
    )]
    TlsTimedOut {
        /// Whom.
        address: HostPort,
        /// The time that was given.
        limit: Duration,
    },
    /// The connection came to be, TLS did not.
    #[error("cannot encrypt the connection to {address}: {source}")]
    Tls {
        /// Whom.
        address: HostPort,
        /// What went wrong.
        source: HandshakeError,
    },
}

impl Dialer {
    /// Connects to `address` within `limit`. A name with several addresses is tried in the resolver's
    /// order; each attempt gets an even share of the time that is left. Cancel safe.
    ///
    /// # Errors
    ///
    /// The failure of the last address that was tried.
    pub async fn dial(&self, address: &HostPort, limit: Duration) -> Result<Stream, DialError> {
        let timed_out = || DialError::TimedOut { address: address.clone(), limit };
        let (now, deadline) = deadline(limit);
        let targets = timeout_at(deadline, resolve(address)).await.map_err(|_| timed_out())?;
        let targets =
            targets.map_err(|source| DialError::UnknownName { address: address.clone(), source })?;
        let mut failure = None;
        let mut remaining = deadline.saturating_duration_since(now);
        for (left, target) in (1..=targets.len()).rev().zip(targets) {
            let share = remaining.checked_div(u32::try_from(left).unwrap_or(u32::MAX)).unwrap_or(remaining);
            let (started, until) = self::deadline(share);
            match timeout_at(until.min(deadline), connect(target)).await {
                Ok(Ok(stream)) => return self.finish(stream, address, deadline, limit).await,
                Ok(Err(error)) => failure = Some(error),
                Err(_) => failure = None,
            }
            let spent = self::deadline(Duration::ZERO).0.saturating_duration_since(started);
            remaining = remaining.saturating_sub(spent);
        }
        Err(failure.map_or_else(timed_out, |source| refused(address, source)))
    }

    /// Connects to one address of `name` within `limit`; TLS checks the certificate against the name. Cancel
    /// safe.
    ///
    /// # Errors
    ///
    /// As [`Dialer::dial`].
    pub async fn dial_at(
        &self,
        target: SocketAddr,
        name: &HostPort,
        limit: Duration,
    ) -> Result<Stream, DialError> {
        let (_, deadline) = deadline(limit);
        match timeout_at(deadline, connect(target)).await {
            Ok(Ok(stream)) => self.finish(stream, name, deadline, limit).await,
            Ok(Err(source)) => Err(refused(name, source)),
            Err(_) => Err(DialError::TimedOut { address: name.clone(), limit }),
        }
    }

    async fn finish(
        &self,
        stream: TcpStream,
        address: &HostPort,
        deadline: Instant,
        limit: Duration,
    ) -> Result<Stream, DialError> {
        self.socket.apply(&stream).map_err(|source| refused(address, source))?;
        let Some(tls) = &self.tls else { return Ok(Stream::plain(stream)) };
        match timeout_at(deadline, Box::pin(tls.connect(stream, &address.host))).await {
            Ok(encrypted) => encrypted.map_err(|source| DialError::Tls { address: address.clone(), source }),
            Err(_) => Err(DialError::TlsTimedOut { address: address.clone(), limit }),
        }
    }
}

/// Now, and the end of a span that begins now.
#[allow(clippy::disallowed_methods, reason = "the timer of tokio counts in its own instants")]
fn deadline(span: Duration) -> (Instant, Instant) {
    let now = Instant::now();
    // A span that no clock can hold is as good as a day.
    let day = Duration::from_secs(86_400);
    (now, now.checked_add(span.min(day)).unwrap_or(now))
}

/// All addresses of a machine, in the resolver's order; never empty. Cancel safe.
///
/// # Errors
///
/// What the resolver says, or that the name has no address.
pub async fn resolve(address: &HostPort) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = address.socket_address() {
        return Ok(vec![address]);
    }
    let Host::Name(name) = &address.host else { return Ok(Vec::new()) };
    let found: Vec<SocketAddr> = lookup_host((name.as_str(), address.port)).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target).await?;
    // A connection to an unused local port of the ephemeral range can meet itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

fn refused(address: &HostPort, source: io::Error) -> DialError {
    let address = address.clone();
    if source.kind() == io::ErrorKind::ConnectionRefused {
        return DialError::Refused { address };
    }
    DialError::Connect { address, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(20);

    async fn greets(listener: TcpListener, address: HostPort) {
        let (dialled, accepted) =
            tokio::join!(async { Dialer::default().dial(&address, LIMIT).await.unwrap() }, async {
                listener.accept().await.unwrap().0
            });
        let (mut dialled, mut accepted) = (dialled, accepted);
        assert!(dialled.socket().nodelay().unwrap());
        dialled.write_all(b"ping").await.unwrap();
        let mut ping = [0; 4];
        accepted.read_exact(&mut ping).await.unwrap();
        assert_eq!(&ping, b"ping");
    }

    #[tokio::test]
    async fn addresses_and_names_are_connected_to() {
        for host in ["127.0.0.1", "localhost"] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            greets(listener, format!("{host}:{port}").parse().unwrap()).await;
        }
    }

    #[tokio::test]
    async fn an_ipv6_address_is_connected_to() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no IPv6 on the loopback");
            eprintln!("not run: this host has no IPv6 on its loopback");
            return;
        };
        let port = listener.local_addr().unwrap().port();
        greets(listener, format!("[::1]:{port}").parse().unwrap()).await;
    }

    #[tokio::test]
    async fn a_port_without_a_server_is_refused_with_the_next_step() {
        // Bound, so that nobody else gets the port, but not listening.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        let address = HostPort::from(socket.local_addr().unwrap().as_socket().unwrap());
        let error = Dialer::default().dial(&address, LIMIT).await.unwrap_err();
        assert!(matches!(error, DialError::Refused { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "cannot connect to {address}: connection refused; is a server running there, on this port?"
            )
        );
    }

    #[tokio::test]
    async fn an_unknown_name_is_named() {
        let address: HostPort = "no-such-host.invalid:9876".parse().unwrap();
        let error = Dialer::default().dial(&address, LIMIT).await.unwrap_err();
        assert!(matches!(error, DialError::UnknownName { .. }), "{error:?}");
        assert!(error.to_string().contains("no-such-host.invalid:9876"));
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up_in_time() {
        // A full queue of connections that nobody accepts: further ones get no answer.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let address = HostPort::from(socket.local_addr().unwrap().as_socket().unwrap());
        let dialer = Dialer::default();
        let limit = Duration::from_millis(200);
        let mut held = Vec::new();
        let error = loop {
            match dialer.dial(&address, limit).await {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 100, "the queue never fills");
        };
        assert!(matches!(error, DialError::TimedOut { .. }), "{error:?}");
        assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    }
}
