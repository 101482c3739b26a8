//! One blocking connection: a request, then its answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::LoadError;
use crate::frame::{Answer, FIRST_OPAQUE, code, request};

/// The slowest answer that is waited for: a JVM that collects garbage in the middle of a registration.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection may take to come to be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that asks one thing at a time.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    ///
    /// [`LoadError::Connect`].
    pub fn connect(server: SocketAddr) -> Result<Self, LoadError> {
        Self::try_connect(server).map_err(|source| LoadError::Connect { server, source })
    }

    /// Connects, for those who try again.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn try_connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends the pieces of one frame and takes no answer.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn send(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        pieces.iter().try_for_each(|piece| self.stream.write_all(piece))
    }

    /// Sends the pieces of one frame and waits for its answer.
    ///
    /// # Errors
    ///
    /// What the system says, or that the answer is no frame.
    pub fn call(&mut self, pieces: &[&[u8]]) -> io::Result<Answer<'_>> {
        self.send(pieces)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let frame = u32::from_be_bytes(length) as usize;
        self.received.clear();
        self.received.extend_from_slice(&length);
        self.received.resize(4 + frame, 0);
        self.stream.read_exact(&mut self.received[4..])?;
        let answer = Answer::split(&self.received).map(|(answer, _)| answer);
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not a frame"))
    }

    /// As [`Link::call`], and takes every code but 0 for an error.
    ///
    /// # Errors
    ///
    /// [`LoadError::Io`] or [`LoadError::Refused`].
    pub fn succeed(&mut self, pieces: &[&[u8]]) -> Result<Answer<'_>, LoadError> {
        let answer = self.call(pieces).map_err(LoadError::io("a request was not answered"))?;
        if answer.code() != Some(0) {
            return Err(LoadError::Refused { what: "a request".to_owned(), header: answer.header_text() });
        }
        Ok(answer)
    }

    /// The body of a route answer.
    ///
    /// # Errors
    ///
    /// As [`Link::succeed`].
    pub fn route(&mut self, topic: &str) -> Result<Vec<u8>, LoadError> {
        let query = request(code::ROUTE, &[("topic", topic)], FIRST_OPAQUE);
        Ok(self.succeed(&[&query])?.body.to_vec())
    }

    /// The close of this connection resets it instead of ending it in order.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn reset_on_close(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))?)
    }
}
