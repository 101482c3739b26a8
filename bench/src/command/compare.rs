//! `compare`: CPU per route query, always beside the floor and in rounds.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::closed::{self, ClosedLoad, Measured};
use crate::fleet::Fleet;
use crate::frame::{FIRST_OPAQUE, RouteQueries, VERSION_5_5_0, code, request};
use crate::link::Link;
use crate::names;
use crate::process;
use crate::server::{Kind, Server, Servers};
use crate::table::{Output, median};

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Rounds over all servers; the table shows medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// How often a measurement is done again that other programs disturbed
    #[arg(long, default_value_t = 5)]
    retries: usize,
    /// Seconds of load on Java before the first round
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    java_warmup: u64,
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// Simulated brokers with all topics; four make an answer of about 1 KB
    #[arg(long, default_value_t = 4)]
    brokers: usize,
    /// End with status 1 unless Waypost reaches every bar
    #[arg(long)]
    gate: bool,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// A load under which all servers are measured, and how Waypost must stand to the floor.
#[derive(Clone, Copy, Debug)]
struct Phase {
    name: &'static str,
    connections: usize,
    depth: usize,
    /// At most so many times the floor's CPU time.
    most_cpu: f64,
    /// At least so much of the floor's throughput, where that is asked for.
    least_throughput: Option<f64>,
}

const PHASES: [Phase; 3] = [
    Phase {
        name: "one in flight, 32 connections",
        connections: 32,
        depth: 1,
        most_cpu: 1.5,
        least_throughput: Some(0.75),
    },
    Phase {
        name: "16 pipelined, 32 connections",
        connections: 32,
        depth: 16,
        most_cpu: 3.0,
        least_throughput: Some(0.4),
    },
    Phase {
        name: "one in flight, 1,000 connections",
        connections: 1_000,
        depth: 1,
        most_cpu: 1.7,
        least_throughput: None,
    },
];

/// Other programs that use more than this move server and generator onto one core, where both are cheaper.
const MOST_OTHER_CORES: f64 = 0.1;

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    answer_bytes: usize,
    results: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    load: &'static str,
    server: &'static str,
    server_us: f64,
    answers_per_second: f64,
    generator_us: f64,
    /// Cores that other programs used, in the worst round.
    other_cores: f64,
    wrong: u64,
    /// To the floor in the same run.
    cpu_ratio: f64,
    throughput_ratio: f64,
    /// For Waypost: whether the bars are reached. Unknown if other programs disturbed it or the floor.
    reached: Option<bool>,
    rounds: Vec<Measured>,
}

struct Subject {
    server: Server,
    _fleet: Option<Fleet>,
}

impl Options {
    pub(crate) fn run(&self) -> Result<()> {
        if self.rounds == 0 || self.seconds == 0 {
            bail!("rounds and seconds must be at least 1");
        }
        let topics = names::topics(self.topics);
        let longest = PHASES.iter().map(|phase| phase.depth).max().unwrap_or(1);
        let queries = Arc::new(RouteQueries::new(&topics, VERSION_5_5_0, longest));
        let (subjects, answer_bytes) = self.start(&topics)?;
        self.warm_up(&subjects, &queries)?;
        let mut results = Vec::new();
        for phase in PHASES {
            let mut rounds: Vec<Vec<Measured>> = subjects.iter().map(|_| Vec::new()).collect();
            for round in 1..=self.rounds {
                eprintln!("{}: round {round} of {}", phase.name, self.rounds);
                for (subject, measured) in subjects.iter().zip(&mut rounds) {
                    measured.push(self.undisturbed(phase, &subject.server, &queries)?);
                }
            }
            let names: Vec<_> = subjects.iter().map(|subject| subject.server.name).collect();
            results.extend(entries(phase, &names, rounds));
        }
        let report = Report { machine: process::machine(), answer_bytes, results };
        if self.output == Output::Table {
            println!("{}; answers of {} bytes", report.machine, report.answer_bytes);
        }
        let rows: Vec<_> = report.results.iter().map(Entry::row).collect();
        self.output.print(&Entry::HEADS, &rows, &report)?;
        let mut waypost = report.results.iter().filter(|entry| entry.server == "waypost");
        if self.gate && !waypost.all(|entry| entry.reached == Some(true)) {
            bail!("Waypost misses a bar, or other programs used the machine");
        }
        Ok(())
    }

