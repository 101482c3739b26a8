//! A client that sends raw bytes and reads whole answers.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Request;

use super::{SOON, json, poll_until, route_query};

/// Larger answers than peers accept, so that a test sees what they would not.
const LIMITS: FrameLimits = FrameLimits { frame_max: 1 << 30, header_max: 1 << 24, header_depth: 64 };

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) opaque: i32,
    pub(crate) remark: Option<String>,
    pub(crate) ext: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) encoding: HeaderEncoding,
}

impl Answer {
    /// The remark, or an empty text.
    pub(crate) fn remark(&self) -> &str {
        self.remark.as_deref().unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection. Every read gives up after [`SOON`].
pub(crate) struct Client<S = TcpStream> {
    stream: S,
    opaque: i32,
    received: Vec<u8>,
}

impl Client {
    /// Connects.
    pub(crate) fn to(server: SocketAddr) -> Self {
        Self::try_to(server).unwrap_or_else(|error| panic!("cannot connect to {server}: {error}"))
    }

    pub(crate) fn try_to(server: SocketAddr) -> io::Result<Self> {
        Self::over_socket(TcpStream::connect_timeout(&server, SOON)?)
    }

    /// Connects from an address of this machine: all of 127.0.0.0/8 are.
    pub(crate) fn from(source: IpAddr, server: SocketAddr) -> Self {
        let connect = || {
            let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
            socket.connect(&server.into())?;
            Self::over_socket(socket.into())
        };
        connect().unwrap_or_else(|error| panic!("cannot connect from {source} to {server}: {error}"))
    }

    /// Connects with a small receive buffer: what is not read stays with the server.
    pub(crate) fn with_small_window(server: SocketAddr) -> Self {
        let connect = || {
            let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
            socket.set_recv_buffer_size(4_096)?;
            socket.connect(&server.into())?;
            Self::over_socket(socket.into())
        };
        connect().unwrap_or_else(|error| panic!("cannot connect to {server}: {error}"))
    }

    fn over_socket(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.set_write_timeout(Some(SOON))?;
        Ok(Self::over(stream))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// This end.
    pub(crate) fn local(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket has an address")
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes with a reset instead of an end.
    pub(crate) fn reset(self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Whether anything comes within `limit`, be it the end.
    pub(crate) fn is_answered_within(&self, limit: Duration) -> bool {
        let _ = self.stream.set_read_timeout(Some(limit));
        let peeked = self.stream.peek(&mut [0]);
        let _ = self.stream.set_read_timeout(Some(SOON));
        !matches!(peeked, Err(error) if is_waiting(&error))
    }

    /// Whether the server closes the connection within `limit` without another byte.
    pub(crate) fn is_closed_within(&mut self, limit: Duration) -> bool {
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(50)));
        let closed = poll_until(limit, || match self.stream.read(&mut [0; 64]) {
            Ok(0) => Some(true),
            Ok(_) => Some(false),
            Err(error) if is_waiting(&error) => None,
            Err(_) => Some(true),
        });
        let _ = self.stream.set_read_timeout(Some(SOON));
        closed == Some(true)
    }
}

impl<S: Read + Write> Client<S> {
    /// A client over a connection that is open already.
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, opaque: 0, received: Vec::new() }
    }

    /// Writes; a server that has closed already makes this fail, which the next read tells better.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
    }

    /// Sends a request with an opaque of its own and returns that.
    pub(crate) fn send_request(&mut self, request: &Request<'_>) -> i32 {
        self.opaque += 1;
        self.send(&json(&Request { opaque: self.opaque, ..*request }));
        self.opaque
    }

    /// Sends a request and reads its answer.
    ///
    /// # Panics
    ///
    /// If the connection is closed instead, or another answer comes.
    pub(crate) fn call(&mut self, request: &Request<'_>) -> Answer {
        self.try_call(request).unwrap_or_else(|| panic!("closed instead of an answer to {}", request.code))
    }

    /// As [`Client::call`]; `None` if the server closes the connection instead.
    pub(crate) fn try_call(&mut self, request: &Request<'_>) -> Option<Answer> {
        let opaque = self.send_request(request);
        let answer = self.next()?;
        assert_eq!(answer.opaque, opaque, "the answer to another request: {answer:?}");
        Some(answer)
    }

    /// The route of `topic`; `None` if the server closes the connection instead.
    pub(crate) fn route(&mut self, topic: &str) -> Option<Answer> {
        self.opaque += 1;
        self.send(&route_query(topic, self.opaque));
        self.next()
    }

    /// Whether there is a route for `topic`.
    pub(crate) fn has_route(&mut self, topic: &str) -> bool {
        let answer = self.route(topic).expect("an answer to a route query");
        assert!(matches!(answer.code, 0 | 17), "{answer:?}");
        answer.code == 0
    }

    /// The next answer; `None` once the connection is closed.
    ///
    /// # Panics
    ///
    /// If neither comes, or bytes that are no answer.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        let mut chunk = [0; 65_536];
        loop {
            if let Some(answer) = self.take_answer() {
                return Some(answer);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.received.is_empty(), "closed within an answer: {:?}", self.received);
                    return None;
                }
                Ok(count) => self.received.extend(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_waiting(&error) => panic!("no answer within {SOON:?}"),
                Err(_) => return None,
            }
        }
    }

    fn take_answer(&mut self) -> Option<Answer> {
        let whole = decode_frame(&self.received, &LIMITS).expect("bytes of the server are frames");
        let (frame, length) = whole?;
        let header = Header::decode(&frame, &LIMITS).expect("headers of the server can be read");
        assert!(header.is_response(), "the server asks instead of answering: {header:?}");
        let answer = Answer {
            code: header.code,
            opaque: header.opaque,
            remark: header.remark.as_deref().map(str::to_owned),
            ext: header.ext.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            body: frame.body.to_vec(),
            encoding: frame.encoding,
        };
        drop(header);
        self.received.drain(..length);
        Some(answer)
    }
}

fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
