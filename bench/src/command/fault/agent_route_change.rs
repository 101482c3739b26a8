//! `agent-route-change`: how much later than directly a route change is seen through the agent.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use waypost_testkit::agent::Agent;
use waypost_testkit::peers::{Probe, Settings, Story, poll_until};
use waypost_testkit::server::WaypostServer;

use super::{Figure, Programs, Report};
use crate::broker::{Broker, first_changes, queues_after};
use crate::link::Link;
use crate::names;

const NAME: &str = "agent-route-change";

/// Far beyond the bar.
const LIMIT: Duration = Duration::from_secs(30);

/// Between two changes, with what makes each meet the cache at another age.
const PAUSE: Duration = Duration::from_millis(2_000);
const SHIFT: Duration = Duration::from_millis(370);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// Changes to watch
    #[arg(long, default_value_t = 20)]
    changes: u32,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if self.changes == 0 {
            bail!("it takes at least 1 change");
        }
        let done = format!(
            "A broker registers with two name servers and changes the queues of a topic {} times; a client asks both \
             servers and an agent all the time.",
            self.changes
        );
        let story = Story::begin(NAME, &done);
        let binary = self.programs.binary()?;
        let servers = [(); 2].map(|()| WaypostServer::start(&binary, &Settings::new()));
        let topics = names::topics(10);
        let mut broker = Broker::new(0, &topics);
        let mut links = Vec::new();
        for server in &servers {
            let mut link = Link::connect(server.address())?;
            broker.register(&mut link)?;
            links.push(link);
        }
        let addresses = servers.each_ref().map(WaypostServer::address);
        let agent = Agent::start(&binary, &format!("{};{}", addresses[0], addresses[1]));
        let topic = topics[0].as_str();
        let mut later = Vec::new();
        for change in 1..=self.changes {
            // The client keeps asking between the changes too.
            let quiet = Instant::now() + PAUSE + SHIFT * (change % 14);
            while Instant::now() < quiet {
                queues(agent.address(), topic);
                thread::sleep(Duration::from_millis(20));
            }
            let changes = first_changes(0, 0) + change;
            broker.change(0, changes);
            for link in &mut links {
                broker.register(link)?;
            }
            let wanted = Some(u64::from(queues_after(changes)));
            for address in addresses {
                seen(address, topic, wanted).context("a server does not show the change")?;
            }
            let direct = Instant::now();
            seen(agent.address(), topic, wanted).context("the agent never shows the change")?;
            later.push(direct.elapsed());
            story.step(format_args!(
                "change {change}: the agent shows it {} ms later",
                direct.elapsed().as_millis()
            ));
        }
        later.sort();
        let seconds = |at: usize| later.get(at).map(Duration::as_secs_f64);
        let figures = vec![
            Figure::of("through the agent later than directly, median", seconds(later.len() / 2), "s"),
            Figure::at_most("the same, longest", seconds(later.len() - 1), "s", 5.0),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }
}

fn queues(server: SocketAddr, topic: &str) -> Option<u64> {
    Some(Probe::new(server).route(topic)?.queues.get(&names::broker(0))?.1)
}

fn seen(server: SocketAddr, topic: &str, wanted: Option<u64>) -> Option<()> {
    poll_until(LIMIT, || (queues(server, topic) == wanted).then_some(()))
}
