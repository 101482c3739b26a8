//! `loss`: a broker whose path to one name server loses packets stays on that server's route.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use waypost_rocketmq_registrar::Quorum;
use waypost_testkit::faults::Network;
use waypost_testkit::peers::{Probe, Story};

use super::stage::{self, PATIENCE};
use super::{Figure, Programs, Report};

const NAME: &str = "loss";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The shortest time after which the kernel sends a lost packet again.
const RESENT: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    /// How long packets are lost
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How many of a hundred packets, in each direction
    #[arg(long, default_value_t = 20)]
    percent: u32,
}

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
            "A broker with 100 topics and two name servers ({program}); {} % of the packets between it and one of \
             them are dropped at random for {} s. That server is asked on its own machine every 100 ms.",
            self.percent, self.seconds
        );
        let story = Story::begin(NAME, &done);
        let near = stage::server(&program)?;
        let far = machine.within(|| stage::server(&program))?;
        let addresses = [
            SocketAddr::new(machine.gateway().into(), near.address().port()),
            SocketAddr::new(machine.address().into(), far.address().port()),
        ];
        let registrar = stage::registrar("broker-0", &stage::list(&addresses), stage::topics(100))?;
        stage::runtime()?.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
        machine.lose(self.percent);
        story.step("packets are lost");
        let began = Instant::now();
        let (looks, absences, (asked, late)) = thread::scope(|scope| {
            // Over the lossy path, to show that it is one.
            let outside = scope.spawn(|| self.ask(addresses[1], began));
            let (looks, absences) = machine.within(|| self.look(far.probe(), began));
            (looks, absences, outside.join().unwrap_or_default())
        });
        for absence in absences.iter().take(5) {
            story.step(format_args!("absent {:.1} s after the loss began", absence.as_secs_f64()));
        }
        let failures = registrar.servers();
        let failure = failures.iter().find(|state| state.server.address == addresses[1]);
        story.step(failure.map_or_else(String::new, |state| format!("{state:?}")));
        let figures = vec![
            Figure::of("looks at the server's route", f64::from(looks), ""),
            Figure::at_most("looks that did not find the broker", absences.len() as f64, "", 0.0),
            Figure::of("questions over the lossy path", f64::from(asked), ""),
            Figure::of("those that failed or had a packet sent again", f64::from(late), ""),
        ];
        Ok(Some(Report::new(NAME, done, figures)))
    }

    fn look(&self, probe: Probe, began: Instant) -> (u32, Vec<Duration>) {
        let (mut looks, mut absences) = (0, Vec::new());
        while began.elapsed() < Duration::from_secs(self.seconds) {
            looks += 1;
            if !on_route(probe) {
                absences.push(began.elapsed());
            }
            thread::sleep(LOOK);
        }
        (looks, absences)
    }

    fn ask(&self, server: SocketAddr, began: Instant) -> (u32, u32) {
        let (mut asked, mut late) = (0, 0);
        while began.elapsed() < Duration::from_secs(self.seconds) {
            let start = Instant::now();
            let found = on_route(Probe::new(server));
            asked += 1;
            late += u32::from(!found || start.elapsed() >= RESENT);
            thread::sleep(LOOK);
        }
        (asked, late)
    }
}

fn on_route(probe: Probe) -> bool {
    probe.route(&stage::topic(0)).is_some_and(|route| route.brokers() == ["broker-0"])
}
