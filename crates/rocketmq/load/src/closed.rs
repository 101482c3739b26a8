//! The closed loop: every connection keeps a fixed number of queries in flight.
//!
//! The loop sends prepared bytes, counts the frames that come back and looks at the code of nearly all of
//! them, so that one thread can drive the floor. Who wants the content checked takes the open loop.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::LoadError;
use crate::frame::{FrameCounter, RouteQueries};
use crate::latency::{Latencies, Percentiles};
use crate::poller::{Interest, Poller, Ready};
use crate::process::{self, CpuMeter};

/// Room for 16 answers of 10 brokers and some more.
const READ_BYTES: usize = 256 * 1024;
/// How long a loop waits for an answer before it looks whether it is to stop.
const IDLE: Duration = Duration::from_millis(100);
/// How long a connection may take to come to be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often whoever watches is told how far it is.
const TICK: Duration = Duration::from_millis(100);
/// Connections are opened in the first part of a run; what is measured comes after it.
const SETTLE: Duration = Duration::from_millis(400);

/// What to load a server with.
#[derive(Clone, Debug)]
pub struct ClosedLoad {
    /// Connections, shared out among the threads.
    pub connections: usize,
    /// Queries in flight on each connection.
    pub depth: usize,
    /// True: the next queries leave when all answers are there. False: one for each answer.
    pub whole_batches: bool,
    /// Threads of the generator.
    pub threads: usize,
    /// How long is measured.
    pub duration: Duration,
    /// An answer of fewer bytes cannot be a route.
    pub shortest_answer: usize,
}

/// What was seen from outside while a server was loaded.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Answers of all kinds.
    pub answers: u64,
    /// Answers that were no success, or too short for one.
    pub wrong: u64,
    /// How long was measured.
    pub seconds: f64,
    /// Answers in one second.
    pub answers_per_second: f64,
    /// CPU time of the server for one answer, user and system, in microseconds; if its process is known.
    pub server_us: Option<f64>,
    /// The same of the generator.
    pub generator_us: f64,
    /// Cores that were used by neither: more than a tenth makes the figures worthless, because the
    /// scheduler then puts server and generator on one core. Unknown where the server's process is.
    pub other_cores: Option<f64>,
    /// How long whole batches took, if that was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Percentiles>,
}

#[derive(Default)]
struct Progress {
    answers: AtomicU64,
    wrong: AtomicU64,
    /// Whether latencies count by now.
    measuring: AtomicBool,
    stop: AtomicBool,
}

/// Loads `server` and measures the process `pid` meanwhile, if it is known.
///
/// # Errors
///
/// When there are no connections, or the server closes them, or answers nothing at all.
pub fn run(
    load: &ClosedLoad,
    server: SocketAddr,
    pid: Option<u32>,
    queries: &Arc<RouteQueries>,
) -> Result<Measured, LoadError> {
    measure(load, server, pid, queries, None)
}

/// As [`run`], and takes the time from each batch to its last answer, for which the load must have whole batches.
/// `tick` is told now and then how much of the duration is over and may end it.
///
/// # Errors
///
/// As [`run`], or [`LoadError::Stopped`].
pub fn run_watched(
    load: &ClosedLoad,
    server: SocketAddr,
    queries: &Arc<RouteQueries>,
    tick: &mut dyn FnMut(Duration) -> ControlFlow<()>,
) -> Result<Measured, LoadError> {
    measure(load, server, None, queries, Some(tick))
}

/// Told how much of the duration is over; may end it.
type Tick<'a> = &'a mut dyn FnMut(Duration) -> ControlFlow<()>;

fn measure(
    load: &ClosedLoad,
    server: SocketAddr,
    pid: Option<u32>,
    queries: &Arc<RouteQueries>,
    tick: Option<Tick<'_>>,
) -> Result<Measured, LoadError> {
    let mut loops = Vec::new();
    let timed = tick.is_some() && load.whole_batches;
    for number in 0..load.threads {
        let progress = Arc::new(Progress::default());
        let mut worker = Worker::connect(load, server, number, queries, &progress)?;
        worker.timed = timed;
        loops.push((progress, thread::spawn(move || worker.run())));
    }
    let mut cpu = pid.map(CpuMeter::new);
    let mut own_cpu = CpuMeter::new(std::process::id());
    let mut sample = || -> Result<Sample, LoadError> {
        let answers = loops.iter().map(|(progress, _)| progress.answers.load(Ordering::Relaxed)).sum();
        let cpu = cpu.as_mut().map(CpuMeter::read).transpose()?;
        Ok(Sample {
            at: Instant::now(),
            answers,
            server: cpu,
            generator: own_cpu.read()?,
            machine: process::machine_cpu()?,
        })
    };
    thread::sleep(SETTLE);
    let before = sample();
    loops.iter().for_each(|(progress, _)| progress.measuring.store(true, Ordering::Relaxed));
    let waited = match tick {
        Some(tick) => wait(load.duration, tick),
        None => {
            thread::sleep(load.duration);
            ControlFlow::Continue(())
        }
    };
    let after = sample();
    let mut wrong = 0;
    for (progress, _) in &loops {
        progress.stop.store(true, Ordering::Relaxed);
        wrong += progress.wrong.load(Ordering::Relaxed);
    }
    let mut latencies = Latencies::default();
    for (_, handle) in loops {
        latencies.add(&handle.join().map_err(|_| LoadError::Panicked)??);
    }
    if waited.is_break() {
        return Err(LoadError::Stopped);
    }
    let (before, after) = (before?, after?);
    if after.answers == before.answers {
        return Err(LoadError::NoAnswer { server });
    }
    Ok(Measured { latency: timed.then(|| latencies.percentiles()), ..before.until(&after, wrong) })
}

