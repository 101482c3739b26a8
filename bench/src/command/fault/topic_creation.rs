//! `topic-creation`: a broker creates topics while one of its name servers is hung.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use waypost_rocketmq_registrar::{Quorum, Topic};
use waypost_testkit::peers::{Probe, Story};

use super::stage::{self, PATIENCE, Times};
use super::{Figure, Programs, Report};

const NAME: &str = "topic-creation";

/// Between two topics, and what makes each meet other work of the registrar.
const PAUSE: Duration = Duration::from_millis(300);
const SHIFT: Duration = Duration::from_millis(37);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// How many topics are created
    #[arg(long, default_value_t = 100)]
    creations: u32,
    /// Topics that the broker has before
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "A broker with {} topics and three name servers ({program}), one of them stopped, creates {} topics one \
             after the other; the other two are asked all the time.",
            self.topics, self.creations
        );
        let story = Story::begin(NAME, &done);
        let mut servers = stage::servers(&program, 3)?;
        let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
        let registrar = stage::registrar("broker-0", &stage::list(&addresses), stage::topics(self.topics))?;
        stage::runtime()?.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
        servers[0].stand_still();
        story.step("one server is stopped");
        let (mut calls, mut known) = (Times::default(), [Times::default(), Times::default()]);
        for creation in 0..self.creations {
            thread::sleep(PAUSE + SHIFT * (creation % 8));
            let name = format!("Created-{creation}");
            let began = Instant::now();
            registrar.set_topic(Topic::new(&name, stage::QUEUES))?;
            calls.note(began.elapsed());
            let seen = thread::scope(|scope| {
                let seen = [addresses[1], addresses[2]].map(|address| {
                    let (probe, name) = (Probe::new(address), &name);
                    scope.spawn(move || stage::moment(PATIENCE, || probe.route(name).is_some()))
                });
                seen.map(|seen| seen.join().ok().flatten())
            });
            for (seen, known) in seen.into_iter().zip(&mut known) {
                let seen = seen.with_context(|| format!("{name} never came to a server"))?;
                known.note(seen.duration_since(began));
            }
        }
        let figures = vec![
            Figure::at_most("the call, slowest", calls.longest(), "ms", 50.0),
            Figure::of("second server knows it, median", known[0].percentile(50.0), "ms"),
            Figure::at_most("second server knows it, slowest", known[0].longest(), "ms", 200.0),
            Figure::of("third server knows it, median", known[1].percentile(50.0), "ms"),
            Figure::at_most("third server knows it, slowest", known[1].longest(), "ms", 200.0),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }
}
