//! From an accepted socket to a [`Stream`] that is ready for its first frame: reads the preamble, decides
//! by it, and shakes hands if it is TLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::preamble::{CloseReason, Decision, PreamblePolicy};
use crate::stream::{Prefixed, Stream};
use crate::tls::{HandshakeError, ServerTls};

/// How much is read at once while the connection is not known: a whole first request, as a rule.
const FIRST_READ: usize = 2_048;

/// How long a connection may stay silent before its first byte, by default: as long as an idle one.
pub const DEFAULT_FIRST_BYTE_LIMIT: Duration = Duration::from_secs(120);

/// How long preamble and handshake may take from the first byte on, by default.
pub const DEFAULT_HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// What lets connections in. Clones are cheap to share behind an `Arc`.
#[derive(Clone, Debug)]
pub struct Entrance {
    policy: PreamblePolicy,
    tls: Option<ServerTls>,
    /// How long a connection may stay silent before its first byte.
    pub first_byte_limit: Duration,
    /// How long preamble and handshake may take from the first byte on.
    pub handshake_limit: Duration,
}

/// A connection that has come in.
#[derive(Debug)]
#[non_exhaustive]
pub struct Entered {
    /// The connection; the first bytes of a plain one stand in front of it.
    pub stream: Stream,
    /// Whom a trusted proxy speaks for; else `None`, and the peer is the socket's.
    pub source: Option<SocketAddr>,
}

/// Why a connection has not come in. It is closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EntranceError {
    /// The peer left before it had sent what decides.
    #[error("the peer closed the connection before its first request")]
    Left,
    /// Nothing came in time.
    #[error("the peer sent nothing for {0:?}")]
    Silent(Duration),
    /// The preamble was not complete in time.
    #[error("the peer began a preamble and did not finish it within {0:?}")]
    Slow(Duration),
    /// The first bytes are not served here.
    #[error(transparent)]
    Refused(#[from] CloseReason),
    /// TLS did not come to be.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The connection broke.
    #[error("the connection broke before its first request: {0}")]
    Io(io::Error),
}

impl Entrance {
    /// An entrance by `policy`; whether TLS is available is taken from `tls`.
    pub fn new(policy: PreamblePolicy, tls: Option<ServerTls>) -> Self {
        let policy = PreamblePolicy { tls_available: tls.is_some(), ..policy };
        Self {
            policy,
            tls,
            first_byte_limit: DEFAULT_FIRST_BYTE_LIMIT,
            handshake_limit: DEFAULT_HANDSHAKE_LIMIT,
        }
    }

    /// Brings a connection in. If the future is dropped, the connection is closed.
    ///
    /// # Errors
    ///
    /// Why it is closed instead.
    pub async fn enter(&self, stream: TcpStream, peer: SocketAddr) -> Result<Entered, EntranceError> {
        let mut bytes = Vec::new();
        match timeout(self.first_byte_limit, read_more(&stream, &mut bytes)).await {
            Err(_) => return Err(EntranceError::Silent(self.first_byte_limit)),
            Ok(read) => read?,
        }
        let sniffed = self.sniff(&stream, peer, bytes);
        let (prefix, encrypted, source) = match timeout(self.handshake_limit, sniffed).await {
            Err(_) => return Err(EntranceError::Slow(self.handshake_limit)),
            Ok(sniffed) => sniffed?,
        };
        let stream = Prefixed::new(prefix, stream);
        let stream = match (&self.tls, encrypted) {
            // Boxed: a handshake is large, and most connections have none.
            (Some(tls), true) => Box::pin(tls.accept(stream, self.handshake_limit)).await?,
            (None, true) => return Err(CloseReason::TlsWithoutCertificate.into()),
            (_, false) => Stream::Plain(stream),
        };
        Ok(Entered { stream, source })
    }

    /// Reads until the preamble decides. Returns the bytes behind it, whether they are TLS, and the source.
    async fn sniff(
        &self,
        stream: &TcpStream,
        peer: SocketAddr,
        mut bytes: Vec<u8>,
    ) -> Result<(Bytes, bool, Option<SocketAddr>), EntranceError> {
        loop {
            let (consumed, encrypted, source) = match self.policy.decide(&bytes, peer.ip()) {
                Decision::NeedMore => {
                    read_more(stream, &mut bytes).await?;
                    continue;
                }
                Decision::Close(reason) => return Err(reason.into()),
                Decision::Plain { consumed, source } => (consumed, false, source),
                Decision::Tls { consumed, source } => (consumed, true, source),
            };
            let mut bytes = Bytes::from(bytes);
            return Ok((bytes.split_off(consumed.min(bytes.len())), encrypted, source));
        }
    }
}

