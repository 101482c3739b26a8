//! `load`: one server that is running already.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::closed::{self, ClosedLoad};
use crate::fleet::Fleet;
use crate::frame::{RouteQueries, VERSION_5_5_0};
use crate::names;
use crate::open::{OpenLoad, OpenLoop, Outcome, Window};
use crate::table::Output;
use crate::truth::Truth;

/// When a connection sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Refill {
    /// When all its queries are answered
    Batch,
    /// For each answer
    Each,
}

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Address of the server
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9876")]
    server: SocketAddr,
    /// Its process, to measure its CPU time
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Queries in flight on each connection
    #[arg(long, default_value_t = 1)]
    depth: usize,
    #[arg(long, value_enum, default_value_t = Refill::Batch)]
    refill: Refill,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// Simulated brokers to register first; 0 asks for whatever the server has (or for a floor)
    #[arg(long, value_name = "BROKERS", default_value_t = 4)]
    register: usize,
    /// An answer with fewer bytes is wrong
    #[arg(long, value_name = "BYTES", default_value_t = 300)]
    shortest_answer: usize,
    /// Open loop: send so many queries a second, check every answer, and tell the latency
    #[arg(long, value_name = "QUERIES_PER_SECOND")]
    rate: Option<u32>,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        if self.connections == 0 || self.depth == 0 || self.threads == 0 || self.topics == 0 {
            bail!("connections, depth, threads and topics must be at least 1");
        }
        let topics = names::topics(self.topics);
        let _fleet = match self.register {
            0 => None,
            brokers => Some(Fleet::register(self.server, brokers, &topics)?),
        };
        let queries = Arc::new(RouteQueries::new(&topics, VERSION_5_5_0, self.depth));
        match self.rate {
            Some(rate) => self.run_open(rate, &queries),
            None => self.run_closed(&queries),
        }
    }

    fn run_closed(&self, queries: &Arc<RouteQueries>) -> Result<()> {
        let load = ClosedLoad {
            connections: self.connections,
            depth: self.depth,
            whole_batches: self.refill == Refill::Batch,
            threads: self.threads.min(self.connections),
            duration: Duration::from_secs(self.seconds),
            shortest_answer: self.shortest_answer,
        };
        let measured = closed::run(&load, self.server, self.pid, queries)?;
        let row = vec![
            format!("{:.0}", measured.answers_per_second),
            measured.server_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}")),
            format!("{:.2}", measured.generator_us),
            measured.other_cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}")),
            measured.wrong.to_string(),
        ];
        let heads = ["answers/s", "server us", "generator us", "other cores", "wrong"];
        self.output.print(&heads, &[row], &measured)
    }

    fn run_open(&self, rate: u32, queries: &RouteQueries) -> Result<()> {
        if self.register == 0 {
            bail!("--rate checks every answer and needs --register BROKERS");
        }
        let truth = Truth::new(self.register, self.topics);
        for broker in 0..self.register {
            truth.arrives(broker);
            truth.is_there(broker);
        }
        let duration = Duration::from_secs(self.seconds);
        let load = OpenLoad {
            connections: self.connections,
            rate,
            duration,
            warm_up: Duration::ZERO,
            hot_topics: 0,
        };
        let window = Window::default();
        let outcome = OpenLoop::connect(&load, self.server, queries, &truth, &window)?.run(Instant::now())?;
        let latency = Latency::of(&outcome);
        latency.tell_wrong();
        self.output.print(&Latency::HEADS, &[latency.row("")], &latency)
    }
}

/// The result of an open loop, for printing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) queries: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    /// p99 from due to sent: the generator's own part.
    pub(crate) sent_late_p99_ms: f64,
    pub(crate) wrong: u64,
    pub(crate) lost: u64,
    pub(crate) wrong_samples: Vec<String>,
}

impl Latency {
    pub(crate) const HEADS: [&'static str; 9] =
        ["", "queries", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "sent late p99", "wrong", "lost"];

    pub(crate) fn of(outcome: &Outcome) -> Self {
        let at = |quantile| milliseconds(outcome.latency.value_at_quantile(quantile));
        Self {
            queries: outcome.sent,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: milliseconds(outcome.latency.max()),
            sent_late_p99_ms: milliseconds(outcome.lateness.value_at_quantile(0.99)),
            wrong: outcome.wrong,
            lost: outcome.lost,
            wrong_samples: outcome.samples.clone(),
        }
    }

    pub(crate) fn row(&self, name: &str) -> Vec<String> {
        let figures = [self.p50_ms, self.p99_ms, self.p999_ms, self.max_ms, self.sent_late_p99_ms];
        let mut row = vec![name.to_owned(), self.queries.to_string()];
        row.extend(figures.map(|figure| format!("{figure:.3}")));
        row.extend([self.wrong.to_string(), self.lost.to_string()]);
        row
    }

    /// Shows the first wrong answers on standard error.
    pub(crate) fn tell_wrong(&self) {
        for sample in &self.wrong_samples {
            eprintln!("wrong answer {sample}");
        }
    }
}

pub(crate) fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
