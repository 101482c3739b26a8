//! `restart`: how soon a server is complete that was restarted, and how soon all are after brokers stood still.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use waypost_testkit::peers::{NameServer, Probe, Route, Story};

use super::stage::{self, BrokerPlan, BrokerProcess, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "restart";

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Seconds that the server is down, one restart for each
    #[arg(long, value_delimiter = ',', default_values_t = [0, 5, 40])]
    down: Vec<u64>,
    /// How long the brokers stand still
    #[arg(long, default_value_t = 130)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    brokers: usize,
    #[arg(long, default_value_t = 100)]
    topics: usize,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "{} broker processes with {} topics and two name servers ({program}). One server is killed and started \
             again, empty; then all brokers are stopped (SIGSTOP) for {} s and go on.",
            self.brokers, self.topics, self.seconds
        );
        let story = Story::begin(NAME, &done);
        let mut servers = stage::servers(&program, 2)?;
        let addresses: Vec<_> = servers.iter().map(NameServer::address).collect();
        let (list, delay) = (stage::list(&addresses), Duration::ZERO);
        let mut brokers = Vec::new();
        for index in 0..self.brokers {
            let (name, servers) = (stage::broker(index), list.clone());
            let plan = BrokerPlan { name, servers, topics: self.topics, delay };
            brokers.push(BrokerProcess::start(plan)?);
        }
        let topics: Vec<String> = (0..self.topics).map(stage::topic).collect();
        let mut whole = Vec::new();
        for topic in &topics {
            whole.push(stage::await_brokers(&addresses, topic, self.brokers)?[0].clone());
        }
        let complete = |server: SocketAddr| complete(Probe::new(server), &topics, &whole);
        let mut figures = Vec::new();
        for down in &self.down {
            servers[0].kill();
            thread::sleep(Duration::from_secs(*down));
            let took = thread::scope(|scope| {
                let watching = scope.spawn(|| {
                    let probe = Probe::new(addresses[0]);
                    let answers = stage::moment(PATIENCE, || probe.ask(106, &[]).is_ok())?;
                    Some(stage::moment(PATIENCE, || complete(addresses[0]))?.duration_since(answers))
                });
                servers[0].start_again()?;
                anyhow::Ok(watching.join().ok().flatten())
            })?;
            story.step(format_args!("down for {down} s, complete {took:?} after its first answer"));
            let what = format!("complete after the first answer, down for {down} s");
            figures.push(Figure::at_most(what, took.map(|took| took.as_secs_f64()), "s", 1.0));
        }
        brokers.iter_mut().for_each(BrokerProcess::stand_still);
        let stopped = Instant::now();
        story.step("all brokers are stopped");
        thread::sleep(Duration::from_secs(self.seconds));
        let kept = addresses.iter().filter(|server| complete(**server)).count();
        story.step(format_args!("{kept} servers still have them"));
        brokers.iter_mut().for_each(BrokerProcess::go_on);
        let resumed = Instant::now();
        let again = stage::moment(PATIENCE, || addresses.iter().all(|server| complete(*server)));
        let again = again.map(|at| at.duration_since(resumed).as_secs_f64());
        // A server may still have to notice that a connection is gone: it must not drop them again.
        let mut gone = 0;
        while resumed.elapsed() < Duration::from_secs(10) {
            gone += addresses.iter().filter(|server| again.is_some() && !complete(**server)).count();
            thread::sleep(Duration::from_millis(20));
        }
        let pause = resumed.duration_since(stopped).as_secs_f64();
        figures.extend([
            Figure::of("brokers stood still for", pause.round(), "s"),
            Figure::of("servers that still had all brokers then", kept as f64, ""),
            Figure::at_most("all servers complete after the brokers go on", again, "s", 1.0),
            Figure::at_most("looks in the first 10 s that found one incomplete again", gone as f64, "", 0.0),
        ]);
        brokers.first().context("no broker")?;
        Ok(Some(Report::new(NAME, done, figures)))
    }
}

fn complete(probe: Probe, topics: &[String], whole: &[Route]) -> bool {
    topics.iter().zip(whole).all(|(topic, whole)| probe.route(topic).as_ref() == Some(whole))
}
