//! The bytes of a connection, whether it is encrypted or not.

use std::io;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream with bytes in front that were read from it before.
#[derive(Debug)]
pub struct Prefixed<S> {
    prefix: Bytes,
    inner: S,
}

impl<S> Prefixed<S> {
    /// `prefix` is read first, then what `inner` has.
    pub const fn new(prefix: Bytes, inner: S) -> Self {
        Self { prefix, inner }
    }

    /// What was read before and has not been read again.
    pub fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// Takes the bytes in front away, for a caller that keeps its own buffer.
    pub fn take_prefix(&mut self) -> Bytes {
        std::mem::take(&mut self.prefix)
    }

    /// The stream behind the bytes.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// The bytes in front and the stream.
    pub fn into_parts(self) -> (Bytes, S) {
        (self.prefix, self.inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() || buffer.remaining() == 0 {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let length = this.prefix.len().min(buffer.remaining());
        buffer.put_slice(this.prefix.get(..length).unwrap_or_default());
        this.prefix.advance(length);
        if this.prefix.is_empty() {
            // Frees what it was a part of.
            this.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// A connection on which the handshake of TLS is done, as server or as client.
#[derive(Debug)]
pub struct TlsSession(pub(crate) tokio_rustls::TlsStream<Prefixed<TcpStream>>);

/// A connection, ready for its first frame.
///
/// Written bytes of an encrypted connection may wait in it until it is flushed. Whoever only reads, waiting
/// for the next request, need not think of it: reading sends what still waits as soon as the socket takes it.
#[derive(Debug)]
pub enum Stream {
    /// Bytes as they are.
    Plain(Prefixed<TcpStream>),
    /// Bytes that TLS carries.
    Tls(Box<TlsSession>),
}

impl Stream {
    /// An unencrypted connection of which nothing has been read.
    pub const fn plain(stream: TcpStream) -> Self {
        Self::Plain(Prefixed::new(Bytes::new(), stream))
    }

    /// The socket below. What is read from it or written to it directly is missing in the stream.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream.inner(),
            Self::Tls(session) => session.0.get_ref().0.inner(),
        }
    }

    /// Whether TLS carries the bytes.
    pub const fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The other end of the socket.
    ///
    /// # Errors
    ///
    /// When the connection is already broken.
    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }
}

/// Calls a method of whichever stream it is.
macro_rules! either {
    ($stream:expr, $method:ident $(, $argument:expr)*) => {
        match $stream.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(session) => Pin::new(&mut session.0).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let session = match self.get_mut() {
            Self::Plain(stream) => return Pin::new(stream).poll_read(context, buffer),
            Self::Tls(session) => session,
        };
        let read = Pin::new(&mut session.0).poll_read(context, buffer);
        if session.0.get_ref().1.wants_write() {
            // The rest of an answer that the socket did not take whole, or an answer of TLS itself to what
            // was just read. Nobody else would send it while the peer waits for it.
            if let Poll::Ready(Err(error)) = Pin::new(&mut session.0).poll_flush(context)
                && read.is_pending()
            {
                return Poll::Ready(Err(error));
            }
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, poll_write_vectored, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(session) => session.0.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn the_bytes_in_front_are_read_first_in_any_pieces() {
        for piece in 1..8 {
            let (mut far, near) = duplex(64);
            far.write_all(b"world").await.unwrap();
            drop(far);
            let mut stream = Prefixed::new(Bytes::from_static(b"hello "), near);
            let mut read = Vec::new();
            let mut buffer = vec![0; piece];
            loop {
                let length = stream.read(&mut buffer).await.unwrap();
                if length == 0 {
                    break;
                }
                read.extend_from_slice(&buffer[..length]);
            }
            assert_eq!(read, b"hello world");
        }
    }

    #[tokio::test]
    async fn bytes_in_front_can_be_taken_away() {
        let (mut far, near) = duplex(64);
        far.write_all(b"rest").await.unwrap();
        let mut stream = Prefixed::new(Bytes::from_static(b"front"), near);
        assert_eq!(stream.take_prefix(), "front");
        let mut rest = [0; 4];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"rest");
        stream.write_all(b"back").await.unwrap();
        let mut back = [0; 4];
        far.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"back");
    }
}
