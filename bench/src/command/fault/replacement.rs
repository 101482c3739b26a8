//! `replacement`: the list of name servers grows and shrinks while choices are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use tokio::time::interval;
use waypost_net::address::AddressList;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_registrar::Quorum;
use waypost_rocketmq_remoting::list;
use waypost_testkit::peers::{NameServer, Probe, Story};

use super::stage::{self, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "replacement";

/// Of a lookup that asks the servers.
const DEADLINE: Duration = Duration::from_secs(1);

/// One choice in so many is preceded by a lookup that asks the servers.
const ASK_EVERY: u64 = 4;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Choices a second
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long each list is kept
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often the third server comes and goes
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
}

#[derive(Debug, Default)]
struct Chosen {
    choices: u64,
    failed: u64,
    asked: u64,
    unanswered: u64,
    slowest: Duration,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "The list of a client and of a broker with {} topics goes from two name servers ({program}) to three and \
             back, {} times, {} s apart, while the client chooses {} times a second and asks its servers before \
             every fourth choice.",
            self.topics, self.rounds, self.seconds, self.rate
        );
        let story = Story::begin(NAME, &done);
        let servers = stage::servers(&program, 3)?;
        let addresses: Vec<_> = servers.iter().map(NameServer::address).collect();
        let (two, three) = (stage::list(&addresses[..2]), stage::list(&addresses));
        let registrar = stage::registrar("broker-0", &two, stage::topics(self.topics))?;
        let runtime = stage::runtime()?;
        runtime.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
        let discovery = {
            let _inside = runtime.enter();
            stage::discovery(&two)?
        };
        let ended = AtomicBool::new(false);
        let (third, last) = (Probe::new(addresses[2]), stage::topic(self.topics.saturating_sub(1)));
        let (chosen, changes) = thread::scope(|scope| {
            let choosing = scope.spawn(|| runtime.block_on(self.choose(&discovery, &ended)));
            let changed = (0..self.rounds).map(|_| {
                thread::sleep(Duration::from_secs(self.seconds));
                let added = Instant::now();
                registrar.replace_servers(parse(&three))?;
                discovery.replace_servers(parse(&three));
                // Its topics come in one piece, so the last one stands for all; the count is checked after.
                let complete = stage::moment(PATIENCE, || third.route(&last).is_some());
                let complete = complete.context("the third server is never complete")?.duration_since(added);
                let missing = (0..self.topics).filter(|index| third.route(&stage::topic(*index)).is_none());
                let missing = missing.count();
                thread::sleep(Duration::from_secs(self.seconds));
                let removed = Instant::now();
                registrar.replace_servers(parse(&two))?;
                discovery.replace_servers(parse(&two));
                let gone = stage::moment(PATIENCE, || third.brokers().is_some_and(|all| all.is_empty()));
                let gone = gone.map(|at| at.duration_since(removed));
                story.step(format_args!(
                    "complete after {complete:?}, {missing} missing, gone after {gone:?}"
                ));
                anyhow::Ok((complete, missing, gone))
            });
            let changes: Result<Vec<_>> = changed.collect();
            thread::sleep(Duration::from_secs(self.seconds));
            ended.store(true, Ordering::Relaxed);
            let chosen = choosing.join().ok().context("choosing panicked")??;
            anyhow::Ok((chosen, changes?))
        })?;
        let complete = changes.iter().map(|(complete, ..)| complete.as_secs_f64()).reduce(f64::max);
        let missing: usize = changes.iter().map(|(_, missing, _)| missing).sum();
        let gone = changes.iter().map(|(.., gone)| gone.map(|gone| gone.as_secs_f64()));
        let gone = gone.reduce(|one, other| Some(one?.max(other?))).flatten();
        let figures = vec![
            Figure::of("choices", chosen.choices as f64, ""),
            Figure::at_most("failed choices", chosen.failed as f64, "", 0.0),
            Figure::of("lookups that asked the servers", chosen.asked as f64, ""),
            Figure::at_most("failed lookups", chosen.unanswered as f64, "", 0.0),
            Figure::of("slowest lookup", stage::millis(chosen.slowest), "ms"),
            Figure::at_most("the third server complete, slowest", complete, "s", 1.0),
            Figure::at_most("topics that it lacked then", missing as f64, "", 0.0),
            Figure::of("the broker gone from it after its removal, slowest", gone, "s"),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }

    async fn choose(&self, discovery: &Discovery, ended: &AtomicBool) -> Result<Chosen> {
        let topic = stage::topic(0);
        discovery.route(&topic, PATIENCE).await?;
        let mut chooser = discovery.chooser(&topic);
        let (mut ticks, mut chosen) = (interval(Duration::from_secs(1) / self.rate), Chosen::default());
        while !ended.load(Ordering::Relaxed) {
            ticks.tick().await;
            if chosen.choices.is_multiple_of(ASK_EVERY) {
                let began = Instant::now();
                chosen.asked += 1;
                chosen.unanswered += u64::from(discovery.refresh(&topic, DEADLINE).await.is_err());
                chosen.slowest = chosen.slowest.max(began.elapsed());
            }
            chosen.choices += 1;
            chosen.failed += u64::from(chooser.choose(None).is_err());
        }
        Ok(chosen)
    }
}

fn parse(text: &str) -> AddressList {
    list::read(text).servers
}
