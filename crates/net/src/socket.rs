//! What every connection's socket is told, accepted or dialled.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Options of a connection.
///
/// The defaults break a connection to a machine that is gone within about half a minute: a silent one by
/// keepalive (10 s and three probes 5 s apart), one that owes acknowledgements by the user timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Send small answers at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Silence before the first keepalive probe; whole seconds.
    pub keepalive_idle: Duration,
    /// Time between keepalive probes; whole seconds.
    pub keepalive_interval: Duration,
    /// Unanswered probes after which the connection is broken.
    pub keepalive_probes: u32,
    /// How long sent bytes may stay unacknowledged; `None` leaves it to the system, which takes minutes.
    pub user_timeout: Option<Duration>,
    /// Bytes of the kernel's send buffer; `None` lets the kernel tune it.
    pub send_buffer: Option<usize>,
    /// Bytes of the kernel's receive buffer; `None` lets the kernel tune it.
    pub receive_buffer: Option<usize>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            no_delay: true,
            keepalive_idle: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(5),
            keepalive_probes: 3,
            user_timeout: Some(Duration::from_secs(30)),
            send_buffer: None,
            receive_buffer: None,
        }
    }
}

impl SocketOptions {
    /// Sets the options on a connection.
    ///
    /// # Errors
    ///
    /// What the system says; in practice only for a connection that is already dead.
    pub fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(stream);
        socket.set_tcp_nodelay(self.no_delay)?;
        let keepalive = TcpKeepalive::new()
            .with_time(self.keepalive_idle)
            .with_interval(self.keepalive_interval)
            .with_retries(self.keepalive_probes);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(self.user_timeout)?;
        if let Some(bytes) = self.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }
}

/// Whether a connection that ended with `error` was broken by time-out or by an unreachable peer, so that
/// nobody knows whether the peer still lives. A FIN or RST is not: there the peer's system spoke.
pub fn is_timeout_error(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    if matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown) {
        return true;
    }
    // The standard library has no kind for these.
    Errno::from_io_error(error).is_some_and(|errno| errno == Errno::HOSTDOWN || errno == Errno::NONET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        (dialled, accepted)
    }

    #[tokio::test]
    async fn a_connection_gets_all_options() {
        let (stream, _peer) = pair().await;
        let options = SocketOptions {
            send_buffer: Some(64 * 1024),
            receive_buffer: Some(32 * 1024),
            ..SocketOptions::default()
        };
        options.apply(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
        // Linux doubles what it is told, for its own bookkeeping.
        assert!(socket.send_buffer_size().unwrap() >= 64 * 1024);
        assert!(socket.recv_buffer_size().unwrap() >= 32 * 1024);
    }

    #[test]
    fn errors_of_silence_are_time_outs() {
        for errno in [
            Errno::TIMEDOUT,
            Errno::HOSTUNREACH,
            Errno::NETUNREACH,
            Errno::NETDOWN,
            Errno::HOSTDOWN,
            Errno::NONET,
        ] {
            assert!(is_timeout_error(&errno.into()), "{errno:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_is_not_a_time_out() {
        let (mut stream, peer) = pair().await;
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(!is_timeout_error(&error));
        for errno in [Errno::CONNRESET, Errno::PIPE, Errno::CONNABORTED, Errno::CONNREFUSED] {
            assert!(!is_timeout_error(&errno.into()), "{errno:?}");
        }
        assert!(!is_timeout_error(&io::ErrorKind::UnexpectedEof.into()));
    }
}
