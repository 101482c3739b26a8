//! `waypost register`: simulated brokers for drills.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{interval, sleep};
use waypost_net::clock::{Clock, Millis};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Stop;
use waypost_rocketmq_registrar::{Farewell, FarewellOutcome, IdentityError, Phase};
use waypost_rocketmq_remoting::source::Source;

use crate::arguments::RegisterArguments;
use crate::exit::Exit;
use crate::run::{Report, dialer};
use crate::servers::Servers;
use crate::simulated::{BrokerPlan, Conduct, Fault, SimulatedBroker, SimulationError, read};
use crate::voice::Voice;

/// How exactly faults begin and end.
const STEP: Duration = Duration::from_millis(50);
/// How long servers may take to answer the goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// Something that happened to a simulated broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// It listens.
    Listens {
        /// The broker.
        broker: String,
        /// Its cluster.
        cluster: String,
        /// Its id.
        id: u64,
        /// Where clients find it.
        address: String,
        /// Its topics.
        topics: Vec<String>,
    },
    /// Its registration at a server changed.
    Registration {
        /// The broker.
        broker: String,
        /// The server.
        server: String,
        /// `connecting`, `registering`, `registered`, `silent`, `refused`, `absent` or `leaving`.
        phase: String,
        /// What went wrong, if anything did.
        reason: Option<String>,
    },
    /// A fault begins.
    FaultBegins {
        /// The broker.
        broker: String,
        /// What it does.
        fault: String,
    },
    /// A fault is over.
    FaultEnds {
        /// The broker.
        broker: String,
        /// What it did.
        fault: String,
    },
    /// It left a server.
    Left {
        /// The broker.
        broker: String,
        /// The server.
        server: String,
        /// Whether the server took it off its routes.
        unregistered: bool,
        /// What happened.
        message: String,
    },
    /// It ended.
    Ended {
        /// The broker.
        broker: String,
        /// How many messages clients sent to it.
        messages: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listens { broker, cluster, id, address, topics } => {
                write!(
                    formatter,
                    "{broker} of {cluster} (id {id}) listens on {address}; topics: {}",
                    topics.join(", ")
                )
            }
            Self::Registration { broker, server, phase, reason: None } => {
                write!(formatter, "{broker} at {server}: {phase}")
            }
            Self::Registration { broker, server, phase, reason: Some(reason) } => {
                write!(formatter, "{broker} at {server}: {phase} ({reason})")
            }
            Self::FaultBegins { broker, fault } => write!(formatter, "{broker} {fault}"),
            Self::FaultEnds { broker, fault } => write!(formatter, "{broker} is over with this: {fault}"),
            Self::Left { broker, message, .. } => write!(formatter, "{broker}: {message}"),
            Self::Ended { broker, messages } => {
                write!(formatter, "{broker} ended; clients sent {messages} messages to it, which it forgot")
            }
        }
    }
}

/// A broker that runs, its plan, and what was said of it.
struct Actor {
    plan: BrokerPlan,
    broker: SimulatedBroker,
    began: Millis,
    conduct: Conduct,
    /// By fault, whether it was on.
    on: Vec<bool>,
    phases: BTreeMap<String, Phase>,
}

impl Actor {
    async fn start(
        plan: BrokerPlan,
        servers: &Servers,
        dialer: &Dialer,
        now: Millis,
    ) -> Result<Self, SimulationError> {
        let source = Source::List(servers.list());
        let broker = SimulatedBroker::start(&plan, source, dialer.clone()).await?;
        let on = vec![false; plan.faults.len()];
        Ok(Self { plan, broker, began: now, conduct: Conduct::default(), on, phases: BTreeMap::new() })
    }

    fn name(&self) -> String {
        self.plan.name.clone()
    }

    fn listens(&self) -> Event {
        Event::Listens {
            broker: self.name(),
            cluster: self.plan.cluster.clone(),
            id: self.plan.id,
            address: self.broker.address().to_string(),
            topics: self.plan.topics.iter().map(|topic| topic.name.clone()).collect(),
        }
    }

    /// Begins and ends faults whose time it is.
    fn act(&mut self, now: Millis) -> Result<Vec<Event>, IdentityError> {
        let elapsed = now.since(self.began);
        let conduct = Conduct::of(&self.plan.faults, elapsed);
        if conduct != self.conduct {
            self.broker.behave(conduct)?;
            self.conduct = conduct;
        }
        Ok(turns(&self.plan.name, &self.plan.faults, &mut self.on, elapsed))
    }

