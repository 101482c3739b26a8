//! What scenarios of the discovery and the registrar are made of: servers, broker processes, clients.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ChildStdin, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::{Builder, Runtime};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_discovery::chooser::Choice;
use waypost_rocketmq_discovery::client::{Discovery, Options};
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_registrar::{self as registrar, Identity, Registrar, Role, Topic};
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::code::request::GET_MAX_OFFSET;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::peers::{
    NameServer, Probe, Process, Program, Route, Scratch, Settings, Signal, Workshop, free_port, poll_until,
};

/// Far more than a process or a registration needs on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster of all brokers.
const CLUSTER: &str = "DefaultCluster";

/// Queues of each topic on each broker.
pub(crate) const QUEUES: i32 = 8;

/// The `index`-th topic.
pub(crate) fn topic(index: usize) -> String {
    format!("Topic-{index}")
}

/// The first `count` topics, with as many queues each.
pub(crate) fn topics(count: usize) -> Vec<Topic> {
    (0..count).map(|index| Topic::new(&topic(index), QUEUES)).collect()
}

/// The name of the `index`-th broker.
pub(crate) fn broker(index: usize) -> String {
    format!("broker-{index}")
}

/// What all clients of a scenario run on.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// As programs are told their servers.
pub(crate) fn list(servers: &[SocketAddr]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(";")
}

/// Starts name servers that listen on every address.
pub(crate) fn servers(program: &Program, count: usize) -> Result<Vec<NameServer>> {
    (0..count).map(|_| server(program)).collect()
}

/// Starts one.
pub(crate) fn server(program: &Program) -> Result<NameServer> {
    let settings = Settings::new().with("bindAddress", "0.0.0.0");
    Ok(NameServer::start(&Workshop::open()?, program, &settings)?)
}

/// A client; to be called inside a runtime.
pub(crate) fn discovery(servers: &str) -> Result<Discovery> {
    Ok(Discovery::start(Options::new(Source::parse(servers)?))?)
}

/// A master that only registers, from a thread of this process.
pub(crate) fn registrar(name: &str, servers: &str, topics: Vec<Topic>) -> Result<Registrar> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    registered_at(name, address, servers, topics)
}

/// As [`registrar()`], with the address that it announces.
pub(crate) fn registered_at(
    name: &str,
    address: SocketAddr,
    servers: &str,
    topics: Vec<Topic>,
) -> Result<Registrar> {
    let identity = Identity::new(CLUSTER, name, address.into());
    let mut options = registrar::Options::new(identity, Source::parse(servers)?);
    options.role = Role::Master;
    options.topics = topics;
    options.allow_unreachable = true;
    Ok(Registrar::start(options)?)
}

/// Waits until each server's route of `topic` lists exactly `count` brokers; the routes.
pub(crate) fn await_brokers(servers: &[SocketAddr], topic: &str, count: usize) -> Result<Vec<Route>> {
    let find = |server: &SocketAddr| {
        let whole = poll_until(PATIENCE, || {
            Probe::new(*server).route(topic).filter(|route| route.brokers().len() == count)
        });
        whole.with_context(|| format!("{topic} never had {count} brokers at {server}"))
    };
    servers.iter().map(find).collect()
}

/// How a broker process behaves.
#[derive(Clone, Debug)]
pub(crate) struct BrokerPlan {
    pub(crate) name: String,
    /// Where it registers.
    pub(crate) servers: String,
    /// The first so many topics.
    pub(crate) topics: usize,
    /// How late it answers.
    pub(crate) delay: Duration,
}

/// A process of its own that registers a broker and answers clients; see [`play`](super::super::play). It keeps
/// its address when it is started again, and ends with this program.
#[derive(Debug)]
pub(crate) struct BrokerProcess {
    plan: BrokerPlan,
    address: SocketAddr,
    process: Process,
    /// Its end tells the process to end.
    _input: ChildStdin,
    home: Scratch,
}

