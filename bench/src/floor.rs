//! The floor: what it costs to answer a frame without looking into it.
//!
//! One epoll thread reads what a socket has, counts the frames that are whole, and writes that many canned
//! answers at once. No name server on the same kernel can be cheaper by more than its luck.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::frame::FrameCounter;
use crate::poller::{Interest, Poller, Ready};

/// The token of the listening socket; connections count from 0.
const LISTENER: u64 = u64::MAX;
/// One read takes all that a peer with 16 queries in flight can have sent, many times over.
const READ_BYTES: usize = 64 * 1024;
/// So many answers stand ready behind each other: one write answers a whole read.
const ANSWERS: usize = READ_BYTES / 100;

/// A server that answers every frame with the same bytes.
pub(crate) struct Floor {
    listener: TcpListener,
    poller: Poller,
    interest: Interest,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// The canned answer, `ANSWERS` times.
    answers: Vec<u8>,
    answer_length: usize,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    counter: FrameCounter,
    /// Bytes of answers that the socket did not take yet.
    owed: usize,
}

impl Floor {
    /// Answers on `listener` with frames of `answer_length` bytes in all.
    pub(crate) fn new(listener: TcpListener, answer_length: usize, edge: bool) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        let answer = canned_answer(answer_length);
        Ok(Self {
            listener,
            poller,
            interest: if edge { Interest::ReadEdge } else { Interest::Read },
            connections: Vec::new(),
            free: Vec::new(),
            answer_length: answer.len(),
            answers: answer.repeat(ANSWERS),
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Serves until the process ends.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut ready = Ready::new(1024);
        loop {
            self.poller.wait(&mut ready, None)?;
            for token in ready.tokens() {
                if token == LISTENER {
                    self.accept()?;
                } else if !self.serve(token as usize) {
                    self.connections[token as usize] = None;
                    self.free.push(token as usize);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poller.add(&stream, index as u64, self.interest)?;
            self.connections[index] = Some(Connection { stream, counter: FrameCounter::default(), owed: 0 });
        }
    }

    /// Reads and answers; false when the connection is over.
    fn serve(&mut self, index: usize) -> bool {
        let Some(connection) = self.connections[index].as_mut() else { return true };
        let had_to_wait = connection.owed > 0;
        if had_to_wait && !connection.pay(&self.answers, self.answer_length) {
            return false;
        }
        while connection.owed == 0 {
            let read = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            };
            let frames = connection.counter.feed(&self.buffer[..read], 0).frames;
            connection.owed = frames * self.answer_length;
            if !connection.pay(&self.answers, self.answer_length) {
                return false;
            }
            // A read that did not fill the buffer took everything, so that no second one is needed.
            if read < self.buffer.len() {
                break;
            }
        }
        let waits = connection.owed > 0;
        let interest = if waits { Interest::Write } else { self.interest };
        waits == had_to_wait || self.poller.change(&connection.stream, index as u64, interest).is_ok()
    }
}

impl Connection {
    /// Writes owed bytes until the socket takes no more; false when it is broken.
    fn pay(&mut self, answers: &[u8], answer_length: usize) -> bool {
        while self.owed > 0 {
            let start = (answer_length - self.owed % answer_length) % answer_length;
            let end = answers.len().min(start + self.owed);
            match self.stream.write(&answers[start..end]) {
                Ok(written) => self.owed -= written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// A frame of `length` bytes with a header of success and a body that means nothing.
fn canned_answer(length: usize) -> Vec<u8> {
    let header = br#"{"code":0,"flag":1,"language":"JAVA","opaque":100000000,"serializeTypeCurrentRPC":"JSON","version":513}"#;
    let length = length.max(8 + header.len());
    let mut answer = ((length - 4) as u32).to_be_bytes().to_vec();
    answer.extend_from_slice(&(header.len() as u32).to_be_bytes());
    answer.extend_from_slice(header);
    answer.resize(length, b'x');
    answer
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::closed::{self, ClosedLoad};
    use crate::frame::{RouteQueries, VERSION_5_5_0};
    use crate::names;
    use waypost_rocketmq_load::error::LoadError;

    #[test]
    fn every_query_gets_one_answer_of_the_wanted_length() {
        for edge in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let floor = Floor::new(listener, 1_035, edge).unwrap();
            thread::spawn(move || floor.run());
            let mut stream = TcpStream::connect(address).unwrap();
            let queries = RouteQueries::new(&["orders".to_owned()], VERSION_5_5_0, 500);
            for round in 1..=3 {
                stream.write_all(queries.run(0, round * 100)).unwrap();
                let mut answers = vec![0; round * 100 * 1_035];
                stream.read_exact(&mut answers).unwrap();
                let counted = FrameCounter::default().feed(&answers, 1_035);
                assert_eq!((counted.frames, counted.refused, counted.short), (round * 100, 0, 0));
            }
        }
    }

    fn load(connections: usize, depth: usize, whole_batches: bool, threads: usize) -> ClosedLoad {
        let duration = Duration::from_millis(100);
        ClosedLoad { connections, depth, whole_batches, threads, duration, shortest_answer: 900 }
    }

    #[test]
    fn the_loop_drives_a_floor_without_a_wrong_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let floor = Floor::new(listener, 1_035, false).unwrap();
        thread::spawn(move || floor.run());
        let queries = Arc::new(RouteQueries::new(&names::topics(100), VERSION_5_5_0, 16));
        for load in [load(4, 1, true, 1), load(4, 16, true, 1), load(4, 16, false, 2)] {
            let measured = closed::run(&load, address, None, &queries).unwrap();
            assert!(measured.answers > 100, "{load:?}: {measured:?}");
            assert_eq!((measured.wrong, measured.latency), (0, None));
        }
    }

    #[test]
    fn a_watched_loop_takes_times_and_can_be_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let floor = Floor::new(listener, 1_035, false).unwrap();
        thread::spawn(move || floor.run());
        let queries = Arc::new(RouteQueries::new(&names::topics(100), VERSION_5_5_0, 16));
        let mut told = Vec::new();
        let mut note = |over| {
            told.push(over);
            ControlFlow::Continue(())
        };
        let measured = closed::run_watched(&load(4, 1, true, 1), address, &queries, &mut note).unwrap();
        assert!(told.is_sorted() && told.last() == Some(&Duration::from_millis(100)), "{told:?}");
        let latency = measured.latency.unwrap();
        assert!(
            latency.count > 100 && latency.p50_us > 0.0 && latency.max_us >= latency.p99_us,
            "{latency:?}"
        );
        let mut give_up = |_| ControlFlow::Break(());
        let stopped = closed::run_watched(&load(4, 1, true, 1), address, &queries, &mut give_up);
        assert!(matches!(stopped, Err(LoadError::Stopped)), "{stopped:?}");
    }

    #[test]
    fn short_answers_are_counted_as_wrong() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let floor = Floor::new(listener, 200, false).unwrap();
        thread::spawn(move || floor.run());
        let queries = Arc::new(RouteQueries::new(&names::topics(100), VERSION_5_5_0, 16));
        let measured = closed::run(&load(2, 1, true, 1), address, None, &queries).unwrap();
        assert!(measured.wrong > 0);
    }
}
