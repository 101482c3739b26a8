//! `client`: what discovery costs an application for each message.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::runtime::Runtime;
use waypost_rocketmq_discovery::client::{Discovery, Options as Settings};
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::body::{BrokerData, Dialect, QueueData, TopicRouteData};
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;

use crate::process;
use crate::table::{Output, median};

const LIMIT: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// Calls of each thread in a round
    #[arg(long, default_value_t = 100_000)]
    calls: u32,
    #[arg(long, default_value_t = 15)]
    rounds: u32,
    /// Fail if a median of CPU time is above its bar
    #[arg(long)]
    gate: bool,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What a thread does again and again; made once for each thread.
type Work = Box<dyn FnMut() + Send>;

struct Case {
    name: &'static str,
    threads: usize,
    /// Nanoseconds of CPU time a call.
    bar: Option<f64>,
    avoided: bool,
    work: fn(&Stage) -> Work,
}

const CASES: [Case; 9] = [
    Case { name: "HashMap", threads: 1, bar: None, avoided: false, work: Stage::look_into_a_map },
    Case { name: "HashMap", threads: 2, bar: None, avoided: false, work: Stage::look_into_a_map },
    Case { name: "route", threads: 1, bar: Some(300.0), avoided: false, work: Stage::route },
    Case { name: "route", threads: 2, bar: None, avoided: false, work: Stage::route },
    Case { name: "younger_than", threads: 1, bar: None, avoided: false, work: Stage::younger_than },
    Case { name: "choose", threads: 1, bar: Some(200.0), avoided: false, work: Stage::choose },
    Case { name: "choose", threads: 2, bar: Some(300.0), avoided: false, work: Stage::choose },
    Case { name: "choose, one avoided", threads: 1, bar: None, avoided: true, work: Stage::choose },
    Case { name: "choose, one avoided", threads: 2, bar: None, avoided: true, work: Stage::choose },
];

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    topics: usize,
    results: Vec<Entry>,
}

/// Nanoseconds a call.
#[derive(Debug, Serialize)]
struct Entry {
    call: &'static str,
    threads: usize,
    cpu: Vec<f64>,
    wall: Vec<f64>,
    bar: Option<f64>,
}

struct Stage {
    runtime: Runtime,
    discovery: Discovery,
    map: Arc<HashMap<String, Arc<str>>>,
    topic: String,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        ensure!(self.topics > 0 && self.calls > 0 && self.rounds > 0, "there must be something to measure");
        let stage = Stage::new(self.topics)?;
        let mut results: Vec<Entry> = CASES.iter().map(Entry::new).collect();
        for _ in 0..self.rounds {
            for (case, entry) in CASES.iter().zip(&mut results) {
                stage.avoid(case.avoided);
                let (cpu, wall) = self.round(&stage, case)?;
                entry.cpu.push(cpu);
                entry.wall.push(wall);
            }
        }
        let report = Report { machine: process::machine(), topics: self.topics, results };
        if self.output == Output::Table {
            println!("{}; {} topics; nanoseconds a call", report.machine, report.topics);
        }
        let rows: Vec<_> = report.results.iter().map(Entry::row).collect();
        let heads = ["call", "threads", "CPU min", "CPU median", "wall min", "wall median", "bar", ""];
        self.output.print(&heads, &rows, &report)?;
        let missed = report.results.iter().any(|entry| entry.reached() == Some(false));
        ensure!(!(self.gate && missed), "a bar is missed");
        Ok(())
    }

    /// Mean CPU and wall time a call, in nanoseconds; all threads begin at once.
    fn round(&self, stage: &Stage, case: &Case) -> Result<(f64, f64)> {
        let begin = Arc::new(Barrier::new(case.threads));
        let threads: Vec<_> = (0..case.threads)
            .map(|_| {
                let (mut work, begin, calls) = ((case.work)(stage), Arc::clone(&begin), self.calls);
                thread::spawn(move || {
                    for _ in 0..calls / 10 {
                        work();
                    }
                    begin.wait();
                    let (cpu, wall) = (thread_cpu(), Instant::now());
                    for _ in 0..calls {
                        work();
                    }
                    (thread_cpu() - cpu, wall.elapsed())
                })
            })
            .collect();
        let mut sums = (Duration::ZERO, Duration::ZERO);
        for thread in threads {
            let (cpu, wall) = thread.join().map_err(|_| anyhow!("a measured call failed"))?;
            sums = (sums.0 + cpu, sums.1 + wall);
        }
        let calls = f64::from(self.calls) * case.threads as f64;
        Ok((sums.0.as_nanos() as f64 / calls, sums.1.as_nanos() as f64 / calls))
    }
}

