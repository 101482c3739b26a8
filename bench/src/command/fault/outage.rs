//! `outage`: what clients know while every name server is down.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use waypost_rocketmq_discovery::client::{Discovery, RouteWatch};
use waypost_rocketmq_registrar::Quorum;
use waypost_testkit::peers::{Signal, Story};

use super::stage::{self, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "outage";

/// A period of polls and a try: by then a client knows that nobody answers.
const KNOWN_AFTER: Duration = Duration::from_secs(35);

/// What is known must be given without waiting.
const AT_ONCE: Duration = Duration::from_millis(50);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// How long all servers are down
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    #[arg(long, default_value_t = 100)]
    topics: usize,
}

#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    not_served: usize,
    /// Later than [`KNOWN_AFTER`].
    not_marked: usize,
    /// When all topics were first marked.
    all_marked: Option<Duration>,
    slowest: Duration,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "Three name servers ({program}): two are killed, one is stopped, all for {} s. A client that knows {} \
             topics is asked for all of them every second.",
            self.seconds, self.topics
        );
        let story = Story::begin(NAME, &done);
        let mut servers = stage::servers(&program, 3)?;
        let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
        let list = stage::list(&addresses);
        let runtime = stage::runtime()?;
        let registrar = stage::registrar("broker-0", &list, stage::topics(self.topics))?;
        let (discovery, watches) = runtime.block_on(async {
            registrar.wait_registered(Quorum::All, PATIENCE).await?;
            let discovery = stage::discovery(&list)?;
            let mut watches: Vec<RouteWatch> =
                (0..self.topics).map(|index| discovery.watch(&stage::topic(index))).collect();
            for watch in &mut watches {
                watch.changed().await?;
            }
            anyhow::Ok((discovery, watches))
        })?;
        ensure!(watches.iter().all(|watch| !watch.current().stale), "a topic is stale before the outage");
        servers[0].kill();
        servers[1].kill();
        servers[2].stand_still();
        story.step("all servers are down");
        let seen = runtime.block_on(self.look(&discovery, &watches));
        story.step("the servers come back");
        for server in &mut servers[..2] {
            server.start_again()?;
        }
        servers[2].send(Signal::Continue);
        let back = Instant::now();
        let fresh = || watches.iter().all(|watch| !watch.current().stale && watch.current().route.is_some());
        let fresh = stage::moment(PATIENCE, fresh).map(|at| at.duration_since(back).as_secs_f64());
        thread::sleep(Duration::from_secs(1));
        let lost = watches.iter().filter(|watch| watch.current().route.is_none()).count();
        let figures = vec![
            Figure::of("looks at a topic", seen.looks as f64, ""),
            Figure::at_most("looks that found no route", seen.not_served as f64, "", 0.0),
            Figure::of("all topics are marked stale after", seen.all_marked.map(|d| d.as_secs_f64()), "s"),
            Figure::at_most(
                "looks after 35 s that found a route not marked stale",
                seen.not_marked as f64,
                "",
                0.0,
            ),
            Figure::at_most("slowest call for a known route", stage::millis(seen.slowest), "ms", 50.0),
            Figure::at_most("all topics fresh after the servers are back", fresh, "s", 35.0),
            Figure::at_most("topics without route then", lost as f64, "", 0.0),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }

    async fn look(&self, discovery: &Discovery, watches: &[RouteWatch]) -> Seen {
        let (mut seen, began) = (Seen::default(), Instant::now());
        while began.elapsed() < Duration::from_secs(self.seconds) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let since = began.elapsed();
            let mut all_marked = true;
            for watch in watches {
                let known = watch.current();
                let asked = Instant::now();
                let called = discovery.route(watch.topic(), AT_ONCE).await.is_ok();
                seen.slowest = seen.slowest.max(asked.elapsed());
                seen.looks += 1;
                seen.not_served += usize::from(known.route.is_none() || !called);
                seen.not_marked += usize::from(!known.stale && since > KNOWN_AFTER);
                all_marked &= known.stale;
            }
            if all_marked {
                seen.all_marked.get_or_insert(since);
            }
        }
        seen
    }
}