/// Waits for `duration`, telling now and then how much of it is over.
fn wait(duration: Duration, tick: Tick<'_>) -> ControlFlow<()> {
    let start = Instant::now();
    loop {
        let over = start.elapsed().min(duration);
        tick(over)?;
        if over == duration {
            return ControlFlow::Continue(());
        }
        thread::sleep(TICK.min(duration - over));
    }
}

/// All counters at one moment.
struct Sample {
    at: Instant,
    answers: u64,
    server: Option<Duration>,
    generator: Duration,
    machine: Duration,
}

impl Sample {
    fn until(&self, later: &Self, wrong: u64) -> Measured {
        let answers = later.answers - self.answers;
        let seconds = (later.at - self.at).as_secs_f64();
        let server = later.server.zip(self.server).map(|(later, earlier)| (later - earlier).as_secs_f64());
        let generator = (later.generator - self.generator).as_secs_f64();
        let machine = later.machine.saturating_sub(self.machine).as_secs_f64();
        Measured {
            answers,
            wrong,
            seconds,
            answers_per_second: answers as f64 / seconds,
            server_us: server.map(|server| server * 1e6 / answers as f64),
            generator_us: generator * 1e6 / answers as f64,
            other_cores: server.map(|server| ((machine - server - generator) / seconds).max(0.0)),
            latency: None,
        }
    }
}

struct Worker {
    server: SocketAddr,
    /// Whether the time of each batch is taken.
    timed: bool,
    depth: usize,
    whole_batches: bool,
    shortest_answer: usize,
    queries: Arc<RouteQueries>,
    progress: Arc<Progress>,
    poller: Poller,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    counter: FrameCounter,
    /// The topic that is asked for next.
    next: usize,
    in_flight: usize,
    /// When the last batch left.
    asked: Option<Instant>,
}

impl Worker {
    /// Opens this thread's share of the connections.
    fn connect(
        load: &ClosedLoad,
        server: SocketAddr,
        number: usize,
        queries: &Arc<RouteQueries>,
        progress: &Arc<Progress>,
    ) -> Result<Self, LoadError> {
        let poller = Poller::new().map_err(LoadError::io("no epoll"))?;
        let mut connections = Vec::new();
        for index in (number..load.connections).step_by(load.threads) {
            let opened = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT).and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                poller.add(&stream, connections.len() as u64, Interest::Read)?;
                Ok(stream)
            });
            let stream = opened.map_err(|source| LoadError::Connect { server, source })?;
            // Connections start far from each other in the list of topics.
            let next = index * queries.topics() / load.connections;
            connections.push(Connection {
                stream,
                counter: FrameCounter::default(),
                next,
                in_flight: 0,
                asked: None,
            });
        }
        Ok(Self {
            server,
            timed: false,
            depth: load.depth,
            whole_batches: load.whole_batches,
            shortest_answer: load.shortest_answer,
            queries: Arc::clone(queries),
            progress: Arc::clone(progress),
            poller,
            connections,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self) -> Result<Latencies, LoadError> {
        let (server, mut latencies) = (self.server, Latencies::default());
        for connection in &mut self.connections {
            connection.ask(server, &self.queries, self.depth)?;
        }
        let mut ready = Ready::new(1024);
        while !self.progress.stop.load(Ordering::Relaxed) {
            self.poller.wait(&mut ready, Some(IDLE)).map_err(LoadError::io("waiting for answers"))?;
            let measuring = self.timed && self.progress.measuring.load(Ordering::Relaxed);
            let (mut answers, mut wrong) = (0, 0);
            for token in ready.tokens() {
                let connection = &mut self.connections[token as usize];
                let read = match connection.stream.read(&mut self.buffer) {
                    Ok(0) => return Err(LoadError::Closed { server }),
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(LoadError::io("reading answers")(error)),
                };
                let counted = connection.counter.feed(&self.buffer[..read], self.shortest_answer);
                answers += counted.frames as u64;
                wrong += counted.refused.max(counted.short) as u64;
                if counted.frames > connection.in_flight {
                    return Err(LoadError::TooManyAnswers { server });
                }
                connection.in_flight -= counted.frames;
                let wanted = self.depth - connection.in_flight;
                if wanted == self.depth
                    && measuring
                    && let Some(asked) = connection.asked
                {
                    latencies.record(asked.elapsed());
                }
                if wanted == self.depth || (!self.whole_batches && wanted > 0) {
                    connection.asked = self.timed.then(Instant::now);
                    connection.ask(server, &self.queries, wanted)?;
                }
            }
            self.progress.answers.fetch_add(answers, Ordering::Relaxed);
            self.progress.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
        Ok(latencies)
    }
}

impl Connection {
    fn ask(&mut self, server: SocketAddr, queries: &RouteQueries, count: usize) -> Result<(), LoadError> {
        let run = queries.run(self.next, count);
        let written = self.stream.write(run).map_err(LoadError::io("sending queries"))?;
        if written < run.len() {
            return Err(LoadError::NotRead { server, queries: count });
        }
        self.next = (self.next + count) % queries.topics();
        self.in_flight += count;
        Ok(())
    }
}
