//! The open loop: queries leave when the clock says so, whether or not answers have come.
//!
//! The latency of a query counts from the moment it was *due*, so that a server that stalls is charged for
//! every query that it kept waiting, also for those that could not leave in time. Every answer is read and
//! judged against what the brokers announced.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::frame::{Answer, END_OPAQUE, FIRST_OPAQUE, RouteQueries};
use crate::poller::{Interest, Poller, Ready};
use crate::route::Route;
use crate::truth::{Before, Truth};

/// The token of the timer; connections count from 0.
const TIMER: u64 = u64::MAX;
/// Answers that have not come this long after the last query are lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many wrong answers are shown in full words.
const SHOWN: usize = 10;
/// Room for one read: some answers of 10 brokers.
const READ_BYTES: usize = 64 * 1024;

/// What to send.
#[derive(Clone, Debug)]
pub(crate) struct OpenLoad {
    pub(crate) connections: usize,
    /// Queries a second over all connections.
    pub(crate) rate: u32,
    pub(crate) duration: Duration,
    /// The latencies of the first part are not recorded; its answers are judged all the same.
    pub(crate) warm_up: Duration,
    /// Every second query asks for one of the first so many topics: those that change.
    pub(crate) hot_topics: usize,
}

/// A stretch of time whose queries are also recorded apart, in nanoseconds from the start of the load.
#[derive(Debug, Default)]
pub(crate) struct Window {
    from: AtomicU64,
    until: AtomicU64,
}

impl Window {
    /// Queries that are under way during any of the next `length` belong to the window.
    pub(crate) fn open(&self, now: Duration, length: Duration) {
        self.until.store((now + length).as_nanos() as u64, Ordering::SeqCst);
        self.from.store(now.as_nanos() as u64, Ordering::SeqCst);
    }

    fn holds(&self, due: Duration, answered: Duration) -> bool {
        let from = self.from.load(Ordering::SeqCst);
        from > 0
            && answered.as_nanos() as u64 >= from
            && due.as_nanos() as u64 <= self.until.load(Ordering::SeqCst)
    }
}

/// What came of a load.
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    /// Nanoseconds from due to answered, of all queries after the warm-up.
    pub(crate) latency: Histogram<u64>,
    /// The same of the queries in windows.
    pub(crate) in_windows: Histogram<u64>,
    /// Nanoseconds from due to sent: what the generator itself adds.
    pub(crate) lateness: Histogram<u64>,
    pub(crate) wrong: u64,
    /// The first wrong answers, in words.
    pub(crate) samples: Vec<String>,
    /// Queries that got no answer at all.
    pub(crate) lost: u64,
}

struct Session {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    pending: Vec<Pending>,
}

struct Pending {
    opaque: u32,
    topic: usize,
    due: Duration,
    before: Before,
}

/// One open loop in the calling thread.
pub(crate) struct OpenLoop<'a> {
    load: OpenLoad,
    queries: &'a RouteQueries,
    truth: &'a Truth,
    window: &'a Window,
    poller: Poller,
    timer: OwnedFd,
    sessions: Vec<Session>,
    buffer: Vec<u8>,
    opaque: u32,
    random: u64,
    outcome: Outcome,
}

