//! `storm` and `death`: the latency of route queries while brokers with many topics come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::{Latency, milliseconds};
use crate::broker::Broker;
use crate::fleet::await_brokers;
use crate::frame::{RouteQueries, VERSION_5_5_0};
use crate::link::Link;
use crate::names;
use crate::open::{OpenLoad, OpenLoop, Outcome, Window};
use crate::process::{self, CpuMeter};
use crate::server::{Kind, Server, Servers};
use crate::table::Output;
use crate::truth::{MOST_BROKERS, Truth};

/// How long an answer may list a broker after its connection closed.
const TIME_TO_NOTICE: Duration = Duration::from_secs(1);
/// A dead broker stays away so long, and a new one is there so long before it dies.
const LIFE: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
struct Common {
    #[command(flatten)]
    servers: Servers,
    #[arg(long, default_value_t = 50_000)]
    topics: usize,
    /// Connections of the query load
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Route queries a second, open loop
    #[arg(long, default_value_t = 5_000)]
    rate: u32,
    /// Topics that change, and that every second query asks for
    #[arg(long, default_value_t = 100)]
    hot_topics: usize,
    /// Seconds at the start whose latencies do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    warmup: u64,
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct StormOptions {
    #[command(flatten)]
    common: Common,
    /// Brokers that all have the same topics
    #[arg(long, default_value_t = 10)]
    brokers: usize,
    /// Each broker registers so often, one topic changed
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1_000)]
    period_ms: u64,
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

#[derive(Args, Debug)]
pub(crate) struct DeathOptions {
    #[command(flatten)]
    common: Common,
    /// Brokers that all have the same topics; the last one dies
    #[arg(long, default_value_t = 4)]
    brokers: usize,
    /// How often it dies
    #[arg(long, default_value_t = 3)]
    deaths: u32,
    /// Reset the connection instead of closing it in order
    #[arg(long)]
    reset: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    topics: usize,
    brokers: usize,
    rate: u32,
    results: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    server: &'static str,
    /// Over the whole run.
    latency: Latency,
    /// Of the queries that were under way within a second after a death.
    after_death_p99_ms: Option<f64>,
    after_death_max_ms: Option<f64>,
    registrations: u64,
    /// From the first byte of a registration to its answer.
    registration_p50_ms: f64,
    registration_max_ms: f64,
    /// CPU time of the server and of this program, in cores.
    server_cores: f64,
    generator_cores: f64,
    /// The same of all other programs on the machine: they are in the latencies too.
    other_cores: f64,
}

impl StormOptions {
    pub(crate) fn run(&self) -> Result<()> {
        self.common.run(self.brokers, |kind, topics| self.measure(kind, topics))
    }

    fn measure(&self, kind: &Kind, topics: &[String]) -> Result<Entry> {
        let duration = Duration::from_secs(self.common.warmup + self.seconds);
        let (scene, members) = Scene::open(&self.common, kind, self.brokers, topics, duration)?;
        let period = Duration::from_millis(self.period_ms);
        let hot = self.common.hot_topics.clamp(1, topics.len());
        scene.play(members, |member, clock| {
            // The brokers are spread over the period, as they are on a cluster.
            let mut due = period * member.index as u32 / self.brokers as u32;
            let mut round = member.index;
            while clock.sleep_until(due) {
                let topic = round % hot;
                let changes = scene.truth.changes(member.index, topic);
                member.broker.change(topic, changes);
                member.register()?;
                scene.truth.changed(member.index, topic, changes);
                round += 1;
                due += period;
            }
            Ok(())
        })
    }
}

impl DeathOptions {
    pub(crate) fn run(&self) -> Result<()> {
        if self.brokers < 2 {
            bail!("one broker dies, and another one must be left");
        }
        self.common.run(self.brokers, |kind, topics| self.measure(kind, topics))
    }

