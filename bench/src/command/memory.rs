//! `memory`: what is resident with brokers, with idle connections, with every route encoded.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use crate::broker::Broker;
use crate::fleet::await_brokers;
use crate::frame::{RouteQueries, VERSION_5_5_0, VERSION_GO};
use crate::link::Link;
use crate::names;
use crate::process::{self, CpuMeter, Memory};
use crate::server::{Kind, Server, Servers};
use crate::table::Output;

/// A server is at rest when it used less than this much CPU time in one `REST_POLL`.
const REST_CPU: Duration = Duration::from_millis(10);
const REST_POLL: Duration = Duration::from_millis(500);
/// A JVM compiles and collects for a while after much work; nobody waits longer for it.
const REST_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    servers: Servers,
    #[arg(long, default_value_t = 50_000)]
    topics: usize,
    /// Brokers that all have the same topics
    #[arg(long, default_value_t = 4)]
    brokers: usize,
    /// Connections that never send a byte
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    topics: usize,
    results: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    server: &'static str,
    state: String,
    resident_mib: f64,
    /// The most that was resident up to then.
    peak_mib: f64,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        let topics = names::topics(self.topics.max(1));
        let mut results = Vec::new();
        for kind in self.servers.some_kinds()? {
            self.measure(&kind, &topics, &mut results)?;
        }
        let report = Report { machine: process::machine(), topics: topics.len(), results };
        if self.output == Output::Table {
            println!("{}; {} topics", report.machine, report.topics);
        }
        let rows: Vec<_> = report.results.iter().map(Entry::row).collect();
        self.output.print(&["server", "state", "resident MiB", "peak MiB"], &rows, &report)
    }

    fn measure(&self, kind: &Kind, topics: &[String], results: &mut Vec<Entry>) -> Result<()> {
        let server = Server::start(kind, &self.servers)?;
        let mut note = |state: String| -> Result<()> {
            rest(server.pid())?;
            let memory = Memory::of(server.pid())?;
            let mib = |kib| kib as f64 / 1024.0;
            eprintln!("{}: {state}", server.name);
            results.push(Entry {
                server: server.name,
                state,
                resident_mib: mib(memory.resident),
                peak_mib: mib(memory.peak),
            });
            Ok(())
        };
        note("empty".to_owned())?;
        let mut members = Vec::new();
        for index in 0..self.brokers {
            let mut link = Link::connect(server.address)?;
            let mut broker = Broker::new(index, topics);
            broker.register(&mut link)?;
            // A second time: what is kept to recognise a body again counts too.
            broker.register(&mut link)?;
            members.push((link, broker.heartbeat()));
            await_brokers(server.address, &topics[0], index + 1)?;
            note(format!("{} brokers", index + 1))?;
        }
        let idle = idle_connections(server.address, self.idle)?;
        note(format!("+ {} idle connections", idle.len()))?;
        for (link, heartbeat) in &mut members {
            link.send(&[heartbeat])?;
        }
        self.ask_all(server.address, topics, VERSION_5_5_0)?;
        note("+ every route asked, standard JSON".to_owned())?;
        self.ask_all(server.address, topics, VERSION_GO)?;
        note("+ every route asked, both dialects".to_owned())?;
        drop(idle);
        note("- idle connections".to_owned())
    }

    /// Asks for every topic once; every answer must list all brokers.
    fn ask_all(&self, server: SocketAddr, topics: &[String], version: u16) -> Result<()> {
        let queries = RouteQueries::new(topics, version, 0);
        let mut link = Link::connect(server)?;
        for (topic, name) in topics.iter().enumerate() {
            let body = link.succeed(&[queries.run(topic, 1)])?.body;
            let text = String::from_utf8_lossy(body);
            // Once with its addresses, once with its queues.
            let listed = text.matches("\"brokerName\"").count();
            if listed != 2 * self.brokers {
                bail!("{name} lists {listed} instead of {} brokers and queues: {text}", 2 * self.brokers);
            }
        }
        Ok(())
    }
}

/// Waits until the process does nothing any more.
fn rest(pid: u32) -> Result<()> {
    let mut cpu = CpuMeter::new(pid);
    let deadline = Instant::now() + REST_TIMEOUT;
    let mut before = cpu.read()?;
    loop {
        std::thread::sleep(REST_POLL);
        let now = cpu.read()?;
        if now - before < REST_CPU || Instant::now() > deadline {
            return Ok(());
        }
        before = now;
    }
}

fn idle_connections(server: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let connect = |number| {
        TcpStream::connect(server).with_context(|| {
            format!("idle connection {number} of {count}: raise the file limit (ulimit -n), or lower --idle")
        })
    };
    (1..=count).map(connect).collect()
}

impl Entry {
    fn row(&self) -> Vec<String> {
        let figure = |value: f64| format!("{value:.1}");
        vec![self.server.to_owned(), self.state.clone(), figure(self.resident_mib), figure(self.peak_mib)]
    }
}
