//! The closed loop: every connection keeps a fixed number of queries in flight.
//!
//! The loop sends prepared bytes, counts the frames that come back and looks at the code of nearly all of
//! them, so that one thread can drive the floor. Who wants the content checked takes the open loop.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::frame::{FrameCounter, RouteQueries};
use crate::poller::{Interest, Poller, Ready};
use crate::process::{self, CpuMeter};

/// Room for 16 answers of 10 brokers and some more.
const READ_BYTES: usize = 256 * 1024;
/// How long a loop waits for an answer before it looks whether it is to stop.
const IDLE: Duration = Duration::from_millis(100);
/// Connections are opened in the first part of a run; what is measured comes after it.
const SETTLE: Duration = Duration::from_millis(400);

/// What to load a server with.
#[derive(Clone, Debug)]
pub(crate) struct ClosedLoad {
    pub(crate) connections: usize,
    /// Queries in flight on each connection.
    pub(crate) depth: usize,
    /// True: the next queries leave when all answers are there. False: one for each answer.
    pub(crate) whole_batches: bool,
    pub(crate) threads: usize,
    pub(crate) duration: Duration,
    /// An answer of fewer bytes cannot be a route.
    pub(crate) shortest_answer: usize,
}

/// What was seen from outside while a server was loaded.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) answers: u64,
    /// Answers that were no success, or too short for one.
    pub(crate) wrong: u64,
    pub(crate) seconds: f64,
    pub(crate) answers_per_second: f64,
    /// CPU time of the server for one answer, user and system, in microseconds; if its process is known.
    pub(crate) server_us: Option<f64>,
    /// The same of the generator.
    pub(crate) generator_us: f64,
    /// Cores that were used by neither: more than a tenth makes the figures worthless, because the
    /// scheduler then puts server and generator on one core. Unknown where the server's process is.
    pub(crate) other_cores: Option<f64>,
}

#[derive(Default)]
struct Progress {
    answers: AtomicU64,
    wrong: AtomicU64,
    stop: AtomicBool,
}

/// Loads `server` and measures the process `pid` meanwhile, if it is known.
pub(crate) fn run(
    load: &ClosedLoad,
    server: SocketAddr,
    pid: Option<u32>,
    queries: &Arc<RouteQueries>,
) -> Result<Measured> {
    let mut loops = Vec::new();
    for number in 0..load.threads {
        let progress = Arc::new(Progress::default());
        let mut worker = Worker::connect(load, server, number, queries, &progress)?;
        loops.push((progress, thread::spawn(move || worker.run())));
    }
    let mut cpu = pid.map(CpuMeter::new);
    let mut own_cpu = CpuMeter::new(std::process::id());
    let mut sample = || -> Result<Sample> {
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
    thread::sleep(load.duration);
    let after = sample();
    let mut wrong = 0;
    for (progress, _) in &loops {
        progress.stop.store(true, Ordering::Relaxed);
        wrong += progress.wrong.load(Ordering::Relaxed);
    }
    for (_, handle) in loops {
        handle.join().map_err(|_| anyhow::anyhow!("a load thread panicked"))??;
    }
    let (before, after) = (before?, after?);
    if after.answers == before.answers {
        bail!("no answer within {:?}", load.duration);
    }
    Ok(before.until(&after, wrong))
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
        }
    }
}

struct Worker {
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
}

impl Worker {
    /// Opens this thread's share of the connections.
    fn connect(
        load: &ClosedLoad,
        server: SocketAddr,
        number: usize,
        queries: &Arc<RouteQueries>,
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let poller = Poller::new()?;
        let mut connections = Vec::new();
        for index in (number..load.connections).step_by(load.threads) {
            let stream = TcpStream::connect(server)
                .with_context(|| format!("connection {index} to {server} (file limit?)"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            poller.add(&stream, connections.len() as u64, Interest::Read)?;
            // Connections start far from each other in the list of topics.
            let next = index * queries.topics() / load.connections;
            connections.push(Connection { stream, counter: FrameCounter::default(), next, in_flight: 0 });
        }
        Ok(Self {
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

    fn run(&mut self) -> Result<()> {
        for connection in &mut self.connections {
            connection.ask(&self.queries, self.depth)?;
        }
        let mut ready = Ready::new(1024);
        while !self.progress.stop.load(Ordering::Relaxed) {
            self.poller.wait(&mut ready, Some(IDLE))?;
            let (mut answers, mut wrong) = (0, 0);
            for token in ready.tokens() {
                let connection = &mut self.connections[token as usize];
                let read = match connection.stream.read(&mut self.buffer) {
                    Ok(0) => bail!("the server closed a connection"),
                    Ok(read) => read,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error).context("reading answers"),
                };
                let counted = connection.counter.feed(&self.buffer[..read], self.shortest_answer);
                answers += counted.frames as u64;
                wrong += counted.refused.max(counted.short) as u64;
                if counted.frames > connection.in_flight {
                    bail!("more answers than queries");
                }
                connection.in_flight -= counted.frames;
                let wanted = self.depth - connection.in_flight;
                if wanted == self.depth || (!self.whole_batches && wanted > 0) {
                    connection.ask(&self.queries, wanted)?;
                }
            }
            self.progress.answers.fetch_add(answers, Ordering::Relaxed);
            self.progress.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Connection {
    fn ask(&mut self, queries: &RouteQueries, count: usize) -> Result<()> {
        let run = queries.run(self.next, count);
        let written = self.stream.write(run).context("sending queries")?;
        if written < run.len() {
            bail!("the server does not read: {count} queries do not fit into the socket");
        }
        self.next = (self.next + count) % queries.topics();
        self.in_flight += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::floor::Floor;
    use crate::frame::VERSION_5_5_0;

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
        let queries = Arc::new(RouteQueries::new(&crate::names::topics(100), VERSION_5_5_0, 16));
        for load in [load(4, 1, true, 1), load(4, 16, true, 1), load(4, 16, false, 2)] {
            let measured = run(&load, address, None, &queries).unwrap();
            assert!(measured.answers > 100, "{load:?}: {measured:?}");
            assert_eq!(measured.wrong, 0);
        }
    }

    #[test]
    fn short_answers_are_counted_as_wrong() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let floor = Floor::new(listener, 200, false).unwrap();
        thread::spawn(move || floor.run());
        let queries = Arc::new(RouteQueries::new(&crate::names::topics(100), VERSION_5_5_0, 16));
        let measured = run(&load(2, 1, true, 1), address, None, &queries).unwrap();
        assert!(measured.wrong > 0);
    }
}
