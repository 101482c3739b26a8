//! `waypost demo`: what a name server is for, in a minute.
//!
//! Real parts only: brokers that register and listen on ports of their own, a client that discovers and sends. The
//! script says what is done to them; everything else that is said was seen to happen.

mod producer;

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use waypost_net::address::{AddressList, HostPort};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_discovery::client::{Discovery, Options};
use waypost_rocketmq_discovery::faults::FaultPolicy;
use waypost_rocketmq_registrar::Topic;
use waypost_rocketmq_remoting::source::Source;

use self::producer::{Producer, Totals};
use crate::exit::Exit;
use crate::run::Report;
use crate::simulated::{BrokerPlan, Conduct, SimulatedBroker};
use crate::voice::Voice;

/// The topic that brokers have and the client sends to.
pub const TOPIC: &str = "orders";

/// How long brokers and client may take to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// How fast the story is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The time that the script counts in.
    pub beat: Duration,
}

impl Pace {
    /// About a minute.
    pub const NORMAL: Self = Self { beat: Duration::from_secs(1) };
    /// Some seconds, for tests.
    pub const FAST: Self = Self { beat: Duration::from_millis(200) };
}

/// Plays the whole story at the name server, or until `stop` is requested.
pub async fn play(server: &HostPort, pace: Pace, voice: &Voice, stop: &Stop) -> Report {
    let tasks = Tasks::new();
    let mut show = match Show::new(server, pace, voice) {
        Ok(show) => show,
        Err(error) => return Report::failed(Exit::No, error),
    };
    let played = tokio::select! {
        played = show.play(stop, &tasks) => played,
        () = stop.requested() => Ok(()),
    };
    tasks.cancel();
    tasks.drain(CLOSE_LIMIT).await;
    for broker in show.brokers.drain(..) {
        broker.close(CLOSE_LIMIT).await;
    }
    show.discovery.close(CLOSE_LIMIT).await;
    match played {
        Ok(()) => Report::done(),
        Err(error) => Report::failed(Exit::No, error),
    }
}

struct Show<'a> {
    server: HostPort,
    pace: Pace,
    began: Instant,
    voice: &'a Voice,
    discovery: Discovery,
    brokers: Vec<SimulatedBroker>,
}

impl<'a> Show<'a> {
    fn new(server: &HostPort, pace: Pace, voice: &'a Voice) -> Result<Self, String> {
        let mut options = Options::new(Source::List(AddressList::from_iter([server.clone()])));
        options.poll_period = pace.beat;
        options.faults = FaultPolicy {
            probe_limit: pace.beat,
            avoided_probe_period: pace.beat,
            idle_probe_after: pace.beat * 5,
            ..FaultPolicy::default()
        };
        let discovery = Discovery::start(options).map_err(|error| error.to_string())?;
        Ok(Self {
            server: server.clone(),
            pace,
            began: Instant::now(),
            voice,
            discovery,
            brokers: Vec::new(),
        })
    }

    async fn play(&mut self, stop: &Stop, tasks: &Tasks) -> Result<(), String> {
        let server = self.server.clone();
        self.voice.say(&format!(
            "A name server runs at {server}. Clients ask it one thing: where does a topic live?"
        ));
        self.voice.print(&format!("          Look at it from another terminal: waypost brokers -n {server}"));
        self.at(2).await;
        self.voice
            .say("Two brokers start and tell it that they have the topic orders: broker-a and broker-b.");
        self.start("broker-a").await?;
        self.start("broker-b").await?;
        self.at(4).await;
        self.voice
            .say("A client starts. It asks the name server, and sends messages straight to the brokers.");
        let producer = Producer::new(self.discovery.clone(), self.pace, self.voice.clone());
        let ended = stop.child();
        let sending = tasks.spawn(producer.run(ended.clone()));
        self.at(12).await;
        self.voice.say("A third broker starts: broker-c.");
        self.start("broker-c").await?;
        self.at(21).await;
        self.voice
            .say("broker-b hangs like a stopped process: its connections stay open, and it answers nobody.");
        self.behave("broker-b", Conduct { paused: true, ..Conduct::default() })?;
        self.at(35).await;
        self.voice.say("broker-b goes on.");
        self.behave("broker-b", Conduct::default())?;
        self.at(42).await;
        self.voice.say("broker-c is killed.");
        self.brokers.retain(|broker| broker.name() != "broker-c");
        self.at(48).await;
        self.voice
            .say("broker-a is to be maintained: it unregisters, and serves on until nobody sends to it.");
        self.behave("broker-a", Conduct { absent: true, ..Conduct::default() })?;
        self.at(52).await;
        self.voice.say("broker-a is shut down.");
        self.shut_down("broker-a").await;
        self.at(56).await;
        ended.request();
        // An error is a panic, which was reported.
        let totals = sending.await.map_err(|error| error.to_string())?;
        self.conclude(&totals);
        Ok(())
    }

    /// Waits for a time of the script.
    async fn at(&self, beats: u32) {
        sleep_until(self.began + self.pace.beat * beats).await;
    }

    async fn start(&mut self, name: &str) -> Result<(), String> {
        let plan = BrokerPlan {
            cluster: "DemoCluster".to_owned(),
            name: name.to_owned(),
            topics: vec![Topic::new(TOPIC, 4)],
            heartbeat: Some((self.pace.beat / 2).max(Duration::from_millis(100))),
            // Not less than a machine that is busy with other tests may hold a thread up.
            timeout: (self.pace.beat * 4).max(Duration::from_secs(1)),
            ..BrokerPlan::default()
        };
        let source = Source::List(AddressList::from_iter([self.server.clone()]));
        let broker = SimulatedBroker::start(&plan, source, Dialer::default()).await;
        self.brokers.push(broker.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn behave(&self, name: &str, conduct: Conduct) -> Result<(), String> {
        let broker = self.brokers.iter().find(|broker| broker.name() == name);
        broker.map_or(Ok(()), |broker| broker.behave(conduct)).map_err(|error| error.to_string())
    }

    async fn shut_down(&mut self, name: &str) {
        if let Some(index) = self.brokers.iter().position(|broker| broker.name() == name) {
            self.brokers.swap_remove(index).close(CLOSE_LIMIT).await;
        }
    }

    fn conclude(&self, totals: &Totals) {
        let Totals { sent, failed, second_tries, slowest } = totals;
        self.voice.say(&format!(
            "The end. The client sent {sent} messages; {failed} failed, {second_tries} needed a second broker, the slowest \
             took {} ms.",
            slowest.as_millis()
        ));
        self.voice
            .print("Next:     waypost serve                      a name server of your own, on port 9876");
        self.voice.print("          waypost register --from FILE       brokers that fail when you want, see docs/drills.md");
        self.voice
            .print("          waypost watch TOPIC -n LIST        follow a route at any RocketMQ name server");
    }
}
