//! `waypost bench`: how fast name servers answer.
//!
//! The load itself is `waypost-rocketmq-load`'s, which the comparisons in `bench/` use, too.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use waypost_net::address::HostPort;
use waypost_net::dialer::{Dialer, resolve};
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_load::broker::{Broker, first_changes};
use waypost_rocketmq_load::closed::{self, ClosedLoad};
use waypost_rocketmq_load::error::LoadError;
use waypost_rocketmq_load::frame::{RouteQueries, VERSION_5_5_0};
use waypost_rocketmq_load::latency::{Percentiles, repeat};
use waypost_rocketmq_load::link::Link;

use crate::arguments::{BenchCommand, LookupArguments, Output, OutputArguments, RegistrationArguments};
use crate::call::Caller;
use crate::exit::Exit;
use crate::render;
use crate::run::Report;
use crate::servers::Servers;
use crate::topics;

/// The cluster of the broker that `bench register` registers.
const CLUSTER: &str = "WaypostBench";
/// Its name.
const BROKER: &str = "waypost-bench";
/// Its address, of a network that documents use and nobody has.
const ADDRESS: &str = "192.0.2.1:10911";
/// How long a server may take to say which topics it has.
const TOPICS_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Is told what is being measured and which share of it, between 0 and 1, is done.
pub type Progress = Arc<dyn Fn(&str, f64) + Send + Sync>;

/// Route queries, for programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Lookups {
    /// Connections at once.
    pub connections: usize,
    /// Queries in flight on each.
    pub depth: usize,
    /// One entry a server.
    pub servers: Vec<LookupRow>,
}

/// What one server did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LookupRow {
    /// The server.
    pub server: String,
    /// How many different topics were asked for.
    pub topics: usize,
    /// Answers.
    pub answers: u64,
    /// Of those, how many were no success.
    pub wrong: u64,
    /// Answers in one second.
    pub answers_per_second: f64,
    /// From sending a batch of `depth` queries to its last answer.
    pub latency: Percentiles,
}

/// Registrations, for programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Registrations {
    /// Topics of the broker.
    pub topics: usize,
    /// Bytes of one registration.
    pub body_bytes: usize,
    /// Entries of each server.
    pub servers: Vec<RegistrationRow>,
}

/// One kind of registration at one server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RegistrationRow {
    /// The server.
    pub server: String,
    /// `first`, `unchanged` or `one topic changed`.
    pub registration: &'static str,
    /// From sending it to the answer.
    pub latency: Percentiles,
}

/// Puts load on each server of the list, one after the other.
pub async fn bench(command: &BenchCommand, progress: &Progress, stop: &Stop) -> Report {
    match command {
        BenchCommand::Lookup(arguments) => {
            let mut lookups =
                Lookups { connections: arguments.connections, depth: arguments.depth, servers: Vec::new() };
            let outcomes = on_each(&arguments.list.servers, async |server| {
                lookups.servers.push(look_up(arguments, server, progress, stop).await?);
                Ok(())
            });
            let failures = outcomes.await;
            let wrong: u64 = lookups.servers.iter().map(|row| row.wrong).sum();
            let note =
                format!("{wrong} answers were no success: see whether the topics exist on every server");
            let report =
                report(&lookups, lookups.servers.is_empty(), failures, arguments.output, lookup_table);
            if wrong > 0 { Report { notes: vec![note], ..report } } else { report }
        }
        BenchCommand::Register(arguments) => {
            let mut registrations =
                Registrations { topics: arguments.topics, body_bytes: 0, servers: Vec::new() };
            let outcomes = on_each(&arguments.list.servers, async |server| {
                let (body_bytes, rows) = register(arguments, server, progress, stop).await?;
                registrations.body_bytes = body_bytes;
                registrations.servers.extend(rows);
                Ok(())
            });
            let failures = outcomes.await;
            let nothing = registrations.servers.is_empty();
            report(&registrations, nothing, failures, arguments.output, registration_table)
        }
    }
}

