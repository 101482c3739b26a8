//! A connection of the admin side, with a limit on how long a request may take and nothing may move.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::places::Turn;

/// A connection that breaks when its time is over.
pub(crate) struct Connection {
    stream: TcpStream,
    turn: Arc<Turn>,
    look: Pin<Box<Sleep>>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, turn: Arc<Turn>) -> Self {
        let look = Box::pin(sleep(turn.left()));
        Self { stream, turn, look }
    }

    /// Waits; breaks if that has gone on for too long.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        loop {
            ready!(self.look.as_mut().poll(context));
            let left = self.turn.left();
            if left.is_zero() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // What the time counts from has changed since it was looked at.
            self.look.set(sleep(left));
        }
    }

    fn written<T>(&mut self, context: &mut Context<'_>, attempt: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if attempt.is_pending() {
            return self.wait(context);
        }
        self.turn.wrote();
        attempt
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let attempt = Pin::new(&mut self.stream).poll_read(context, buffer);
        if attempt.is_pending() {
            return self.wait(context);
        }
        if buffer.filled().len() > before && self.turn.read() {
            // It has less time now than it had.
            let left = self.turn.left();
            self.look.set(sleep(left));
        }
        attempt
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, attempt)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
