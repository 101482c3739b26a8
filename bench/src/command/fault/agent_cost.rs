//! `agent-cost`: what an answer from the agent's cache costs beside one of the NameServer itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use waypost_testkit::agent::Agent;
use waypost_testkit::peers::Settings;
use waypost_testkit::server::WaypostServer;

use super::{Figure, Programs, Report};
use crate::closed::{self, ClosedLoad};
use crate::fleet::Fleet;
use crate::frame::{RouteQueries, VERSION_5_5_0};
use crate::names;
use crate::table::median;

/// A path through both processes, before anything counts.
const WARM_UP: Duration = Duration::from_secs(2);

const CONNECTIONS: usize = 32;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Rounds over both; the figures are medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    #[arg(long, default_value_t = 1_000)]
    topics: usize,
    /// Simulated brokers with all topics
    #[arg(long, default_value_t = 4)]
    brokers: usize,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if self.rounds == 0 || self.seconds == 0 {
            bail!("rounds and seconds must be at least 1");
        }
        let binary = self.programs.binary()?;
        let topics = names::topics(self.topics);
        let server = WaypostServer::start(&binary, &Settings::new());
        let _fleet = Fleet::register(server.address(), self.brokers, &topics)?;
        let agent = Agent::start(&binary, &server.address().to_string());
        let subjects = [(server.address(), server.id()), (agent.address(), agent.id())];
        let queries = Arc::new(RouteQueries::new(&topics, VERSION_5_5_0, 16));
        let mut figures = Vec::new();
        for (depth, load) in [(1, "one in flight"), (16, "16 pipelined")] {
            let measure = |subject: usize, duration| {
                let load = ClosedLoad {
                    connections: CONNECTIONS,
                    depth,
                    whole_batches: true,
                    threads: 1,
                    duration,
                    shortest_answer: 150 * self.brokers,
                };
                let (address, id) = subjects[subject];
                closed::run(&load, address, Some(id), &queries)
            };
            for subject in 0..subjects.len() {
                measure(subject, WARM_UP)?;
            }
            let (mut costs, mut others, mut wrong) = ([Vec::new(), Vec::new()], 0.0_f64, 0);
            for round in 1..=self.rounds {
                eprintln!("{load}: round {round} of {}", self.rounds);
                for (subject, costs) in costs.iter_mut().enumerate() {
                    let measured = measure(subject, Duration::from_secs(self.seconds))?;
                    costs.extend(measured.server_us);
                    others = others.max(measured.other_cores.unwrap_or(0.0));
                    wrong += measured.wrong;
                }
            }
            let [of_server, of_agent] = costs.map(median);
            let round = |value: f64| (value * 1e3).round() / 1e3;
            figures.extend([
                Figure::of(format!("{load}: CPU per answer of the NameServer"), round(of_server), "us"),
                Figure::of(format!("{load}: CPU per answer of the agent"), round(of_agent), "us"),
                Figure::at_most(format!("{load}: ratio"), round(of_agent / of_server), "", 1.5),
                Figure::at_most(format!("{load}: wrong answers"), wrong as f64, "", 0.0),
                Figure::of(format!("{load}: cores that others used, at most"), round(others), ""),
            ]);
        }
        let done = format!(
            "Route queries on {CONNECTIONS} connections, {} topics on {} brokers, to a NameServer and to an agent in \
             front of it, in {} rounds. More than 0.1 cores of others make ratios worthless.",
            self.topics, self.brokers, self.rounds
        );
        Ok(Some(Report::new("agent-cost", done, figures)))
    }
}