/// Waits until the socket has bytes and appends them. Holds no buffer while it waits: connections on which
/// nothing comes are cheap.
async fn read_more(stream: &TcpStream, bytes: &mut Vec<u8>) -> Result<(), EntranceError> {
    loop {
        stream.readable().await.map_err(EntranceError::Io)?;
        match read_some(stream, bytes) {
            Ok(0) => return Err(EntranceError::Left),
            Ok(_) => return Ok(()),
            // It only looked as if there were some.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(EntranceError::Io(error)),
        }
    }
}

/// Appends what the socket has, at most [`FIRST_READ`] bytes. Not asynchronous, so that its buffer is not
/// part of the future.
fn read_some(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; FIRST_READ];
    let length = stream.try_read(&mut buffer)?;
    bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preamble::TlsMode;
    use crate::proxy_protocol::ProxyError;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.1 4567 9876\r\n";

    async fn pair() -> (TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        dialled.set_nodelay(true).unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        (dialled, accepted, peer)
    }

    fn entrance(mode: TlsMode) -> Entrance {
        let trusted_proxies = "loopback".parse().unwrap();
        let policy = PreamblePolicy { tls_mode: mode, tls_available: true, trusted_proxies };
        Entrance::new(policy, None)
    }

    async fn refusal(entrance: Entrance, bytes: &[u8]) -> EntranceError {
        let (mut dialled, accepted, peer) = pair().await;
        dialled.write_all(bytes).await.unwrap();
        entrance.enter(accepted, peer).await.expect_err("no entrance")
    }

    #[tokio::test]
    async fn a_single_byte_that_is_no_preamble_enters_at_once() {
        let (mut dialled, accepted, peer) = pair().await;
        dialled.write_all(b"\0").await.unwrap();
        let mut entered = entrance(TlsMode::Permissive).enter(accepted, peer).await.unwrap();
        assert_eq!(entered.source, None);
        assert!(!entered.stream.is_encrypted());
        dialled.write_all(b"\0\0\x84").await.unwrap();
        let mut frame = [0xFF; 4];
        entered.stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(frame, [0, 0, 0, 0x84]);
    }

    #[tokio::test]
    async fn a_proxy_preamble_in_pieces_is_taken_off() {
        let (mut dialled, accepted, peer) = pair().await;
        let entered = tokio::join!(
            async { entrance(TlsMode::Permissive).enter(accepted, peer).await.unwrap() },
            async {
                for byte in LINE {
                    dialled.write_all(&[*byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
                dialled.write_all(b"frame").await.unwrap();
            }
        );
        let Entered { mut stream, source } = entered.0;
        assert_eq!(source, Some("192.0.2.1:4567".parse().unwrap()));
        let mut frame = [0; 5];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"frame");
    }

    #[tokio::test]
    async fn what_is_not_served_is_refused_with_its_reason() {
        let error = refusal(entrance(TlsMode::Permissive), b"\x16\x03\x01").await;
        assert!(matches!(error, EntranceError::Refused(CloseReason::TlsWithoutCertificate)), "{error:?}");
        let error = refusal(entrance(TlsMode::Disabled), b"\x16\x03\x01").await;
        assert!(matches!(error, EntranceError::Refused(CloseReason::TlsDisabled)), "{error:?}");
        let error = refusal(entrance(TlsMode::Enforcing), b"\0\0\0\x84").await;
        assert!(matches!(error, EntranceError::Refused(CloseReason::PlainRefused)), "{error:?}");
        let error = refusal(entrance(TlsMode::Permissive), b"PROXY nonsense\r\n\0").await;
        let malformed = CloseReason::MalformedProxy(ProxyError::MalformedLine);
        assert!(matches!(error, EntranceError::Refused(reason) if reason == malformed), "{error:?}");
    }

    #[tokio::test]
    async fn a_silent_or_slow_peer_is_let_go() {
        let limit = Duration::from_millis(20);
        let impatient =
            Entrance { first_byte_limit: limit, handshake_limit: limit, ..entrance(TlsMode::Permissive) };
        let error = refusal(impatient.clone(), b"").await;
        assert!(matches!(error, EntranceError::Silent(_)), "{error:?}");
        let error = refusal(impatient, b"PROX").await;
        assert!(matches!(error, EntranceError::Slow(_)), "{error:?}");
    }

    #[tokio::test]
    async fn waiting_for_the_first_byte_takes_little_memory() {
        let (_dialled, accepted, peer) = pair().await;
        let entrance = entrance(TlsMode::Permissive);
        let waiting = entrance.enter(accepted, peer);
        assert!(size_of_val(&waiting) <= 1_024, "{} bytes", size_of_val(&waiting));
    }

    #[tokio::test]
    async fn a_peer_that_leaves_early_is_noticed() {
        for bytes in [&b""[..], b"PROXY TCP4 ", LINE] {
            let (mut dialled, accepted, peer) = pair().await;
            dialled.write_all(bytes).await.unwrap();
            drop(dialled);
            let error = entrance(TlsMode::Permissive).enter(accepted, peer).await.expect_err("it left");
            assert!(matches!(error, EntranceError::Left), "{error:?}");
        }
    }
}
