//! `java-silent-machine`: how long Java clients pick a broker whose machine, with its name server, fell silent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use waypost_testkit::agent::Agent;
use waypost_testkit::faults::{Machine, Network};
use waypost_testkit::peers::{
    Broker, JavaPeer, Mqadmin, NameServer, Probe, Settings, SteadyPlan, SteadyProducer, Story, Told, Version,
    Workshop, broker_settings, epoch_millis, poll_until,
};

use super::{Agents, Figure, Programs, Report, java_present};

const NAME: &str = "java-silent-machine";
const TOPIC: &str = "Silent";
const LOST: &str = "broker-lost";
const LEFT: &str = "broker-left";

/// A broker first registers 10 s after its start.
const REGISTERED: Duration = Duration::from_secs(60);

/// A broker that was not picked for so long at the end is not picked any more: the client alternates.
const QUIET_MILLIS: u64 = 10_000;

/// Between two questions to the agent.
const ASK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Clients that take part: direct, through an agent, or both at the same time
    #[arg(long, value_enum, default_value_t)]
    agents: Agents,
    /// How long the silence is watched
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Messages a second of each client
    #[arg(long, default_value_t = 10)]
    rate: u32,
    /// Run brokers 4.9.7 instead of 5.5.0
    #[arg(long)]
    old_brokers: bool,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !java_present(NAME) {
            return Ok(None);
        }
        let Some(network) = Network::make(NAME) else { return Ok(None) };
        let machine = network.machine();
        network.enter();
        let (program, version) = (self.programs.server()?, self.version());
        let done = format!(
            "A machine with a name server ({program}) and a broker {version} falls silent; another name server and \
             broker are outside it. Clients 4.9.7 with closeSocketIfTimeout=false send {} messages a second to a \
             topic on both brokers, watched for {} s.",
            self.rate, self.seconds
        );
        let story = Story::begin(NAME, &done);
        let figures = self.play(&story, &machine)?;
        Ok(Some(Report::new(NAME, done, figures)))
    }

    fn version(&self) -> Version {
        if self.old_brokers { Version::V4 } else { Version::V5 }
    }

    fn play(&self, story: &Story, machine: &Machine) -> Result<Vec<Figure>> {
        let (workshop, program) = (Workshop::open()?, self.programs.server()?);
        let settings = Settings::new().with("bindAddress", "0.0.0.0");
        let inside = machine.within(|| NameServer::start(&workshop, &program, &settings))?;
        let outside = NameServer::start(&workshop, &program, &settings)?;
        // As everybody sees them, the machine too.
        let hung = SocketAddr::new(machine.address().into(), inside.address().port());
        let live = SocketAddr::new(machine.gateway().into(), outside.address().port());
        let list = format!("{hung};{live}");
        let broker = |name, address: String| {
            let identity = Broker { cluster: "DefaultCluster", name, id: 0, name_servers: &list };
            let settings = broker_settings(self.version(), &identity)
                .with("brokerIP1", &address)
                .with("brokerIP2", &address);
            JavaPeer::broker(&workshop, self.version(), &settings)
        };
        let _lost = machine.within(|| broker(LOST, machine.address().to_string()))?;
        let _left = broker(LEFT, machine.gateway().to_string())?;
        for server in [hung, live] {
            await_condition(format!("both brokers at {server}"), || {
                Some(Probe::new(server).brokers()?.len() == 2)
            })?;
        }
        create_topic(&workshop, live)?;
        for server in [hung, live] {
            await_condition(format!("the topic at {server}"), || {
                Some(Probe::new(server).route(TOPIC)?.queues.len() == 2)
            })?;
        }
        let agent = self
            .agents
            .runs()
            .contains(&true)
            .then(|| self.programs.binary().map(|binary| Agent::start(&binary, &list)))
            .transpose()?;
        let direct = self.agents.runs().contains(&false);
        let through = agent.as_ref().map(|agent| agent.address().to_string());
        let start = |group, name_servers: &str, first: Option<&str>| {
            let plan = SteadyPlan {
                name_servers,
                group,
                rate: self.rate,
                topic: TOPIC,
                fresh_seconds: 0,
                fresh_every: 2,
                first_server: first,
                flags: &["-Dcom.rocketmq.remoting.client.closeSocketIfTimeout=false"],
            };
            SteadyProducer::start(&workshop, Version::V4, &plan)
        };
        let direct = direct.then(|| start("direct", &list, Some(&hung.to_string()))).transpose()?;
        let through = through.map(|address| start("through", &address, None)).transpose()?;
        let clients: Vec<(&str, SteadyProducer)> = [("direct", direct), ("through the agent", through)]
            .into_iter()
            .filter_map(|(name, client)| Some((name, client?)))
            .collect();
        story.step(format_args!("all send; the machine with {hung} falls silent in 10 s"));
        thread::sleep(Duration::from_secs(10));
        machine.silence();
        let silent = epoch_millis();
        story.step("silent");
        let asked = self.watch(story, &clients, agent.as_ref(), live, silent);
        let figures =
            clients.into_iter().flat_map(|(name, client)| self.figures(name, &client.stop(), silent));
        Ok(figures.chain(asked).collect())
    }

    /// Tells how it goes, and asks the agent all the time.
    fn watch(
        &self,
        story: &Story,
        clients: &[(&str, SteadyProducer)],
        agent: Option<&Agent>,
        live: SocketAddr,
        silent: u64,
    ) -> Vec<Figure> {
        let (done, slowest, unanswered) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (mut known_lost, start) = (true, Instant::now());
        let mut removed = None;
        thread::scope(|scope| {
            if let Some(agent) = agent {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let before = Instant::now();
                        let answer = agent.probe().ask(105, &[("topic", TOPIC)]);
                        let took = u64::try_from(before.elapsed().as_millis()).unwrap_or(u64::MAX);
                        slowest.fetch_max(took, Ordering::Relaxed);
                        let answered = answer.is_ok_and(|answer| answer.code == 0);
                        unanswered.fetch_add(u64::from(!answered), Ordering::Relaxed);
                        thread::sleep(ASK_EVERY);
                    }
                });
            }
            let mut next = Duration::from_secs(20);
            while start.elapsed() < Duration::from_secs(self.seconds) {
                thread::sleep(ASK_EVERY);
                let route = Probe::new(live).route(TOPIC);
                if known_lost && route.is_some_and(|route| !route.brokers().contains(&LOST)) {
                    known_lost = false;
                    removed = Some(start.elapsed());
                    story.step(format_args!("the live server has removed the broker after {removed:?}"));
                }
                if start.elapsed() > next {
                    next += Duration::from_secs(20);
                    for (name, client) in clients {
                        let last = last_pick(&client.told(), silent).unwrap_or(0);
                        story.step(format_args!("{name}: last pick of the silent broker after {last} ms"));
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let seconds = removed.map(|removed: Duration| removed.as_secs_f64());
        let mut figures = vec![Figure::of("the live server removes the broker", seconds, "s")];
        if agent.is_some() {
            let slowest = slowest.load(Ordering::Relaxed) as f64;
            let failed = unanswered.load(Ordering::Relaxed) as f64;
            figures.push(Figure::at_most("asking the agent: slowest route query", slowest, "ms", 1_000.0));
            figures.push(Figure::at_most("asking the agent: route queries that failed", failed, "", 0.0));
        }
        figures
    }

    fn figures(&self, name: &str, told: &Told, silent: u64) -> Vec<Figure> {
        let last = last_pick(told, silent).unwrap_or(0);
        // Still picked at the end: nobody knows for how long.
        let until = (last + QUIET_MILLIS < self.seconds * 1_000).then_some(last as f64 / 1e3);
        let what = format!("{name}: last pick of the silent broker");
        let bound = name != "direct" && self.programs.server().is_ok_and(|program| program.is_waypost());
        let since: Vec<_> = told.sends.iter().filter(|send| send.due >= silent).collect();
        let queries: Vec<_> = told.queries.iter().filter(|query| query.started >= silent).collect();
        let slowest = queries.iter().filter_map(|query| query.took).max().unwrap_or(0) as f64;
        let unanswered = queries.iter().filter(|query| query.took.is_none()).count() as f64;
        let failed = since.iter().filter(|send| send.failure.is_some()).count() as f64;
        let slow = format!("{name}: the client's slowest route query that was answered");
        let lost = format!("{name}: the client's route queries without an answer");
        vec![
            if bound { Figure::at_most(what, until, "s", 100.0) } else { Figure::of(what, until, "s") },
            Figure::of(format!("{name}: sends since the silence"), since.len() as f64, ""),
            Figure::of(format!("{name}: failed sends"), failed, ""),
            Figure::of(format!("{name}: route queries since the silence"), queries.len() as f64, ""),
            if bound {
                Figure::at_most(slow, slowest, "ms", 1_000.0)
            } else {
                Figure::of(slow, slowest, "ms")
            },
            if bound { Figure::at_most(lost, unanswered, "", 0.0) } else { Figure::of(lost, unanswered, "") },
        ]
    }
}

/// Milliseconds from the silence to the last pick of the silent broker.
fn last_pick(told: &Told, silent: u64) -> Option<u64> {
    let picks = told.sends.iter().flat_map(|send| &send.picks);
    picks.filter(|(broker, _)| broker == LOST).map(|(_, at)| at.saturating_sub(silent)).max()
}

fn create_topic(workshop: &Workshop, server: SocketAddr) -> Result<()> {
    let address = server.to_string();
    let words = ["updateTopic", "-n", &address, "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4"];
    let output = Mqadmin::batch(workshop, Version::V5, &[&words[..]])?;
    let text: String = output.into_iter().map(|output| output.text).collect();
    ensure!(text.contains("success"), "mqadmin cannot create the topic: {text}");
    Ok(())
}

fn await_condition(what: String, mut condition: impl FnMut() -> Option<bool>) -> Result<()> {
    poll_until(REGISTERED, || condition().filter(|&met| met))
        .with_context(|| format!("not in time: {what}"))?;
    Ok(())
}
