//! `register`: what it costs to take all topics of a broker again.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use waypost_rocketmq_load::error::LoadError;
use waypost_rocketmq_load::latency::repeat;

use crate::broker::{Broker, first_changes};
use crate::fleet::await_brokers;
use crate::link::Link;
use crate::names;
use crate::process::{self, CpuMeter};
use crate::server::{Kind, Server, Servers};
use crate::table::Output;

/// After an answer the server may still be publishing; its CPU time counts too.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    servers: Servers,
    #[arg(long, default_value_t = 50_000)]
    topics: usize,
    /// Registrations of each kind that are measured
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Registrations of each kind that go before
    #[arg(long, default_value_t = 20)]
    warmup: usize,
    /// Brokers with the same topics that are registered besides
    #[arg(long, default_value_t = 0)]
    others: usize,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    topics: usize,
    body_bytes: usize,
    results: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    server: &'static str,
    registration: &'static str,
    /// CPU time of the server for one registration, in milliseconds.
    cpu_ms: f64,
    /// From the first byte sent to the answer, the middle one, in milliseconds.
    answered_ms: f64,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        if self.rounds == 0 || self.topics < self.warmup + self.rounds {
            bail!("it takes at least 1 round, and a topic to change for each one and each warm-up");
        }
        let topics = names::topics(self.topics);
        let mut results = Vec::new();
        for kind in self.servers.some_kinds()? {
            eprintln!("{}: {} topics", kind.name(), self.topics);
            results.extend(self.measure(&kind, &topics)?);
        }
        let body_bytes = Broker::new(0, &topics).body_length();
        let report = Report { machine: process::machine(), topics: self.topics, body_bytes, results };
        if self.output == Output::Table {
            println!("{}; {} topics, body of {body_bytes} bytes", report.machine, self.topics);
        }
        let rows: Vec<_> = report.results.iter().map(Entry::row).collect();
        self.output.print(&["server", "registration", "CPU ms", "answered ms"], &rows, &report)
    }

    fn measure(&self, kind: &Kind, topics: &[String]) -> Result<Vec<Entry>> {
        let server = Server::start(kind, &self.servers)?;
        let mut cpu = CpuMeter::new(server.pid());
        let mut entries = Vec::new();
        let mut add = |registration, (cpu_ms, answered_ms)| {
            entries.push(Entry { server: server.name, registration, cpu_ms, answered_ms });
        };
        let mut links = Vec::new();
        for index in 1..=self.others {
            let mut link = Link::connect(server.address)?;
            Broker::new(index, topics).register(&mut link)?;
            links.push(link);
        }
        let mut broker = Broker::new(0, topics);
        let mut link = Link::connect(server.address)?;
        add("first", timed(&mut cpu, 1, |_| broker.register(&mut link))?);
        await_brokers(server.address, &topics[0], 1 + self.others)?;
        // Both kinds go before either is measured: a JVM has then compiled what it needs.
        for round in 0..self.warmup {
            broker.register(&mut link)?;
            change(&mut broker, round);
            broker.register(&mut link)?;
        }
        add("unchanged", timed(&mut cpu, self.rounds, |_| broker.register(&mut link))?);
        let changed = timed(&mut cpu, self.rounds, |round| {
            change(&mut broker, self.warmup + round);
            broker.register(&mut link)
        })?;
        add("one topic changed", changed);
        Ok(entries)
    }
}

/// Changes a topic that was not changed before.
fn change(broker: &mut Broker, topic: usize) {
    broker.change(topic, first_changes(0, topic) + 1);
}

/// Does something `rounds` times: CPU time for each, and the middle of the times that they took.
fn timed(
    cpu: &mut CpuMeter,
    rounds: usize,
    action: impl FnMut(usize) -> Result<(), LoadError>,
) -> Result<(f64, f64)> {
    std::thread::sleep(SETTLE);
    let before = cpu.read()?;
    let times = repeat(rounds, action, |_| ControlFlow::Continue(()))?;
    std::thread::sleep(SETTLE);
    let used = cpu.read()? - before;
    Ok((used.as_secs_f64() * 1e3 / rounds as f64, times.percentiles().p50_us / 1e3))
}

impl Entry {
    fn row(&self) -> Vec<String> {
        vec![
            self.server.to_owned(),
            self.registration.to_owned(),
            format!("{:.2}", self.cpu_ms),
            format!("{:.2}", self.answered_ms),
        ]
    }
}
