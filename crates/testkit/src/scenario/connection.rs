//! One connection of a scenario: a thread reads, the steps take what it read.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::frame::{self, Received};

/// What a connection brought.
#[derive(Debug)]
pub(super) enum Arrival {
    Frame(Received),
    /// Bytes that are no frame, and why.
    Garbage(String),
    Closed,
    /// Nothing, for as long as was waited.
    Nothing,
}

/// An open connection.
pub(super) struct Connection {
    stream: TcpStream,
    arrivals: Receiver<Arrival>,
    /// Frames that came while the answer to another request was waited for.
    set_aside: VecDeque<Arrival>,
    closed: bool,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        Self::over(stream)
    }

    fn over(stream: TcpStream) -> io::Result<Self> {
        let (sender, arrivals) = mpsc::channel();
        let mut reading = stream.try_clone()?;
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut chunk = [0; 65536];
            loop {
                // A reset and an end look the same to the peers that are compared here.
                let count = reading.read(&mut chunk).unwrap_or(0);
                bytes.extend(&chunk[..count]);
                while let Some(length) = frame::whole(&bytes) {
                    let frame: Vec<u8> = bytes.drain(..length).collect();
                    let arrival = frame::decode(&frame).map_or_else(Arrival::Garbage, Arrival::Frame);
                    if sender.send(arrival).is_err() {
                        return;
                    }
                }
                if count == 0 {
                    if !bytes.is_empty() {
                        let _ = sender.send(Arrival::Garbage(format!("{} bytes of no frame", bytes.len())));
                    }
                    let _ = sender.send(Arrival::Closed);
                    return;
                }
            }
        });
        Ok(Self { stream, arrivals, set_aside: VecDeque::new(), closed: false })
    }

    /// Writes; a server that closed already makes this fail, which the next arrival tells better.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next arrival within a time.
    pub(super) fn next(&mut self, within: Duration) -> Arrival {
        if let Some(arrival) = self.set_aside.pop_front() {
            return arrival;
        }
        if self.closed {
            return Arrival::Closed;
        }
        match self.arrivals.recv_timeout(within) {
            Ok(Arrival::Closed) | Err(RecvTimeoutError::Disconnected) => {
                self.closed = true;
                Arrival::Closed
            }
            Ok(arrival) => arrival,
            Err(RecvTimeoutError::Timeout) => Arrival::Nothing,
        }
    }

    /// The answer with this number within a time; other frames wait for later steps.
    pub(super) fn answer(&mut self, opaque: Option<i64>, within: Duration) -> Arrival {
        let deadline = Instant::now() + within;
        let mut others = VecDeque::new();
        let found = loop {
            match self.next(deadline.saturating_duration_since(Instant::now())) {
                Arrival::Frame(frame) if opaque.is_some_and(|opaque| opaque != frame.opaque) => {
                    others.push_back(Arrival::Frame(frame));
                }
                other => break other,
            }
        };
        self.set_aside.append(&mut others);
        found
    }

    /// Says that no more bytes will come.
    pub(super) fn half_close(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes in order (FIN).
    pub(super) fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Closes with a reset (RST).
    pub(super) fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
        // The reading thread holds a clone: only its end frees the socket, and shutting down one
        // direction ends it without sending anything.
        let _ = self.stream.shutdown(Shutdown::Read);
        drop(self.stream);
        while self.arrivals.recv_timeout(Duration::from_secs(5)).is_ok() {}
    }
}

/// A port of the scenario's own, where a server may send requests to (905).
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    arrivals: Receiver<Arrival>,
}

impl Listener {
    pub(super) fn open() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let (sender, arrivals) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(mut connection) = Connection::over(stream) else { return };
                let sender = sender.clone();
                std::thread::spawn(move || {
                    loop {
                        match connection.next(Duration::from_secs(3600)) {
                            Arrival::Closed => return,
                            arrival => {
                                if sender.send(arrival).is_err() {
                                    return;
                                }
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { address, arrivals })
    }

    pub(super) fn next(&mut self, within: Duration) -> Arrival {
        self.arrivals.recv_timeout(within).unwrap_or(Arrival::Nothing)
    }
}