impl<'a> OpenLoop<'a> {
    pub(crate) fn connect(
        load: &OpenLoad,
        server: SocketAddr,
        queries: &'a RouteQueries,
        truth: &'a Truth,
        window: &'a Window,
    ) -> Result<Self> {
        let poller = Poller::new()?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        poller.add(&timer, TIMER, Interest::Read)?;
        let mut sessions = Vec::new();
        for index in 0..load.connections {
            let stream =
                TcpStream::connect(server).with_context(|| format!("connection {index} to {server}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            poller.add(&stream, index as u64, Interest::Read)?;
            sessions.push(Session { stream, inbox: Vec::new(), outbox: Vec::new(), pending: Vec::new() });
        }
        let histogram = || Histogram::new_with_bounds(1, 120_000_000_000, 3);
        let outcome = Outcome {
            sent: 0,
            latency: histogram()?,
            in_windows: histogram()?,
            lateness: histogram()?,
            wrong: 0,
            samples: Vec::new(),
            lost: 0,
        };
        Ok(Self {
            load: load.clone(),
            queries,
            truth,
            window,
            poller,
            timer,
            sessions,
            buffer: vec![0; READ_BYTES],
            opaque: FIRST_OPAQUE,
            random: 0x9E37_79B9_7F4A_7C15,
            outcome,
        })
    }

    /// Sends for the whole duration, counted from `start`, and waits for the last answers.
    pub(crate) fn run(mut self, start: Instant) -> Result<Outcome> {
        let interval = Duration::from_secs(1) / self.load.rate;
        let spec = Timespec { tv_sec: 0, tv_nsec: i64::from(interval.subsec_nanos()) };
        let every = Itimerspec { it_interval: spec, it_value: spec };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &every)?;
        let total = (self.load.duration.as_nanos() / interval.as_nanos()) as u64;
        let end = self.load.duration + PATIENCE;
        let mut ready = Ready::new(1024);
        loop {
            self.poller.wait(&mut ready, Some(PATIENCE))?;
            for token in ready.tokens() {
                if token == TIMER {
                    let mut expirations = [0; 8];
                    // Another wake-up may have taken the expirations already: the clock decides below.
                    let _ = rustix::io::read(&self.timer, &mut expirations);
                } else {
                    self.receive(token as usize, start)?;
                }
            }
            while self.outcome.sent < total {
                let due = interval * self.outcome.sent as u32;
                let now = start.elapsed();
                if due > now {
                    break;
                }
                self.send(due, now)?;
            }
            let answered = self.sessions.iter().all(|session| session.pending.is_empty());
            if self.outcome.sent == total && (answered || start.elapsed() > end) {
                break;
            }
        }
        self.outcome.lost = self.sessions.iter().map(|session| session.pending.len() as u64).sum();
        Ok(self.outcome)
    }

    fn send(&mut self, due: Duration, now: Duration) -> Result<()> {
        let topic = self.pick_topic();
        let index = self.outcome.sent as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        self.opaque = if self.opaque + 1 < END_OPAQUE { self.opaque + 1 } else { FIRST_OPAQUE };
        session.pending.push(Pending { opaque: self.opaque, topic, due, before: self.truth.before(topic) });
        let waits = !session.outbox.is_empty();
        self.queries.append(topic, self.opaque, &mut session.outbox);
        self.outcome.sent += 1;
        if due >= self.load.warm_up {
            self.outcome.lateness.saturating_record((now - due).as_nanos() as u64);
        }
        if !waits {
            session.flush()?;
            if !session.outbox.is_empty() {
                self.poller.change(&session.stream, index as u64, Interest::ReadWrite)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize, start: Instant) -> Result<()> {
        let session = &mut self.sessions[index];
        if !session.outbox.is_empty() {
            session.flush()?;
            if session.outbox.is_empty() {
                self.poller.change(&session.stream, index as u64, Interest::Read)?;
            }
        }
        let read = match session.stream.read(&mut self.buffer) {
            Ok(0) => bail!("the server closed a connection with {} queries open", session.pending.len()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("reading answers"),
        };
        let now = start.elapsed();
        session.inbox.extend_from_slice(&self.buffer[..read]);
        let mut taken = 0;
        while let Some((answer, length)) = Answer::split(&session.inbox[taken..]) {
            taken += length;
            let number = answer.opaque();
            let asked = session.pending.iter().position(|pending| Some(pending.opaque) == number);
            let verdict = match asked.map(|position| session.pending.swap_remove(position)) {
                None => Err(format!("an answer to no query: {}", answer.header_text())),
                Some(pending) => {
                    let latency = (now - pending.due).as_nanos() as u64;
                    if pending.due >= self.load.warm_up {
                        self.outcome.latency.saturating_record(latency);
                    }
                    if self.window.holds(pending.due, now) {
                        self.outcome.in_windows.saturating_record(latency);
                    }
                    judge(self.truth, &pending, &answer)
                }
            };
            if let Err(reason) = verdict {
                self.outcome.wrong += 1;
                if self.outcome.samples.len() < SHOWN {
                    self.outcome.samples.push(format!("at {:.3} s: {reason}", now.as_secs_f64()));
                }
            }
        }
        session.inbox.drain(..taken);
        Ok(())
    }

    /// Every second query asks for a topic that changes.
    fn pick_topic(&mut self) -> usize {
        // xorshift64: cheap, and the same sequence in each run.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let hot = self.random & 1 == 0 && self.load.hot_topics > 0;
        let range = if hot { self.load.hot_topics } else { self.queries.topics() };
        (self.random >> 8) as usize % range
    }
}

impl Session {
    fn flush(&mut self) -> Result<()> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("sending a query"),
            }
        }
        Ok(())
    }
}

/// The code for a topic without a route.
const TOPIC_NOT_EXIST: u32 = 17;

fn judge(truth: &Truth, pending: &Pending, answer: &Answer<'_>) -> Result<(), String> {
    match answer.code() {
        Some(0) => {}
        Some(TOPIC_NOT_EXIST) if truth.may_be_unknown(&pending.before) => return Ok(()),
        _ => return Err(answer.header_text()),
    }
    let route = Route::parse(answer.body).map_err(|error| format!("no route: {error}"))?;
    truth.check(pending.topic, &pending.before, &route)
}