    /// Starts all servers, the floor first in the list, with answers as long as the others'.
    fn start(&self, topics: &[String]) -> Result<(Vec<Subject>, usize)> {
        let mut subjects = Vec::new();
        let mut answer_bytes = 1_035;
        for kind in self.servers.kinds() {
            let server = Server::start(&kind, &self.servers)?;
            let fleet = Fleet::register(server.address, self.brokers, topics)?;
            // Java's answers and Waypost's are equally long; the first server's decide.
            if subjects.is_empty() {
                let query = request(code::ROUTE, &[("topic", &topics[0])], FIRST_OPAQUE);
                let mut link = Link::connect(server.address)?;
                let answer = link.succeed(&[&query])?;
                answer_bytes = 8 + answer.header.len() + answer.body.len();
            }
            subjects.push(Subject { server, _fleet: Some(fleet) });
        }
        let floor = Server::start(&Kind::Floor(answer_bytes), &self.servers)?;
        subjects.insert(0, Subject { server: floor, _fleet: None });
        Ok((subjects, answer_bytes))
    }

    /// Java compiles what runs often: its first seconds cost several times as much as the later ones.
    fn warm_up(&self, subjects: &[Subject], queries: &Arc<RouteQueries>) -> Result<()> {
        for subject in subjects {
            let seconds = if subject.server.name == "java" { self.java_warmup } else { 2 };
            eprintln!("{}: warming up for {seconds} s", subject.server.name);
            for phase in &PHASES[..2] {
                self.measure(*phase, &subject.server, queries, seconds.div_ceil(2))?;
            }
        }
        Ok(())
    }

    /// Measures until no other program used much of the machine meanwhile, or the retries are used up.
    fn undisturbed(&self, phase: Phase, server: &Server, queries: &Arc<RouteQueries>) -> Result<Measured> {
        let mut best = self.measure(phase, server, queries, self.seconds)?;
        for _ in 0..self.retries {
            if best.other_cores.is_none_or(|cores| cores < MOST_OTHER_CORES) {
                break;
            }
            let again = self.measure(phase, server, queries, self.seconds)?;
            if again.other_cores < best.other_cores {
                best = again;
            }
        }
        Ok(best)
    }

    fn measure(
        &self,
        phase: Phase,
        server: &Server,
        queries: &Arc<RouteQueries>,
        seconds: u64,
    ) -> Result<Measured> {
        let load = ClosedLoad {
            connections: phase.connections,
            depth: phase.depth,
            whole_batches: true,
            threads: 1,
            duration: Duration::from_secs(seconds),
            shortest_answer: 150 * self.brokers,
        };
        Ok(closed::run(&load, server.address, Some(server.pid()), queries)?)
    }
}

/// Medians of all rounds of one phase; the floor comes first.
fn entries(phase: Phase, names: &[&'static str], rounds: Vec<Vec<Measured>>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (server, rounds) in names.iter().zip(rounds) {
        let server_us = median(rounds.iter().filter_map(|round| round.server_us));
        let answers_per_second = median(rounds.iter().map(|round| round.answers_per_second));
        let floor = entries.first();
        let cpu_ratio = floor.map_or(1.0, |floor| server_us / floor.server_us);
        let throughput_ratio = floor.map_or(1.0, |floor| answers_per_second / floor.answers_per_second);
        let wrong = rounds.iter().map(|round| round.wrong).sum();
        let reached = cpu_ratio <= phase.most_cpu
            && phase.least_throughput.is_none_or(|least| throughput_ratio >= least)
            && wrong == 0;
        let other_cores = rounds.iter().filter_map(|round| round.other_cores).fold(0.0, f64::max);
        let quiet = other_cores.max(floor.map_or(0.0, |floor| floor.other_cores)) < MOST_OTHER_CORES;
        entries.push(Entry {
            load: phase.name,
            server,
            server_us,
            answers_per_second,
            generator_us: median(rounds.iter().map(|round| round.generator_us)),
            other_cores,
            wrong,
            cpu_ratio,
            throughput_ratio,
            reached: (*server == "waypost" && quiet).then_some(reached),
            rounds,
        });
    }
    entries
}

impl Entry {
    const HEADS: [&'static str; 10] = [
        "load",
        "server",
        "CPU us",
        "x floor",
        "answers/s",
        "x floor",
        "generator us",
        "other cores",
        "wrong",
        "bar",
    ];

    fn row(&self) -> Vec<String> {
        vec![
            self.load.to_owned(),
            self.server.to_owned(),
            format!("{:.2}", self.server_us),
            format!("{:.2}", self.cpu_ratio),
            format!("{:.0}", self.answers_per_second),
            format!("{:.2}", self.throughput_ratio),
            format!("{:.2}", self.generator_us),
            format!("{:.2}", self.other_cores),
            self.wrong.to_string(),
            match self.reached {
                Some(true) => "reached",
                Some(false) => "missed",
                None if self.server == "waypost" => "disturbed",
                None => "",
            }
            .to_owned(),
        ]
    }
}