impl BrokerProcess {
    pub(crate) fn start(plan: BrokerPlan) -> Result<Self> {
        let home = Scratch::new(&plan.name);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (process, input) = launch(&plan, address, &home)?;
        Ok(Self { plan, address, process, _input: input, home })
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Kill -9, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn start_again(&mut self) -> Result<()> {
        (self.process, self._input) = launch(&self.plan, self.address, &self.home)?;
        Ok(())
    }

    /// SIGSTOP.
    pub(crate) fn stand_still(&mut self) {
        self.process.stand_still();
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self) {
        self.process.send(Signal::Continue);
    }
}

fn launch(plan: &BrokerPlan, address: SocketAddr, home: &Scratch) -> Result<(Process, ChildStdin)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["play", "broker", "--name", &plan.name, "--servers", &plan.servers])
        .args(["--address", &address.to_string(), "--topics", &plan.topics.to_string()])
        .args(["--delay-ms", &plan.delay.as_millis().to_string()]);
    let (process, input, _) = start_player(&plan.name, &mut command, home)?;
    Ok((process, input))
}

/// Starts a [`play`](super::super::play) process and waits for its first line.
pub(crate) fn start_player(
    name: &str,
    command: &mut Command,
    home: &Scratch,
) -> Result<(Process, ChildStdin, String)> {
    let mut process = Process::start_piped(name, command, &home.path().join("log"));
    let (input, output) = process.pipes().context("started with pipes")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(!line.is_empty(), "{name} ended at once:\n{}", process.log());
    Ok((process, input, line))
}

/// A client's connections to brokers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brokers {
    open: Arc<Mutex<HashMap<String, Connection>>>,
    tasks: Tasks,
}

impl Brokers {
    /// Puts a question to the chosen broker, as a message would be.
    pub(crate) async fn ask(&self, topic: &str, choice: &Choice, limit: Duration) -> Outcome {
        let began = Instant::now();
        match self.call(topic, choice, limit).await {
            Ok(()) => Outcome::Success { latency: began.elapsed() },
            Err(_) if began.elapsed() >= limit => Outcome::TimedOut { limit },
            Err(_) => Outcome::TransportError,
        }
    }

    async fn call(&self, topic: &str, choice: &Choice, limit: Duration) -> Result<(), CallError> {
        let began = Instant::now();
        let known = self.open().get(&choice.address).filter(|connection| connection.is_open()).cloned();
        let connection = match known {
            Some(connection) => connection,
            None => {
                let address: SocketAddr = choice.address.parse().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into());
                let connection =
                    Connection::open(&Dialer::default(), &Endpoint::from(address), limit, &self.tasks)
                        .await?;
                self.open().insert(choice.address.clone(), connection.clone());
                connection
            }
        };
        let queue = choice.queue.id.to_string();
        let request =
            Request { ext: &[("topic", topic), ("queueId", &queue)], ..Request::new(GET_MAX_OFFSET) };
        connection.call(&request, limit.saturating_sub(began.elapsed())).await.map(drop)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<String, Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long calls took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn note(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn count(&self) -> f64 {
        self.0.len() as f64
    }

    /// In milliseconds; `None` without any.
    pub(crate) fn percentile(&self, percent: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map(|took| millis(*took))
    }

    pub(crate) fn longest(&self) -> Option<f64> {
        self.percentile(100.0)
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<T: IntoIterator<Item = Duration>>(durations: T) -> Self {
        Self(durations.into_iter().collect())
    }
}

/// With two places.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 1e2
}

/// When `condition` first holds, looked at every millisecond; `None` if it never does.
pub(crate) fn moment(limit: Duration, mut condition: impl FnMut() -> bool) -> Option<Instant> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if condition() {
            return Some(Instant::now());
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_there() {
        let times: Times = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(times.percentile(99.0), Some(198.0));
        assert_eq!(times.percentile(50.0), Some(100.0));
        assert_eq!(times.longest(), Some(200.0));
        assert_eq!(Times::default().longest(), None);
    }
}
