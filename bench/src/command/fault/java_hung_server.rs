//! `java-hung-server`: what a Java broker and its producer notice of a name server that is stopped.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use waypost_testkit::agent::Agent;
use waypost_testkit::peers::{
    Broker, JavaPeer, NameServer, Program, Settings, Signal, SteadyPlan, SteadyProducer, Story, Told,
    Version, Workshop, broker_settings, epoch_millis, poll_until,
};

use super::{Agents, Figure, Programs, Report, java_present};

const NAME: &str = "java-hung-server";

/// A broker 5.5.0 first registers 10 s after its start.
const REGISTERED: Duration = Duration::from_secs(60);

/// Sends that were due while the server stood still may end in this time after it goes on.
const TAIL: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Runs to make
    #[arg(long, value_enum, default_value_t)]
    agents: Agents,
    /// How long the server is stopped
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Seconds of sending before that
    #[arg(long, default_value_t = 20)]
    lead_in: u64,
    /// Messages a second
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// The age at which a new topic replaces the last one
    #[arg(long, default_value_t = 10)]
    fresh_seconds: u32,
    /// One in so many messages goes to the new topic
    #[arg(long, default_value_t = 2)]
    fresh_every: u32,
    /// Stop the name server that the producer started with; without agents only
    #[arg(long)]
    producers_server: bool,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !java_present(NAME) {
            return Ok(None);
        }
        let (workshop, server) = (Workshop::open()?, self.programs.server()?);
        let done = format!(
            "RocketMQ 5.5.0, one broker and one producer, {} messages a second, one in {} to a topic that is new \
             every {} s; three name servers ({server}), one stopped for {} s.",
            self.rate, self.fresh_every, self.fresh_seconds, self.seconds
        );
        let mut figures = Vec::new();
        for &with_agents in self.agents.runs() {
            let told = self.play(&workshop, &server, with_agents, &done)?;
            figures.extend(told.figures(with_agents));
        }
        Ok(Some(Report::new(NAME, done, figures)))
    }

    fn play(&self, workshop: &Workshop, program: &Program, agents: bool, text: &str) -> Result<Outcome> {
        let mode = if agents { "with agents" } else { "without agents" };
        let story = Story::begin(mode, text);
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(NameServer::start(workshop, program, &Settings::new())?);
        }
        let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let list = addresses.join(";");
        let binary = self.programs.binary()?;
        let [for_broker, for_producer] = [(); 2].map(|()| agents.then(|| Agent::start(&binary, &list)));
        let via = |agent: &Option<Agent>| {
            agent.as_ref().map_or_else(|| list.clone(), |agent| agent.address().to_string())
        };
        let _broker = broker(workshop, &via(&for_broker))?;
        for server in &servers {
            let registered =
                poll_until(REGISTERED, || server.probe().brokers()?.contains_key("broker-a").then_some(()));
            registered.with_context(|| format!("the broker never came to {}", server.address()))?;
        }
        let stopped = 0;
        let first_server = addresses[usize::from(!self.producers_server)].as_str();
        let plan = SteadyPlan {
            name_servers: &via(&for_producer),
            group: "steady",
            rate: self.rate,
            topic: "Steady",
            fresh_seconds: self.fresh_seconds,
            fresh_every: self.fresh_every,
            first_server: (!agents).then_some(first_server),
            flags: &[],
        };
        let producer = SteadyProducer::start(workshop, Version::V5, &plan)?;
        story.step(format_args!("the producer sends, with name server {:?}", producer.told().first_server));
        thread::sleep(Duration::from_secs(self.lead_in));
        servers[stopped].stand_still();
        let from = epoch_millis();
        story.step(format_args!("name server {} is stopped", addresses[stopped]));
        self.watch(&story, &producer, from);
        servers[stopped].send(Signal::Continue);
        story.step("it goes on");
        thread::sleep(TAIL);
        let told = producer.stop();
        Ok(Outcome::new(&story, &told, from))
    }

    /// Tells now and then how it goes.
    fn watch(&self, story: &Story, producer: &SteadyProducer, from: u64) {
        let end = from + self.seconds * 1_000;
        while epoch_millis() < end {
            let rest = Duration::from_millis(end.saturating_sub(epoch_millis()));
            thread::sleep(rest.min(Duration::from_secs(30)));
            let told = producer.told();
            let since = told.sends.iter().filter(|send| send.due >= from);
            let (ended, failed) = since.fold((0, 0), |(ended, failed), send| {
                (ended + 1, failed + u32::from(send.failure.is_some()))
            });
            story.step(format_args!("{ended} sends since the stop, {failed} failed"));
        }
    }
}

