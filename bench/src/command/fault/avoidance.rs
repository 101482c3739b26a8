//! `avoidance`: how often a stopped broker and a slow one are chosen, and when a silent one is found.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use tokio::task::JoinSet;
use tokio::time::interval;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_discovery::faults::{Outcome, Standing};
use waypost_testkit::peers::Story;

use super::stage::{self, BrokerPlan, BrokerProcess, Brokers, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "avoidance";

/// Of a request to a broker, as clients have it.
const TRY: Duration = Duration::from_secs(3);

/// How late the slow broker answers.
const SLOW: Duration = Duration::from_secs(5);

/// What comes first does not count.
const LEARNING: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Choices a second
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// How long choices are made; less than name servers keep a stopped broker
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How often a broker behind silent queues is stopped
    #[arg(long, default_value_t = 3)]
    silences: usize,
}

/// One choice and what came of it.
struct Made {
    at: Duration,
    broker: String,
    outcome: Outcome,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "Four broker processes with 8 queues each: one is stopped (SIGSTOP), one answers after 5 s. A caller \
             chooses {} times a second for {} s, asks the broker with a limit of 3 s and reports what came of it. Then \
             a client that never chooses: a broker is stopped {} times. Name server: {program}.",
            self.rate, self.seconds, self.silences
        );
        let story = Story::begin(NAME, &done);
        let server = stage::server(&program)?;
        let list = server.address().to_string();
        let mut brokers = Vec::new();
        for index in 0..4 {
            let delay = if index == 1 { SLOW } else { Duration::ZERO };
            let plan = BrokerPlan { name: stage::broker(index), servers: list.clone(), topics: 1, delay };
            brokers.push(BrokerProcess::start(plan)?);
        }
        stage::await_brokers(&[server.address()], &stage::topic(0), 4)?;
        let runtime = stage::runtime()?;
        let discovery = {
            let _inside = runtime.enter();
            stage::discovery(&list)?
        };
        brokers[0].stand_still();
        story.step("one broker is stopped, one is slow");
        let made = runtime.block_on(self.choose(&discovery))?;
        brokers[0].go_on();
        runtime.block_on(discovery.close(Duration::from_secs(1)));
        let ill = [brokers[0].name().to_owned(), brokers[1].name().to_owned()];
        let mut figures = figures(&story, &made, &ill);
        let found = self.find_silent(&story, &runtime, &list, &mut brokers[2])?;
        figures.push(Figure::at_most(
            "a stopped broker behind silent queues is found after",
            found,
            "s",
            15.0,
        ));
        Ok(Some(Report::new(NAME, done, figures)))
    }

    async fn choose(&self, discovery: &Discovery) -> Result<Vec<Made>> {
        let topic = stage::topic(0);
        discovery.route(&topic, PATIENCE).await?;
        let (mut chooser, brokers) = (discovery.chooser(&topic), Brokers::default());
        let (mut ticks, mut asked) = (interval(Duration::from_secs(1) / self.rate), JoinSet::new());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(self.seconds) {
            ticks.tick().await;
            let at = began.elapsed();
            let choice = chooser.choose(None)?;
            let (discovery, brokers, topic) = (discovery.clone(), brokers.clone(), topic.clone());
            asked.spawn(async move {
                let outcome = brokers.ask(&topic, &choice, TRY).await;
                let broker = choice.queue.broker.to_string();
                discovery.report(&topic, &broker, outcome);
                Made { at, broker, outcome }
            });
        }
        Ok(asked.join_all().await)
    }

    /// The longest time until a client that makes no choices avoids a stopped broker; `None` if it never does.
    fn find_silent(
        &self,
        story: &Story,
        runtime: &tokio::runtime::Runtime,
        list: &str,
        victim: &mut BrokerProcess,
    ) -> Result<Option<f64>> {
        let mut longest = Some(0.0_f64);
        for silence in 0..self.silences {
            let discovery = {
                let _inside = runtime.enter();
                stage::discovery(list)?
            };
            let _chooser = discovery.chooser(&stage::topic(0));
            runtime.block_on(discovery.route(&stage::topic(0), PATIENCE))?;
            let name = victim.name().to_owned();
            let avoided = Mutex::new(&discovery);
            let standing = || {
                let health = avoided.lock().ok()?.broker_health();
                health.into_iter().find(|broker| *broker.broker == *name).map(|broker| broker.standing)
            };
            let well =
                stage::moment(PATIENCE, || standing().is_none_or(|standing| standing == Standing::Well));
            well.context("the broker is never well")?;
            // Probes meet the stop at any phase.
            thread::sleep(Duration::from_millis(7_000 + 1_300 * silence as u64));
            victim.stand_still();
            let stopped = Instant::now();
            let found = stage::moment(PATIENCE, || standing() == Some(Standing::Avoided));
            let found = found.map(|at| at.duration_since(stopped).as_secs_f64());
            story.step(format_args!("silence {}: found after {found:?} s", silence + 1));
            longest = longest.zip(found).map(|(longest, found)| longest.max(found));
            victim.go_on();
            runtime.block_on(discovery.close(Duration::from_secs(1)));
        }
        Ok(longest)
    }
}

fn figures(story: &Story, made: &[Made], ill: &[String; 2]) -> Vec<Figure> {
    let late = || made.iter().filter(|made| made.at >= LEARNING);
    let of = |name: &str| late().filter(|made| made.broker == *name).count() as f64;
    let total = late().count() as f64;
    let percent = |count: f64| (count / total * 1e4).round() / 1e2;
    let (stopped, slow) = (of(&ill[0]), of(&ill[1]));
    let failed = made.iter().filter(|made| made.outcome.is_failure());
    for made in failed.take(20) {
        story.step(format_args!("{} at {:.1} s: {:?}", made.broker, made.at.as_secs_f64(), made.outcome));
    }
    let early = made.iter().filter(|made| made.at < LEARNING && ill.contains(&made.broker)).count();
    vec![
        Figure::of("choices after the first 10 s", total, ""),
        Figure::of("choices of either in the first 10 s", early as f64, ""),
        Figure::of("choices of the stopped broker after that", percent(stopped), "%"),
        Figure::of("choices of the slow broker after that", percent(slow), "%"),
        Figure::at_most("choices of either after that", percent(stopped + slow), "%", 2.0),
    ]
}