/// Why a server could not be measured.
struct Failure {
    message: String,
    unreachable: bool,
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self { unreachable: matches!(error, LoadError::Connect { .. }), message: error.to_string() }
    }
}

/// One server after the other: they may be on one machine. Returns the failures.
async fn on_each(
    servers: &Servers,
    mut measure: impl AsyncFnMut(&HostPort) -> Result<(), Failure>,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    for server in servers.addresses() {
        failures.extend(measure(server).await.err());
    }
    failures
}

fn report<T: Serialize>(
    data: &T,
    nothing: bool,
    failures: Vec<Failure>,
    output: OutputArguments,
    table: impl Fn(&T) -> String,
) -> Report {
    let exit = match (nothing, failures.is_empty()) {
        (_, true) => Exit::Done,
        (false, false) => Exit::Partial,
        (true, false) if failures.iter().all(|failure| failure.unreachable) => Exit::Unreachable,
        (true, false) => Exit::No,
    };
    let text = match output.output {
        _ if nothing => String::new(),
        Output::Table => table(data),
        Output::Json => render::json(data),
    };
    Report {
        data: text,
        errors: failures.into_iter().map(|failure| failure.message).collect(),
        exit,
        ..Report::done()
    }
}

async fn address_of(server: &HostPort) -> Result<SocketAddr, Failure> {
    let unknown = |why: &str| Failure {
        message: format!("{server} is not found: {why}; check the name"),
        unreachable: true,
    };
    let addresses = resolve(server).await.map_err(|error| unknown(&error.to_string()))?;
    addresses.first().copied().ok_or_else(|| unknown("it has no address"))
}

/// Runs what blocks on a thread of its own.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, Failure> {
    let done = Tasks::new().spawn_blocking(work).await;
    Ok(done.map_err(|_| LoadError::Panicked)??)
}

async fn look_up(
    arguments: &LookupArguments,
    server: &HostPort,
    progress: &Progress,
    stop: &Stop,
) -> Result<LookupRow, Failure> {
    let address = address_of(server).await?;
    let topics = topics_for(arguments, server).await?;
    let queries = Arc::new(RouteQueries::new(&topics, VERSION_5_5_0, arguments.depth));
    let load = ClosedLoad {
        connections: arguments.connections,
        depth: arguments.depth,
        whole_batches: true,
        threads: 1,
        duration: arguments.duration,
        shortest_answer: 0,
    };
    let (progress, stop, duration) = (Arc::clone(progress), stop.clone(), arguments.duration);
    let name = server.to_string();
    let measured = apart(move || {
        closed::run_watched(&load, address, &queries, &mut |over| {
            progress(&name, over.as_secs_f64() / duration.as_secs_f64());
            flow(&stop)
        })
    });
    let measured = measured.await?;
    Ok(LookupRow {
        server: server.to_string(),
        topics: topics.len(),
        answers: measured.answers,
        wrong: measured.wrong,
        answers_per_second: measured.answers_per_second,
        latency: measured.latency.unwrap_or_default(),
    })
}

