//! `agent-death`: what servers and clients notice when an agent is killed and started again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use waypost_testkit::agent::Agent;
use waypost_testkit::peers::{
    Broker, JavaPeer, NameServer, Probe, Route, Settings, SteadyPlan, SteadyProducer, Story, Version,
    Workshop, broker_settings, poll_until,
};

use super::{Figure, Programs, Report, java_present};

const NAME: &str = "agent-death";
const TOPIC: &str = "Steady";

/// A broker first registers 10 s after its start.
const REGISTERED: Duration = Duration::from_secs(60);

/// Between two questions to a server.
const ASK_EVERY: Duration = Duration::from_millis(10);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// How often the agent is killed
    #[arg(long, default_value_t = 3)]
    deaths: u32,
    /// Seconds between two deaths
    #[arg(long, default_value_t = 20)]
    period: u64,
    /// Messages a second
    #[arg(long, default_value_t = 50)]
    rate: u32,
}

/// When a server's route of the topic was not whole.
#[derive(Debug, Default)]
struct Gaps {
    /// From the first question that did not find the broker to the first that did.
    absent: Vec<(Instant, Instant)>,
    /// The same for a route that differs from the one before the first death in anything.
    partial: Vec<(Instant, Instant)>,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !java_present(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "RocketMQ 5.5.0, one broker and one producer through one agent, {} messages a second; three name servers \
             ({program}). The agent is killed with -9 {} times, {} s apart, and started again 100 ms after each.",
            self.rate, self.deaths, self.period
        );
        let story = Story::begin(NAME, &done);
        let workshop = Workshop::open()?;
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(NameServer::start(&workshop, &program, &Settings::new())?);
        }
        let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
        let agent = Agent::start(&self.programs.binary()?, &addresses.join(";"));
        let through = agent.address().to_string();
        let identity = Broker { cluster: "DefaultCluster", name: "broker-a", id: 0, name_servers: &through };
        let _broker = JavaPeer::broker(&workshop, Version::V5, &broker_settings(Version::V5, &identity))?;
        for server in &servers {
            let known =
                poll_until(REGISTERED, || server.probe().brokers()?.contains_key("broker-a").then_some(()));
            known.with_context(|| format!("the broker never came to {}", server.address()))?;
        }
        let plan = SteadyPlan {
            name_servers: &through,
            group: "steady",
            rate: self.rate,
            topic: TOPIC,
            fresh_seconds: 0,
            fresh_every: 2,
            first_server: None,
            flags: &[],
        };
        let producer = SteadyProducer::start(&workshop, Version::V5, &plan)?;
        let probes: Vec<Probe> = servers.iter().map(NameServer::probe).collect();
        let whole = whole_routes(&probes)?;
        story.step("the producer sends, all servers know the topic");
        let (deaths, gaps) = self.kill(&story, &agent, &probes, &whole)?;
        let told = producer.stop();
        let failed = told.sends.iter().filter(|send| send.failure.is_some()).count();
        for failure in told.sends.iter().filter_map(|send| send.failure.as_deref()).take(3) {
            story.step(failure);
        }
        let slowest = told.sends.iter().map(|send| send.took).max().unwrap_or(0);
        let absent = gaps.iter().flat_map(|gap| &gap.absent).map(|(from, to)| to.duration_since(*from)).max();
        let absent = absent.unwrap_or_default().as_secs_f64();
        let again = gaps.iter().flat_map(|gap| &gap.partial).filter_map(|(_, to)| since(&deaths, *to)).max();
        let again = again.unwrap_or_default().as_secs_f64();
        let figures = vec![
            Figure::at_most("route absent at any server, longest", absent, "s", 2.0),
            Figure::at_most("every server complete again after a death, slowest", again, "s", 5.0),
            Figure::of("sends", told.sends.len() as f64, ""),
            Figure::at_most("failed sends", failed as f64, "", 0.0),
            Figure::of("slowest send", slowest as f64, "ms"),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }

    /// Kills the agent again and again while every server is asked all the time.
    fn kill(
        &self,
        story: &Story,
        agent: &Agent,
        probes: &[Probe],
        whole: &[Route],
    ) -> Result<(Vec<Instant>, Vec<Gaps>)> {
        let (done, period) = (AtomicBool::new(false), Duration::from_secs(self.period));
        let gaps: Vec<Mutex<Gaps>> = probes.iter().map(|_| Mutex::default()).collect();
        let deaths: Vec<Instant> = thread::scope(|scope| {
            for ((probe, whole), gaps) in probes.iter().zip(whole).zip(&gaps) {
                scope.spawn(|| ask(*probe, whole, gaps, &done));
            }
            let deaths = (0..self.deaths).map(|_| {
                thread::sleep(Duration::from_secs(2));
                let death = agent.kill();
                story.step("the agent is killed");
                thread::sleep(period);
                death
            });
            let deaths = deaths.collect();
            done.store(true, Ordering::Relaxed);
            deaths
        });
        ensure!(agent.restarts() == self.deaths, "the agent was restarted {} times", agent.restarts());
        let gaps: Vec<Gaps> =
            gaps.into_iter().map(|gaps| gaps.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        for (server, gaps) in gaps.iter().enumerate() {
            for (from, to) in &gaps.absent {
                let (from, to) = (since(&deaths, *from), since(&deaths, *to));
                story.step(format_args!(
                    "server {}: absent from {from:?} to {to:?} after a death",
                    server + 1
                ));
            }
        }
        Ok((deaths, gaps))
    }
}

/// The routes once they are the same for a second.
fn whole_routes(probes: &[Probe]) -> Result<Vec<Route>> {
    poll_until(REGISTERED, || {
        let first: Option<Vec<Route>> = probes.iter().map(|probe| probe.route(TOPIC)).collect();
        thread::sleep(Duration::from_secs(1));
        let second: Option<Vec<Route>> = probes.iter().map(|probe| probe.route(TOPIC)).collect();
        first.filter(|first| second.as_ref() == Some(first))
    })
    .context("not all servers know the topic")
}

/// The last death before `at`, and how long before.
fn since(deaths: &[Instant], at: Instant) -> Option<Duration> {
    deaths.iter().rev().find_map(|death| at.checked_duration_since(*death))
}

fn ask(probe: Probe, whole: &Route, gaps: &Mutex<Gaps>, done: &AtomicBool) {
    let (mut absent, mut partial) = (None, None);
    loop {
        let ended = done.load(Ordering::Relaxed);
        let route = probe.route(TOPIC).unwrap_or_default();
        let now = Instant::now();
        let mut gaps = gaps.lock().unwrap_or_else(PoisonError::into_inner);
        note(route.brokers().is_empty(), &mut absent, &mut gaps.absent, now, ended);
        note(route != *whole, &mut partial, &mut gaps.partial, now, ended);
        drop(gaps);
        if ended {
            return;
        }
        thread::sleep(ASK_EVERY);
    }
}

/// Opens a gap when it starts to be bad; closes it when it is good again, or at the end.
fn note(
    bad: bool,
    since: &mut Option<Instant>,
    list: &mut Vec<(Instant, Instant)>,
    now: Instant,
    ended: bool,
) {
    if bad {
        since.get_or_insert(now);
    }
    if !bad || ended {
        list.extend(since.take().map(|from| (from, now)));
    }
}
