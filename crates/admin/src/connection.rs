//! Connections of the admin side: those that the acceptor admits, each with a limit on silence.

use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use waypost_net::accept::Accepted;

/// A connection on which nothing moves for so long is closed: a scraper comes every minute at least, and one
/// that reads nothing holds memory.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// Hands the connections of an acceptor to the HTTP server.
pub(crate) struct Incoming {
    pub(crate) accepted: mpsc::Receiver<Accepted>,
    pub(crate) address: SocketAddr,
}

impl axum::serve::Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => {
                let peer = accepted.peer;
                (Connection { accepted, silence: Box::pin(sleep(SILENCE_MAX)) }, peer)
            }
            // The acceptor has stopped; the server is told by its own signal.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection that breaks when it is silent for too long. It keeps its place among the limits.
pub(crate) struct Connection {
    accepted: Accepted,
    silence: Pin<Box<Sleep>>,
}

impl Connection {
    /// The result of an attempt: what moved restarts the clock, what did not may have run out of time.
    fn watched<T>(&mut self, context: &mut Context<'_>, attempt: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            #[allow(clippy::disallowed_methods, reason = "the timer of tokio counts in its own instants")]
            let now = Instant::now();
            self.silence.as_mut().reset(now + SILENCE_MAX);
            return attempt;
        }
        ready!(self.silence.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.accepted.stream).poll_read(context, buffer);
        self.watched(context, attempt)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.accepted.stream).poll_write(context, bytes);
        self.watched(context, attempt)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.accepted.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.accepted.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.accepted.stream).poll_write_vectored(context, slices);
        self.watched(context, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.accepted.stream.is_write_vectored()
    }
}