fn flow(stop: &Stop) -> ControlFlow<()> {
    if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Those that were named, or all that the server has.
async fn topics_for(arguments: &LookupArguments, server: &HostPort) -> Result<Vec<String>, Failure> {
    let mut topics = arguments.topics.clone();
    if topics.is_empty() {
        let caller = Caller::new(Dialer::default(), TOPICS_LIMIT);
        let found = topics::ask(&caller, &Servers::one(server.clone()), None).await;
        let failure = |error: crate::first::NoAnswer| Failure {
            unreachable: error.exit() == Exit::Unreachable,
            message: error.to_string(),
        };
        topics = found.map_err(failure)?.value.topics;
    }
    // The queries are prepared without escapes.
    topics.retain(|topic| topic.chars().all(|c| !c.is_control() && c != '"' && c != '\\'));
    if topics.is_empty() {
        let message =
            format!("{server} has no topics to ask for; register some first, or name one with --topic");
        return Err(Failure { message, unreachable: false });
    }
    Ok(topics)
}

async fn register(
    arguments: &RegistrationArguments,
    server: &HostPort,
    progress: &Progress,
    stop: &Stop,
) -> Result<(usize, Vec<RegistrationRow>), Failure> {
    let address = address_of(server).await?;
    let (count, rounds) = (arguments.topics, arguments.rounds);
    let (progress, stop, name) = (Arc::clone(progress), stop.clone(), server.to_string());
    apart(move || {
        let topics: Vec<String> = (0..count).map(|number| format!("waypost-bench-{number:06}")).collect();
        let mut broker = Broker::named(CLUSTER, BROKER.to_owned(), ADDRESS.to_owned(), 0, &topics);
        let mut link = Link::connect(address)?;
        let tick = |before: usize, done: usize| {
            progress(&name, (before + done) as f64 / (2 * rounds) as f64);
            flow(&stop)
        };
        let measured = (|| {
            let first = repeat(1, |_| broker.register(&mut link), |_| flow(&stop))?;
            let unchanged = repeat(rounds, |_| broker.register(&mut link), |done| tick(0, done))?;
            let change = |round: usize| {
                let topic = round % count;
                broker.change(topic, first_changes(0, topic) + 1 + u32::try_from(round / count).unwrap_or(0));
                broker.register(&mut link)
            };
            let changed = repeat(rounds, change, |done| tick(rounds, done))?;
            Ok([("first", first), ("unchanged", unchanged), ("one topic changed", changed)])
        })();
        // Whatever happened, the server forgets it; if it cannot be told, then with the end of the connection.
        let left = broker.unregister(&mut link);
        let measured: [_; 3] = measured?;
        left?;
        let row = |(registration, latencies): (_, waypost_rocketmq_load::latency::Latencies)| {
            RegistrationRow { server: name.clone(), registration, latency: latencies.percentiles() }
        };
        Ok((broker.body_length(), measured.map(row).into()))
    })
    .await
}

const LATENCY_TITLES: [&str; 5] = ["P50", "P90", "P99", "P99.9", "MAX"];

fn latency_cells(latency: &Percentiles) -> [String; 5] {
    [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us].map(short_time)
}

/// Microseconds for people.
fn short_time(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0}us"),
        ..1_000_000.0 => format!("{:.1}ms", us / 1e3),
        _ => format!("{:.2}s", us / 1e6),
    }
}

fn lookup_table(lookups: &Lookups) -> String {
    let mut table =
        render::Table::new(&[&["SERVER", "TOPICS", "ANSWERS", "A SECOND"], &LATENCY_TITLES[..]].concat());
    for row in &lookups.servers {
        let cells = [
            row.server.clone(),
            row.topics.to_string(),
            row.answers.to_string(),
            format!("{:.0}", row.answers_per_second),
        ];
        table.row(cells.into_iter().chain(latency_cells(&row.latency)));
    }
    table.text()
}

fn registration_table(registrations: &Registrations) -> String {
    let mut table = render::Table::new(&[&["SERVER", "REGISTRATION", "COUNT"], &LATENCY_TITLES[..]].concat());
    for row in &registrations.servers {
        let cells = [row.server.clone(), row.registration.to_owned(), row.latency.count.to_string()];
        table.row(cells.into_iter().chain(latency_cells(&row.latency)));
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        for (us, text) in [(7.4, "7us"), (999.0, "999us"), (1_500.0, "1.5ms"), (2_345_000.0, "2.35s")] {
            assert_eq!(short_time(us), text);
        }
    }

    #[test]
    fn a_server_that_failed_beside_one_that_did_not_is_a_part() {
        let failure = |unreachable| Failure { message: "away".to_owned(), unreachable };
        let exit = |nothing, failures| {
            report(&1, nothing, failures, OutputArguments::default(), |_| "t".into()).exit
        };
        assert_eq!(exit(false, vec![]), Exit::Done);
        assert_eq!(exit(false, vec![failure(true)]), Exit::Partial);
        assert_eq!(exit(true, vec![failure(true)]), Exit::Unreachable);
        assert_eq!(exit(true, vec![failure(true), failure(false)]), Exit::No);
    }
}
