//! `hung-start`: fresh clients whose list begins, by chance, with a server that is hung or out of reach.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tokio::task::JoinSet;
use waypost_rocketmq_registrar::Quorum;
use waypost_testkit::faults::Network;
use waypost_testkit::peers::Story;

use super::stage::{self, PATIENCE, Times};
use super::{Figure, Programs, Report};

const NAME: &str = "hung-start";

/// Of each call.
const DEADLINE: Duration = Duration::from_secs(3);

/// Between two later calls of one client.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// Calls of each client after its first
    #[arg(long, default_value_t = 20)]
    calls: usize,
}

/// What one client saw: its first call, then the others.
type Seen = (Result<Duration, String>, Vec<Result<Duration, String>>);

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let Some(network) = Network::make(NAME) else { return Ok(None) };
        let machine = network.machine();
        network.enter();
        let program = self.programs.server()?;
        let done = format!(
            "Three name servers ({program}): one stopped (SIGSTOP), one on a machine that drops all packets, one \
             well. {} new clients start at once, each asks for a route within 3 s and then {} times more.",
            self.clients, self.calls
        );
        let story = Story::begin(NAME, &done);
        let mut hung = stage::server(&program)?;
        let live = stage::server(&program)?;
        let silent = machine.within(|| stage::server(&program))?;
        let outside = machine.gateway().into();
        let addresses = [
            SocketAddr::new(outside, hung.address().port()),
            SocketAddr::new(machine.address().into(), silent.address().port()),
            SocketAddr::new(outside, live.address().port()),
        ];
        let list = stage::list(&addresses);
        let runtime = stage::runtime()?;
        let registrar = stage::registrar("broker-0", &list, stage::topics(1))?;
        runtime.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
        hung.stand_still();
        machine.silence();
        story.step("one server is stopped, one is silent");
        let seen = runtime.block_on(self.ask(&list))?;
        story.step("all clients have ended");
        Ok(Some(Report::new(NAME, done, figures(&story, &seen))))
    }

    async fn ask(&self, list: &str) -> Result<Vec<Seen>> {
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            let (list, calls) = (list.to_owned(), self.calls);
            clients.spawn(async move {
                let began = Instant::now();
                let discovery = stage::discovery(&list)?;
                let topic = stage::topic(0);
                let first = discovery.route(&topic, DEADLINE).await;
                let first = first.map(|_| began.elapsed()).map_err(|error| error.to_string());
                let mut later = Vec::new();
                for _ in 0..calls {
                    tokio::time::sleep(PAUSE).await;
                    let began = Instant::now();
                    let asked = discovery.refresh(&topic, DEADLINE).await;
                    later.push(asked.map(|_| began.elapsed()).map_err(|error| error.to_string()));
                }
                discovery.close(Duration::from_secs(1)).await;
                anyhow::Ok((first, later))
            });
        }
        clients.join_all().await.into_iter().collect()
    }
}

fn figures(story: &Story, seen: &[Seen]) -> Vec<Figure> {
    let all = || seen.iter().flat_map(|(first, later)| std::iter::once(first).chain(later));
    let failures: Vec<&String> = all().filter_map(|call| call.as_ref().err()).collect();
    for failure in failures.iter().take(3) {
        story.step(failure);
    }
    let failed_first = seen.iter().filter(|(first, _)| first.is_err()).count();
    let first: Times = seen.iter().filter_map(|(first, _)| first.as_ref().ok().copied()).collect();
    let later: Times =
        seen.iter().flat_map(|(_, later)| later).filter_map(|call| call.as_ref().ok().copied()).collect();
    vec![
        Figure::at_most("clients whose first call failed", failed_first as f64, "", 0.0),
        Figure::of("first call, median", first.percentile(50.0), "ms"),
        Figure::at_most("first call, p99", first.percentile(99.0), "ms", 700.0),
        Figure::of("first call, slowest", first.longest(), "ms"),
        Figure::of("later calls", later.count(), ""),
        Figure::at_most("later calls that failed", (failures.len() - failed_first) as f64, "", 0.0),
        Figure::at_most("later calls, p99", later.percentile(99.0), "ms", 50.0),
        Figure::of("later calls, slowest", later.longest(), "ms"),
    ]
}