    fn measure(&self, kind: &Kind, topics: &[String]) -> Result<Entry> {
        let first_death = LIFE + Duration::from_secs(self.common.warmup);
        let duration = first_death + LIFE * (2 * self.deaths);
        let (scene, members) = Scene::open(&self.common, kind, self.brokers, topics, duration)?;
        let (address, truth) = (scene.server.address, &scene.truth);
        let dying = self.brokers - 1;
        scene.play(members, |member, clock| {
            if member.index != dying {
                return Ok(());
            }
            for death in 0..self.deaths {
                if !clock.sleep_until(first_death + LIFE * (2 * death)) {
                    break;
                }
                let next = Link::connect(address)?;
                if self.reset {
                    member.link.reset_on_close()?;
                }
                truth.leaves(dying);
                scene.window.open(clock.start.elapsed(), TIME_TO_NOTICE);
                // Replacing the old connection closes it.
                member.link = next;
                thread::sleep(TIME_TO_NOTICE);
                truth.is_gone(dying);
                if !clock.sleep_until(first_death + LIFE * (2 * death + 1)) {
                    break;
                }
                truth.arrives(dying);
                member.register()?;
                truth.is_there(dying);
            }
            Ok(())
        })
    }
}

impl Common {
    fn run(&self, brokers: usize, measure: impl Fn(&Kind, &[String]) -> Result<Entry>) -> Result<()> {
        if brokers == 0
            || brokers > MOST_BROKERS
            || self.topics == 0
            || self.rate == 0
            || self.connections == 0
        {
            bail!("it takes 1 to {MOST_BROKERS} brokers, and at least one topic, connection and query");
        }
        let topics = names::topics(self.topics);
        let mut results = Vec::new();
        for kind in self.servers.some_kinds()? {
            let entry = measure(&kind, &topics)?;
            entry.latency.tell_wrong();
            results.push(entry);
        }
        let report =
            Report { machine: process::machine(), topics: topics.len(), brokers, rate: self.rate, results };
        if self.output == Output::Table {
            println!(
                "{}; {brokers} brokers x {} topics, {} queries/s",
                report.machine, self.topics, self.rate
            );
        }
        let rows: Vec<_> = report.results.iter().map(Entry::row).collect();
        let heads: Vec<_> = Latency::HEADS.iter().chain(&Entry::MORE_HEADS).copied().collect();
        self.output.print(&heads, &rows, &report)
    }
}

/// A server with all brokers registered, and all that is needed to load it.
struct Scene<'a> {
    common: &'a Common,
    server: Server,
    truth: Truth,
    window: Window,
    queries: RouteQueries,
    duration: Duration,
}

/// A broker and the connection that it registered over.
struct Member {
    index: usize,
    broker: Broker,
    link: Link,
    /// How long its registrations took, in nanoseconds.
    times: Histogram<u64>,
}

impl Member {
    fn register(&mut self) -> Result<()> {
        let start = Instant::now();
        self.broker.register(&mut self.link)?;
        self.times.saturating_record(start.elapsed().as_nanos() as u64);
        Ok(())
    }
}

/// The time that all threads of a scene share.
struct Clock<'a> {
    start: Instant,
    duration: Duration,
    failed: &'a AtomicBool,
}

impl Clock<'_> {
    /// Sleeps until `due` after the start; false when the scene is over by then.
    fn sleep_until(&self, due: Duration) -> bool {
        if due >= self.duration {
            return false;
        }
        thread::sleep(due.saturating_sub(self.start.elapsed()));
        self.start.elapsed() < self.duration && !self.failed.load(Ordering::Relaxed)
    }
}

impl<'a> Scene<'a> {
    fn open(
        common: &'a Common,
        kind: &Kind,
        brokers: usize,
        topics: &[String],
        duration: Duration,
    ) -> Result<(Self, Vec<Member>)> {
        let server = Server::start(kind, &common.servers)?;
        let truth = Truth::new(brokers, topics.len());
        let mut members = Vec::new();
        for index in 0..brokers {
            eprintln!("{}: registering broker {} of {brokers}", server.name, index + 1);
            truth.arrives(index);
            let mut broker = Broker::new(index, topics);
            let mut link = Link::connect(server.address)?;
            broker.register(&mut link)?;
            truth.is_there(index);
            let times = Histogram::new_with_bounds(1, 120_000_000_000, 3)?;
            members.push(Member { index, broker, link, times });
        }
        await_brokers(server.address, &topics[0], brokers)?;
        let queries = RouteQueries::new(topics, VERSION_5_5_0, 0);
        let window = Window::default();
        Ok((Self { common, server, truth, window, queries, duration }, members))
    }

