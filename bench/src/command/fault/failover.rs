//! `failover`: the server that clients use hangs at the moment when the one that hung goes on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_registrar::Quorum;
use waypost_testkit::peers::{Signal, Story};

use super::stage::{self, PATIENCE, Times};
use super::{Figure, Programs, Report};

const NAME: &str = "failover";

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    programs: Programs,
    #[arg(long, default_value_t = 10)]
    clients: u32,
    /// Calls a second of all clients together
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// How often the servers change places
    #[arg(long, default_value_t = 4)]
    switches: usize,
    /// Between two changes
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How long each call may take
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    deadline_ms: u64,
}

/// One call: when it began, how long it took, what went wrong.
#[derive(Debug)]
struct Call {
    client: u32,
    began: Instant,
    took: Duration,
    failure: Option<String>,
}

impl Options {
    pub(crate) fn run(&self) -> Result<Option<Report>> {
        if !self.programs.ready(NAME) {
            return Ok(None);
        }
        let program = self.programs.server()?;
        let done = format!(
            "Two name servers ({program}), one of them stopped. {} clients ask for a route {} times a second together, \
             each time with a deadline of {} ms. {} times, {} s apart, the one that answers is stopped and the other \
             goes on.",
            self.clients, self.rate, self.deadline_ms, self.switches, self.seconds
        );
        let story = Story::begin(NAME, &done);
        let mut servers = stage::servers(&program, 2)?;
        let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
        let list = stage::list(&addresses);
        let runtime = stage::runtime()?;
        let registrar = stage::registrar("broker-0", &list, stage::topics(1))?;
        runtime.block_on(registrar.wait_registered(Quorum::All, PATIENCE))?;
        servers[0].stand_still();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let mut clients = JoinSet::new();
        for client in 0..self.clients {
            let _inside = runtime.enter();
            let discovery = stage::discovery(&list)?;
            let period = Duration::from_secs(1) * self.clients / self.rate;
            let deadline = Duration::from_millis(self.deadline_ms);
            clients.spawn_on(call(client, discovery, period, deadline, Arc::clone(&calls)), runtime.handle());
        }
        std::thread::sleep(Duration::from_secs(5));
        let mut switched = Vec::new();
        for switch in 0..self.switches {
            let live = (switch + 1) % 2;
            servers[live].stand_still();
            servers[1 - live].send(Signal::Continue);
            switched.push(Instant::now());
            story.step(format_args!("server {} hangs, server {} goes on", live + 1, 2 - live));
            std::thread::sleep(Duration::from_secs(self.seconds));
        }
        runtime.block_on(async {
            clients.abort_all();
            while clients.join_next().await.is_some() {}
        });
        // What is under way has its deadline left.
        std::thread::sleep(Duration::from_millis(self.deadline_ms + 100));
        let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Some(Report::new(NAME, done, self.figures(&story, &calls, &switched))))
    }

    fn figures(&self, story: &Story, calls: &[Call], switched: &[Instant]) -> Vec<Figure> {
        for failure in calls.iter().filter_map(|call| call.failure.as_deref()).take(3) {
            story.step(failure);
        }
        let after = |call: &Call| switched.iter().rposition(|at| call.began + Duration::from_secs(1) >= *at);
        let failures = |switch: usize, client: u32| {
            let failed = calls.iter().filter(|call| call.failure.is_some() && call.client == client);
            failed.filter(|call| after(call) == Some(switch)).count()
        };
        let worst = (0..switched.len())
            .flat_map(|switch| (0..self.clients).map(move |client| failures(switch, client)))
            .max()
            .unwrap_or_default();
        let times: Times = calls.iter().map(|call| call.took).collect();
        let failed = calls.iter().filter(|call| call.failure.is_some()).count();
        vec![
            Figure::of("calls", calls.len() as f64, ""),
            Figure::of("failed calls of all clients", failed as f64, ""),
            Figure::at_most("failed calls of one client at one change, most", worst as f64, "", 1.0),
            Figure::of("calls, p99", times.percentile(99.0), "ms"),
            Figure::at_most("calls, slowest", times.longest(), "ms", self.deadline_ms as f64),
        ]
    }
}

/// Calls at a fixed rate, whether or not earlier calls have ended.
async fn call(
    client: u32,
    discovery: Discovery,
    period: Duration,
    deadline: Duration,
    calls: Arc<Mutex<Vec<Call>>>,
) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let (discovery, calls) = (discovery.clone(), Arc::clone(&calls));
        tokio::spawn(async move {
            let began = Instant::now();
            let asked = discovery.refresh(&stage::topic(0), deadline).await;
            let took = began.elapsed();
            let failure = asked.err().map(|error| error.to_string());
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(Call { client, began, took, failure });
        });
    }
}