/// CPU time of this thread: others on the machine do not count.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Stage {
    fn new(topics: usize) -> Result<Self> {
        let server = serve()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let names: Vec<String> = (0..topics).map(|number| format!("topic-{number:06}")).collect();
        let source = Source::from_environment(Some(&server.to_string()))?;
        // Nothing listens at the brokers' addresses, and who is avoided shall stay so while it is measured.
        let settings = Settings { probe_brokers: false, ..Settings::new(source) };
        let discovery = runtime.block_on(async {
            let discovery = Discovery::start(settings)?;
            for name in &names {
                discovery.route(name, LIMIT).await?;
            }
            anyhow::Ok(discovery)
        })?;
        let topic = names.get(topics / 2).context("a topic")?.clone();
        let map = names.into_iter().map(|name| (name.clone(), Arc::from(name))).collect();
        Ok(Self { runtime, discovery, map: Arc::new(map), topic })
    }

    fn avoid(&self, avoided: bool) {
        let outcome =
            if avoided { Outcome::TransportError } else { Outcome::Success { latency: Duration::ZERO } };
        self.discovery.report(&self.topic, "broker-1", outcome);
    }

    fn look_into_a_map(&self) -> Work {
        let (map, topic) = (Arc::clone(&self.map), self.topic.clone());
        Box::new(move || drop(black_box(map.get(black_box(&*topic)).cloned())))
    }

    fn route(&self) -> Work {
        let (discovery, topic) = (self.discovery.clone(), self.topic.clone());
        let handle = self.runtime.handle().clone();
        Box::new(move || {
            // A known route is ready at the first poll; only what waits needs a runtime.
            let mut call = std::pin::pin!(discovery.route(black_box(&topic), LIMIT));
            let route = at_once(call.as_mut()).unwrap_or_else(|| handle.block_on(call));
            drop(black_box(route.expect("the route is known")));
        })
    }

    fn younger_than(&self) -> Work {
        let (discovery, topic) = (self.discovery.clone(), self.topic.clone());
        let handle = self.runtime.handle().clone();
        Box::new(move || {
            let age = Duration::from_secs(600);
            let mut call = std::pin::pin!(discovery.younger_than(black_box(&topic), age, LIMIT));
            let known = at_once(call.as_mut()).unwrap_or_else(|| handle.block_on(call));
            drop(black_box(known.expect("the route is known")));
        })
    }

    fn choose(&self) -> Work {
        let mut chooser = self.discovery.chooser(&self.topic);
        Box::new(move || drop(black_box(chooser.choose(None).expect("there are queues"))))
    }
}

fn at_once<T>(call: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    use std::task::{Context, Poll, Waker};
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

impl Entry {
    fn new(case: &Case) -> Self {
        Self { call: case.name, threads: case.threads, cpu: Vec::new(), wall: Vec::new(), bar: case.bar }
    }

    fn reached(&self) -> Option<bool> {
        self.bar.map(|bar| median(self.cpu.iter().copied()) <= bar)
    }

    fn row(&self) -> Vec<String> {
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let figure = |value: f64| format!("{value:.0}");
        let verdict = self.reached().map_or("", |reached| if reached { "reached" } else { "MISSED" });
        vec![
            self.call.to_owned(),
            self.threads.to_string(),
            figure(least(&self.cpu)),
            figure(median(self.cpu.iter().copied())),
            figure(least(&self.wall)),
            figure(median(self.wall.iter().copied())),
            self.bar.map(figure).unwrap_or_default(),
            verdict.to_owned(),
        ]
    }
}

/// A name server on a thread: every topic has eight queues on each of four brokers.
fn serve() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let names: Vec<String> = (0..4).map(|number| format!("broker-{number}")).collect();
    let queues = names.iter().map(|name| QueueData {
        broker_name: name.clone(),
        read_queue_nums: 8,
        write_queue_nums: 8,
        perm: 6,
        topic_sys_flag: 0,
    });
    let groups = names.iter().map(|name| BrokerData {
        broker_name: name.clone(),
        broker_addrs: [(0, "127.0.0.1:10911".to_owned())].into(),
        ..BrokerData::default()
    });
    let route = TopicRouteData {
        queue_datas: queues.collect(),
        broker_datas: groups.collect(),
        ..TopicRouteData::default()
    };
    let mut body = Vec::new();
    route.encode(Dialect::Standard, &mut body);
    let body: Arc<[u8]> = body.into();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let body = Arc::clone(&body);
            // It ends with its connection.
            thread::spawn(move || answer(stream, &body));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, body: &[u8]) -> Result<()> {
    let limits = FrameLimits::default();
    let (mut received, mut chunk) = (Vec::new(), [0; 65_536]);
    loop {
        let count = stream.read(&mut chunk)?;
        ensure!(count > 0, "the client is gone");
        received.extend_from_slice(&chunk[..count]);
        let mut out = Vec::new();
        while let Some((frame, length)) = decode_frame(&received, &limits)? {
            let opaque = Header::decode(&frame, &limits)?.opaque;
            Response { opaque, body, ..Response::new(0) }.write(HeaderEncoding::Json, &mut out);
            received.drain(..length);
        }
        stream.write_all(&out)?;
    }
}
