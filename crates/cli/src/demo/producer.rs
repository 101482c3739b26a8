//! The client of the demo: it follows the route and sends.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_discovery::chooser::{Choice, Chooser};
use waypost_rocketmq_discovery::client::{Discovery, RouteWatch};
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::request::SEND_MESSAGE_V2;
use waypost_rocketmq_wire::message::Request;

use super::{Pace, TOPIC};
use crate::changes::between;
use crate::voice::Voice;

/// Messages in a beat.
const RATE: u32 = 20;
/// Beats from one summary to the next.
const SUMMARY: u32 = 5;
/// How long one broker may take before another one is tried.
const TRY_LIMIT: Duration = Duration::from_millis(300);
/// Brokers that one message is tried at.
const TRIES: usize = 3;

/// What came of all messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// Messages that a broker took.
    pub(super) sent: u64,
    /// Messages that none took.
    pub(super) failed: u64,
    /// Messages that the first broker did not take.
    pub(super) second_tries: u64,
    /// From the first try to the answer.
    pub(super) slowest: Duration,
}

pub(super) struct Producer {
    discovery: Discovery,
    watch: RouteWatch,
    chooser: Chooser,
    pace: Pace,
    voice: Voice,
    connections: HashMap<SocketAddr, Connection>,
    tasks: Tasks,
    seen: Option<Arc<TopicRoute>>,
    tally: BTreeMap<String, u64>,
    totals: Totals,
}

impl Producer {
    pub(super) fn new(discovery: Discovery, pace: Pace, voice: Voice) -> Self {
        let (watch, chooser) = (discovery.watch(TOPIC), discovery.chooser(TOPIC));
        Self {
            discovery,
            watch,
            chooser,
            pace,
            voice,
            connections: HashMap::new(),
            tasks: Tasks::new(),
            seen: None,
            tally: BTreeMap::new(),
            totals: Totals::default(),
        }
    }

    /// Sends until it is told to stop.
    pub(super) async fn run(mut self, stop: Stop) -> Totals {
        let mut ticks = interval(self.pace.beat / RATE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut summaries = interval(self.pace.beat * SUMMARY);
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => break,
                changed = self.watch.changed() => match changed {
                    Ok(route) => self.see(route),
                    Err(_) => break,
                },
                _ = summaries.tick() => self.summarize(),
                _ = ticks.tick(), if self.seen.is_some() => self.send().await,
            }
        }
        self.tasks.cancel();
        self.totals
    }

    fn see(&mut self, route: Option<Arc<TopicRoute>>) {
        match &route {
            Some(new) => {
                for change in between(self.seen.as_deref(), new) {
                    self.voice.say(&format!("  client: {TOPIC} {change}"));
                }
            }
            None => self.voice.say(&format!("  client: {TOPIC} is on no broker any more")),
        }
        self.seen = route;
    }

    fn summarize(&mut self) {
        if self.tally.is_empty() {
            return;
        }
        let counts: Vec<String> = std::mem::take(&mut self.tally)
            .iter()
            .map(|(broker, count)| format!("{count} to {broker}"))
            .collect();
        self.voice.say(&format!("  client: sent {}", counts.join(", ")));
    }

    /// Sends one message, to another broker if the first does not take it.
    async fn send(&mut self) {
        let began = Instant::now();
        let mut failures: Vec<(String, String)> = Vec::new();
        let mut taken = None;
        while taken.is_none() && failures.len() < TRIES {
            let last = failures.last().map(|(broker, _)| broker.as_str());
            let Ok(choice) = self.chooser.choose(last) else { break };
            let broker = choice.queue.broker.to_string();
            match self.attempt(&choice).await {
                Ok(()) => taken = Some(broker),
                Err(error) => failures.push((broker, error)),
            }
        }
        for (broker, error) in &failures {
            let then = match &taken {
                Some(other) => format!("the same message went to {other}"),
                None => "the message is lost".to_owned(),
            };
            self.voice.say(&format!("  client: {broker} {error}; {then}"));
        }
        self.totals.second_tries += u64::from(taken.is_some() && !failures.is_empty());
        match taken {
            Some(broker) => {
                *self.tally.entry(broker).or_default() += 1;
                self.totals.sent += 1;
                self.totals.slowest = self.totals.slowest.max(began.elapsed());
            }
            None => self.totals.failed += 1,
        }
    }

    /// Sends it to one broker and reports how that went.
    async fn attempt(&mut self, choice: &Choice) -> Result<(), String> {
        let began = Instant::now();
        // The demo's brokers announce no names.
        let address: SocketAddr =
            choice.address.parse().map_err(|_| format!("has no address: {}", choice.address))?;
        let answered = match self.connection(address).await {
            Ok(connection) => {
                let queue = choice.queue.id.to_string();
                let ext = [("a", "demo"), ("b", TOPIC), ("e", queue.as_str())];
                let message = Request { ext: &ext, body: b"hello", ..Request::new(SEND_MESSAGE_V2) };
                connection.call(&message, TRY_LIMIT).await
            }
            Err(error) => Err(error),
        };
        let (outcome, result) = match answered {
            Ok(answer) if answer.is_success() => (Outcome::Success { latency: began.elapsed() }, Ok(())),
            Ok(answer) => {
                let error = format!("refused the message with code {}", answer.code);
                (Outcome::BrokerError { code: answer.code }, Err(error))
            }
            Err(CallError::TimedOut { limit, .. }) => {
                (Outcome::TimedOut { limit }, Err(format!("did not answer within {limit:?}")))
            }
            Err(error) => (Outcome::TransportError, Err(format!("broke the connection ({})", error.kind()))),
        };
        self.discovery.report(TOPIC, &choice.queue.broker, outcome);
        result
    }

    async fn connection(&mut self, address: SocketAddr) -> Result<Connection, CallError> {
        if let Some(open) = self.connections.get(&address).filter(|connection| connection.is_open()) {
            return Ok(open.clone());
        }
        let connection =
            Connection::open(&Dialer::default(), &address.into(), TRY_LIMIT, &self.tasks).await?;
        self.connections.insert(address, connection.clone());
        Ok(connection)
    }
}
