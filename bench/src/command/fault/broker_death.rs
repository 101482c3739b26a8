//! `broker-death`: choices and the route after a broker's process is killed and a caller has noticed.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use waypost_rocketmq_discovery::chooser::Chooser;
use waypost_rocketmq_discovery::client::RouteWatch;
use waypost_testkit::faults::{Behaviour, Proxy};
use waypost_testkit::peers::{Probe, Story, poll_until};

use super::stage::{self, BrokerPlan, BrokerProcess, Brokers, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "broker-death";

/// Of a request to a broker.
const TRY: Duration = Duration::from_secs(3);

/// How many choices follow the report at once.
const CHOICES: usize = 400;

/// How long the servers do not notice the death, in every second round; it grows by the step each time so that the
/// client's questions meet the news at any phase.
const UNNOTICED: Duration = Duration::from_millis(3_000);
const STEP: Duration = Duration::from_millis(170);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// How often the broker is killed
    #[arg(long, default_value_t = 10)]
    deaths: u32,
    #[arg(long, default_value_t = 4)]
    brokers: usize,
}

#[derive(Debug, Default)]
struct Seen {
    /// Choices of the dead broker after the report.
    chosen: usize,
    /// From the moment when all servers know until the client does.
    at_once: Vec<Duration>,
    late: Vec<Duration>,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "One of {} broker processes on two name servers ({program}) is killed with -9, {} times; a new client whose \
             request to it fails reports that and chooses {CHOICES} times. Every second time the servers see the \
             broker's connections end only 3 s and more later.",
            self.brokers, self.deaths
        );
        let story = Story::begin(NAME, &done);
        let servers = stage::servers(&program, 2)?;
        let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
        // Between the one broker and the servers, so that they can learn late of its death.
        let proxies: Vec<Proxy> = addresses.iter().map(|address| Proxy::start(*address)).collect();
        let through: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let mut brokers = Vec::new();
        for index in 0..self.brokers {
            let servers = if index == 0 { stage::list(&through) } else { stage::list(&addresses) };
            let (name, delay) = (stage::broker(index), Duration::ZERO);
            brokers.push(BrokerProcess::start(BrokerPlan { name, servers, topics: 1, delay })?);
        }
        let topic = stage::topic(0);
        stage::await_brokers(&addresses, &topic, self.brokers)?;
        let runtime = stage::runtime()?;
        let _inside = runtime.enter();
        let mut seen = Seen::default();
        for death in 0..self.deaths {
            // A new client each time: one that saw the broker die again and again is careful for long.
            let discovery = stage::discovery(&stage::list(&addresses))?;
            let (watch, mut chooser) = (discovery.watch(&topic), discovery.chooser(&topic));
            let asking = Brokers::default();
            let whole = stage::moment(PATIENCE, || brokers_of(&watch) == self.brokers);
            whole.context("the client never sees all brokers")?;
            let victim = brokers[0].name().to_owned();
            let choice = poll_until(PATIENCE, || {
                chooser.choose(None).ok().filter(|choice| *choice.queue.broker == *victim)
            });
            let choice = choice.context("the broker is never chosen")?;
            let unnoticed = (death % 2 == 1).then(|| UNNOTICED + STEP * (death / 2));
            if unnoticed.is_some() {
                proxies.iter().for_each(|proxy| proxy.behave(Behaviour::Stall));
            }
            brokers[0].kill();
            let killed = Instant::now();
            let outcome = runtime.block_on(asking.ask(&topic, &choice, TRY));
            discovery.report(&topic, &victim, outcome);
            seen.chosen += self.choose(&mut chooser, &victim);
            if let Some(unnoticed) = unnoticed {
                thread::sleep(unnoticed.saturating_sub(killed.elapsed()));
                proxies.iter().for_each(|proxy| proxy.behave(Behaviour::Pass));
            }
            let renewed = renewal(&addresses, &topic, &victim, &watch)?;
            story.step(format_args!(
                "death {}: {outcome:?}; the route is renewed {} ms after the servers know",
                death + 1,
                renewed.as_millis()
            ));
            if unnoticed.is_some() { &mut seen.late } else { &mut seen.at_once }.push(renewed);
            brokers[0].start_again()?;
            stage::await_brokers(&addresses, &topic, self.brokers)?;
            runtime.block_on(discovery.close(Duration::from_secs(1)));
        }
        let longest = |times: &[Duration]| times.iter().max().map(|longest| longest.as_secs_f64());
        let figures = vec![
            Figure::at_most(
                format!(
                    "choices of the dead broker, of {} after the reports",
                    CHOICES * self.deaths as usize
                ),
                seen.chosen as f64,
                "",
                0.0,
            ),
            Figure::at_most("route renewed after the servers know at once", longest(&seen.at_once), "s", 1.5),
            Figure::at_most("route renewed after the servers know late", longest(&seen.late), "s", 1.5),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }

    fn choose(&self, chooser: &mut Chooser, victim: &str) -> usize {
        let chosen = (0..CHOICES).filter(|_| {
            let choice = chooser.choose(None);
            choice.is_ok_and(|choice| *choice.queue.broker == *victim)
        });
        chosen.count()
    }
}

fn brokers_of(watch: &RouteWatch) -> usize {
    watch.current().route.map_or(0, |route| route.groups().len())
}

/// From the moment when the last server has dropped the broker until the client's route has.
fn renewal(servers: &[SocketAddr], topic: &str, victim: &str, watch: &RouteWatch) -> Result<Duration> {
    let has = |route: Option<Vec<String>>| route.is_none_or(|names| names.iter().any(|name| name == victim));
    let at_server = |server: SocketAddr| {
        let route = Probe::new(server).route(topic);
        has(route.map(|route| route.brokers().into_iter().map(str::to_owned).collect()))
    };
    let at_client = || {
        let route = watch.current().route;
        has(route.map(|route| route.groups().iter().map(|group| group.broker_name.clone()).collect()))
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| stage::moment(PATIENCE, || !at_client()));
        let known = stage::moment(PATIENCE, || servers.iter().all(|server| !at_server(*server)));
        let known = known.context("a server keeps the dead broker");
        let client = client.join().ok().flatten().context("the client keeps the dead broker");
        Ok(client?.saturating_duration_since(known?))
    })
}