    /// What changed at the servers.
    fn look(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for state in self.broker.servers() {
            let server = state.server.to_string();
            // Between two steps of one registration there is nothing to see.
            let passing = matches!(state.phase, Phase::Registering | Phase::Leaving);
            if passing || self.phases.insert(server.clone(), state.phase) == Some(state.phase) {
                continue;
            }
            let failed = matches!(state.phase, Phase::Connecting | Phase::Silent | Phase::Refused);
            let reason = state.failure.filter(|_| failed).map(|(error, _)| error.to_string());
            // At the start every server is being connected to.
            if state.phase == Phase::Connecting && reason.is_none() {
                self.phases.remove(&server);
                continue;
            }
            let phase = state.phase.to_string();
            events.push(Event::Registration { broker: self.name(), server, phase, reason });
        }
        events
    }

    async fn leave(self) -> Vec<Event> {
        let (broker, messages) = (self.name(), self.broker.messages());
        let farewells = self.broker.close(CLOSE_LIMIT).await;
        let mut events: Vec<Event> = farewells.iter().map(|farewell| left(&broker, farewell)).collect();
        events.push(Event::Ended { broker, messages });
        events
    }
}

fn left(broker: &str, farewell: &Farewell) -> Event {
    Event::Left {
        broker: broker.to_owned(),
        server: farewell.server.to_string(),
        unregistered: farewell.outcome == FarewellOutcome::Unregistered,
        message: farewell.to_string(),
    }
}

/// The faults that began or ended since `on` was noted.
fn turns(broker: &str, faults: &[Fault], on: &mut [bool], elapsed: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    for (fault, was_on) in faults.iter().zip(on) {
        let is_on = fault.is_on(elapsed);
        if is_on != std::mem::replace(was_on, is_on) {
            let (broker, fault) = (broker.to_owned(), fault.kind.to_string());
            events.push(match is_on {
                true => Event::FaultBegins { broker, fault },
                false => Event::FaultEnds { broker, fault },
            });
        }
    }
    events
}

/// Runs the brokers of a file until `stop` is requested or the time is over; then they unregister.
pub async fn register(arguments: &RegisterArguments, voice: &Voice, stop: &Stop) -> Report {
    match run(arguments, voice, stop).await {
        Ok(report) | Err(report) => report,
    }
}

async fn run(arguments: &RegisterArguments, voice: &Voice, stop: &Stop) -> Result<Report, Report> {
    let plans = read(&arguments.from).map_err(|error| Report::failed(Exit::Usage, error.to_string()))?;
    if arguments.check {
        voice.print(&summary(arguments, &plans));
        return Ok(Report::done());
    }
    let dialer = dialer(&arguments.tls)?;
    let failed = |error: String| Report::failed(Exit::No, error);
    let clock = Clock::system();
    let mut actors = Vec::new();
    for plan in plans {
        let actor = Actor::start(plan, &arguments.list.servers, &dialer, clock.now()).await;
        let actor = actor.map_err(|error| failed(error.to_string()))?;
        voice.tell(&actor.listens());
        actors.push(actor);
    }
    let mut steps = interval(STEP);
    let end = sleep(arguments.limit.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = stop.requested() => break,
            () = &mut end => break,
            _ = steps.tick() => for actor in &mut actors {
                let acted = actor.act(clock.now()).map_err(|error| failed(error.to_string()))?;
                acted.iter().chain(&actor.look()).for_each(|event| voice.tell(event));
            },
        }
    }
    let leaving = actors.into_iter().map(|actor| tell_leave(actor, voice));
    join_all(leaving).await;
    Ok(Report::done())
}

async fn tell_leave(actor: Actor, voice: &Voice) {
    actor.leave().await.iter().for_each(|event| voice.tell(event));
}

/// Waits for all of them at once.
async fn join_all(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut open: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        open.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if open.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

fn summary(arguments: &RegisterArguments, plans: &[BrokerPlan]) -> String {
    let faults: usize = plans.iter().map(|plan| plan.faults.len()).sum();
    let path = arguments.from.display();
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!("{path} is good: {}, {}", count(plans.len(), "broker"), count(faults, "fault"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::FaultKind;

    #[test]
    fn each_fault_is_told_once_at_its_beginning_and_its_end() {
        let second = Duration::from_secs(1);
        let faults = [
            Fault { at: second, length: second, kind: FaultKind::Pause },
            Fault { at: second * 2, length: second, kind: FaultKind::Slow(second / 2) },
        ];
        let mut on = [false; 2];
        let mut told = |elapsed: Duration| -> Vec<String> {
            turns("b", &faults, &mut on, elapsed).iter().map(ToString::to_string).collect()
        };
        assert!(told(Duration::ZERO).is_empty());
        assert_eq!(told(second), ["b stands still like a stopped process"]);
        assert!(told(second).is_empty());
        let both =
            ["b is over with this: stands still like a stopped process", "b answers clients 500ms late"];
        assert_eq!(told(second * 2), both);
        assert_eq!(told(second * 9), ["b is over with this: answers clients 500ms late"]);
    }
}