    /// Runs the query load, and `act` in a thread of each broker.
    fn play<A>(&self, members: Vec<Member>, act: A) -> Result<Entry>
    where
        A: Fn(&mut Member, &Clock<'_>) -> Result<()> + Sync,
    {
        let load = OpenLoad {
            connections: self.common.connections,
            rate: self.common.rate,
            duration: self.duration,
            warm_up: Duration::from_secs(self.common.warmup),
            hot_topics: self.common.hot_topics.min(self.queries.topics()),
        };
        let open = OpenLoop::connect(&load, self.server.address, &self.queries, &self.truth, &self.window)?;
        let mut cpu = CpuMeter::new(self.server.pid());
        let mut own_cpu = CpuMeter::new(std::process::id());
        let before = (cpu.read()?, own_cpu.read()?, process::machine_cpu()?);
        let failed = AtomicBool::new(false);
        let clock = Clock { start: Instant::now(), duration: self.duration, failed: &failed };
        let (clock, act) = (&clock, &act);
        let (outcome, members) = thread::scope(|scope| {
            // A member outlives its thread: its connection stays open until the last answer is judged.
            let play = |mut member: Member| {
                move || {
                    let acted = act(&mut member, clock);
                    clock.failed.fetch_or(acted.is_err(), Ordering::Relaxed);
                    acted.map(|()| member)
                }
            };
            let mut threads = Vec::new();
            for member in members {
                threads.push(scope.spawn(play(member)));
            }
            let outcome = open.run(clock.start);
            clock.failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            let after = (cpu.read(), own_cpu.read(), process::machine_cpu());
            let joined = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a broker's thread panicked")))
            });
            ((outcome, after), joined.collect::<Result<Vec<Member>>>())
        });
        let (outcome, after) = outcome;
        let (outcome, members) = (outcome?, members?);
        let seconds = clock.start.elapsed().as_secs_f64();
        let cores = |after: Duration, before: Duration| (after - before).as_secs_f64() / seconds;
        let mut times = Histogram::<u64>::new_with_bounds(1, 120_000_000_000, 3)?;
        for member in &members {
            times.add(&member.times)?;
        }
        let (server, generator) = (cores(after.0?, before.0), cores(after.1?, before.1));
        let other = (cores(after.2?, before.2) - server - generator).max(0.0);
        let cores = Cores { server, generator, other };
        Ok(Entry::new(self.server.name, &outcome, &times, cores))
    }
}

/// Who used how much of the machine.
struct Cores {
    server: f64,
    generator: f64,
    other: f64,
}

impl Entry {
    const MORE_HEADS: [&'static str; 8] = [
        "after death p99",
        "max",
        "registrations",
        "answered p50 ms",
        "max ms",
        "server cores",
        "generator cores",
        "other cores",
    ];

    fn new(server: &'static str, outcome: &Outcome, times: &Histogram<u64>, cores: Cores) -> Self {
        let windows = &outcome.in_windows;
        let died = !windows.is_empty();
        Self {
            server,
            latency: Latency::of(outcome),
            after_death_p99_ms: died.then(|| milliseconds(windows.value_at_quantile(0.99))),
            after_death_max_ms: died.then(|| milliseconds(windows.max())),
            registrations: times.len(),
            registration_p50_ms: milliseconds(times.value_at_quantile(0.5)),
            registration_max_ms: milliseconds(times.max()),
            server_cores: cores.server,
            generator_cores: cores.generator,
            other_cores: cores.other,
        }
    }

    fn row(&self) -> Vec<String> {
        let optional = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
        let mut row = self.latency.row(self.server);
        row.extend([
            optional(self.after_death_p99_ms),
            optional(self.after_death_max_ms),
            self.registrations.to_string(),
            format!("{:.1}", self.registration_p50_ms),
            format!("{:.1}", self.registration_max_ms),
            format!("{:.2}", self.server_cores),
            format!("{:.2}", self.generator_cores),
            format!("{:.2}", self.other_cores),
        ]);
        row
    }
}