/// A broker as it comes, but for its ports and the size of its files.
fn broker(workshop: &Workshop, name_servers: &str) -> Result<JavaPeer> {
    let identity = Broker { cluster: "DefaultCluster", name: "broker-a", id: 0, name_servers };
    let settings = broker_settings(Version::V5, &identity)
        .with("waitTimeMillsInSendQueue", 200)
        .with("osPageCacheBusyTimeOutMills", 1_000);
    Ok(JavaPeer::broker(workshop, Version::V5, &settings)?)
}

/// What the producer saw from the stop on.
struct Outcome {
    before: Sends,
    since: Sends,
    slowest_query: Option<u64>,
    unanswered_queries: usize,
}

struct Sends {
    all: usize,
    failed: usize,
    slow: usize,
    slowest: u64,
}

impl Sends {
    fn of(told: &Told, wanted: impl Fn(u64) -> bool) -> Self {
        let sends: Vec<_> = told.sends.iter().filter(|send| wanted(send.due)).collect();
        Self {
            all: sends.len(),
            failed: sends.iter().filter(|send| send.failure.is_some()).count(),
            slow: sends.iter().filter(|send| send.took > 1_000).count(),
            slowest: sends.iter().map(|send| send.took).max().unwrap_or(0),
        }
    }
}

impl Outcome {
    fn new(story: &Story, told: &Told, from: u64) -> Self {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for failure in told.sends.iter().filter_map(|send| send.failure.as_deref()) {
            *reasons.entry(kind_of(failure)).or_default() += 1;
        }
        for (reason, count) in reasons {
            story.step(format_args!("{count} x {reason}"));
        }
        let queries: Vec<_> = told.queries.iter().filter(|query| query.started >= from).collect();
        Self {
            before: Sends::of(told, |due| due < from),
            since: Sends::of(told, |due| due >= from),
            slowest_query: queries.iter().filter_map(|query| query.took).max(),
            unanswered_queries: queries.iter().filter(|query| query.took.is_none()).count(),
        }
    }

    fn figures(&self, with_agents: bool) -> Vec<Figure> {
        let Self { before, since, .. } = self;
        let mode = if with_agents { "with agents" } else { "without agents" };
        let bound = |what: &str, value: f64, unit, bar| {
            let what = format!("{mode}: {what}");
            if with_agents { Figure::at_most(what, value, unit, bar) } else { Figure::of(what, value, unit) }
        };
        let plain = |what: &str, value: f64, unit| Figure::of(format!("{mode}: {what}"), value, unit);
        vec![
            plain("slowest send before the stop", before.slowest as f64, "ms"),
            bound("failed sends before the stop", before.failed as f64, "", 0.0),
            plain("sends since the stop", since.all as f64, ""),
            bound("failed sends", since.failed as f64, "", 0.0),
            plain("sends slower than 1 s", since.slow as f64, ""),
            bound("slowest send", since.slowest as f64, "ms", 1_000.0),
            plain("slowest route query that was answered", self.slowest_query.unwrap_or(0) as f64, "ms"),
            bound("route queries without an answer", self.unanswered_queries as f64, "", 0.0),
        ]
    }
}

/// A failure without what is different each time.
fn kind_of(failure: &str) -> String {
    failure.chars().filter(|letter| !letter.is_ascii_digit()).take(160).collect()
}
