//! `waypost watch`: the route of a topic as it changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{interval, sleep};
use waypost_net::address::{AddressList, HostPort};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Stop;
use waypost_rocketmq_discovery::client::{Discovery, Options, RouteWatch};
use waypost_rocketmq_discovery::core::Known;
use waypost_rocketmq_discovery::error::StartError;
use waypost_rocketmq_discovery::health::Fault;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_remoting::source::Source;

use crate::arguments::WatchArguments;
use crate::changes::{Change, between};
use crate::exit::Exit;
use crate::run::{Report, dialer};
use crate::voice::Voice;

/// How often the health of the servers is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long connections may take to close at the end.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The topic has no route: no broker has registered it. It is waited for.
    Unknown {
        /// The topic.
        topic: String,
    },
    /// The topic lost its route.
    Gone {
        /// The topic.
        topic: String,
    },
    /// Its route changed.
    RouteChanged {
        /// The topic.
        topic: String,
        /// How.
        #[serde(flatten)]
        change: Change,
    },
    /// The route could not be confirmed: what is known is kept.
    Stale {
        /// The topic.
        topic: String,
        /// Whether a route is known.
        known: bool,
    },
    /// The route is confirmed again.
    Confirmed {
        /// The topic.
        topic: String,
    },
    /// A server does not answer.
    ServerFailed {
        /// Whom.
        server: String,
        /// What it does wrong.
        reason: &'static str,
    },
    /// A server answers, for the first time or again.
    ServerAnswers {
        /// Whom.
        server: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { topic } => {
                write!(formatter, "{topic} does not exist: no broker has registered it; waiting for it")
            }
            Self::Gone { topic } => write!(formatter, "{topic} is gone: no broker has it any more"),
            Self::RouteChanged { topic, change } => write!(formatter, "{topic} {change}"),
            Self::Stale { topic, known: true } => {
                write!(formatter, "{topic} is stale: no server confirms its route, clients keep the last one")
            }
            Self::Stale { topic, known: false } => {
                write!(formatter, "{topic} cannot be looked up: no server answers")
            }
            Self::Confirmed { topic } => write!(formatter, "{topic} is confirmed by a server again"),
            Self::ServerFailed { server, reason } => write!(formatter, "name server {server} {reason}"),
            Self::ServerAnswers { server } => write!(formatter, "name server {server} answers"),
        }
    }
}

/// What was last seen, to tell what is new.
#[derive(Debug)]
struct Sight {
    topic: String,
    route: Option<Arc<TopicRoute>>,
    /// Whether the topic's absence was said.
    absent: bool,
    stale: bool,
    /// Whether each server answers; `None` before the first sign of it.
    servers: BTreeMap<String, Option<bool>>,
}

/// How a server does: `None` if nothing is known yet.
type Answering = Option<Result<(), Fault>>;

impl Sight {
    fn new(topic: String) -> Self {
        Self { topic, route: None, absent: false, stale: false, servers: BTreeMap::new() }
    }

    /// Whether any server has ever answered.
    fn was_answered(&self) -> bool {
        self.route.is_some() || self.absent || self.servers.values().any(|answers| *answers == Some(true))
    }

    fn see_server(&mut self, server: &str, answering: Answering) -> Option<Event> {
        let answers = answering.map(|it| it.is_ok());
        let before = self.servers.insert(server.to_owned(), answers).flatten();
        let server = server.to_owned();
        match answering.filter(|_| before != answers)? {
            Ok(()) => Some(Event::ServerAnswers { server }),
            Err(fault) => Some(Event::ServerFailed { server, reason: reason(fault) }),
        }
    }

    fn see_route(&mut self, known: &Known) -> Vec<Event> {
        let topic = &self.topic;
        let mut events = Vec::new();
        if known.stale && !self.stale {
            events.push(Event::Stale { topic: topic.clone(), known: known.route.is_some() });
        } else if self.stale && !known.stale {
            events.push(Event::Confirmed { topic: topic.clone() });
        }
        self.stale = known.stale;
        match (&self.route, &known.route) {
            (old, Some(new)) => {
                let changes = between(old.as_deref(), new);
                let event = |change| Event::RouteChanged { topic: topic.clone(), change };
                events.extend(changes.into_iter().map(event));
                self.absent = false;
            }
            (Some(_), None) => {
                events.push(Event::Gone { topic: topic.clone() });
                self.absent = true;
            }
            (None, None) if known.checked.is_some() && !self.absent => {
                events.push(Event::Unknown { topic: topic.clone() });
                self.absent = true;
            }
            (None, None) => {}
        }
        self.route.clone_from(&known.route);
        events
    }
}

const fn reason(fault: Fault) -> &'static str {
    match fault {
        Fault::Connect => "cannot be connected to",
        Fault::Silent => "takes questions and sends no answer",
        Fault::Closed => "closes the connection",
        Fault::Refused => "refuses to answer",
        Fault::Nonsense => "sends what is no answer; is it a RocketMQ NameServer?",
        _ => "does not answer",
    }
}

/// One server of the list, asked beside the others so that its outage is seen whoever is chosen.
struct Witness {
    discovery: Discovery,
    _watch: RouteWatch,
}

impl Witness {
    fn start(server: &HostPort, arguments: &WatchArguments, dialer: &Dialer) -> Result<Self, StartError> {
        let discovery = discover([server.clone()], arguments.every, dialer)?;
        let watch = discovery.watch(&arguments.topic);
        Ok(Self { discovery, _watch: watch })
    }

    async fn look(&self, sight: &mut Sight) -> Vec<Event> {
        let servers = self.discovery.servers().await;
        let seen = servers.iter().filter_map(|server| {
            let health = &server.health;
            let fault = health.last_fault.filter(|_| health.is_suspect()).map(|(fault, _)| fault);
            let answering = fault.map(Err).or_else(|| health.last_answer.map(|_| Ok(())));
            sight.see_server(&server.endpoint.to_string(), answering)
        });
        seen.collect()
    }
}

fn discover(
    servers: impl IntoIterator<Item = HostPort>,
    every: Duration,
    dialer: &Dialer,
) -> Result<Discovery, StartError> {
    let mut options = Options::new(Source::List(AddressList::from_iter(servers)));
    options.dialer.tls.clone_from(&dialer.tls);
    options.poll_period = every;
    // Nobody sends anything.
    options.probe_brokers = false;
    Discovery::start(options)
}

/// Says what happens to a topic until `stop` is requested or the time is over.
pub async fn watch(arguments: &WatchArguments, voice: &Voice, stop: &Stop) -> Report {
    match follow(arguments, voice, stop).await {
        Ok(report) | Err(report) => report,
    }
}

async fn follow(arguments: &WatchArguments, voice: &Voice, stop: &Stop) -> Result<Report, Report> {
    let dialer = dialer(&arguments.tls)?;
    let failed = |error: StartError| Report::failed(Exit::No, error.to_string());
    let servers = arguments.list.servers.addresses();
    let discovery = discover(servers.iter().cloned(), arguments.every, &dialer).map_err(failed)?;
    let mut watch = discovery.watch(&arguments.topic);
    let witnesses = servers.iter().map(|server| Witness::start(server, arguments, &dialer));
    let witnesses = witnesses.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut sight = Sight::new(arguments.topic.clone());
    let mut ticks = interval(LOOK);
    let end = sleep(arguments.limit.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = stop.requested() => break,
            () = &mut end => break,
            // Fails only after the close, and nobody closes it.
            _ = watch.changed() => {}
            _ = ticks.tick() => {
                for witness in &witnesses {
                    witness.look(&mut sight).await.iter().for_each(|event| voice.tell(event));
                }
            }
        }
        sight.see_route(&watch.current()).iter().for_each(|event| voice.tell(event));
    }
    discovery.close(CLOSE_LIMIT).await;
    if sight.was_answered() {
        return Ok(Report::done());
    }
    let servers = &arguments.list.servers;
    Ok(Report::failed(
        Exit::Unreachable,
        format!("no server of {servers} answered; `waypost doctor` looks for the reason"),
    ))
}

#[cfg(test)]
mod tests {
    use waypost_net::clock::Millis;
    use waypost_rocketmq_wire::body::{QueueData, TopicRouteData};

    use super::*;

    fn known(queues: Option<i32>, stale: bool) -> Known {
        let route = |queues| {
            let queue = QueueData {
                broker_name: "a".to_owned(),
                read_queue_nums: queues,
                write_queue_nums: queues,
                perm: 6,
                topic_sys_flag: 0,
            };
            Arc::new(TopicRoute::from(TopicRouteData {
                queue_datas: vec![queue],
                ..TopicRouteData::default()
            }))
        };
        Known { route: queues.map(route), checked: Some(Millis::ZERO), stale }
    }

    fn told(events: impl IntoIterator<Item = Event>) -> Vec<String> {
        events.into_iter().map(|event| event.to_string()).collect()
    }

    #[test]
    fn an_unknown_topic_is_said_once_and_waited_for() {
        let mut sight = Sight::new("T".into());
        assert!(sight.see_route(&Known::default()).is_empty(), "nobody answered yet");
        let first = told(sight.see_route(&known(None, false)));
        assert_eq!(first, ["T does not exist: no broker has registered it; waiting for it"]);
        assert!(sight.see_route(&known(None, false)).is_empty());
        let came = told(sight.see_route(&known(Some(4), false)));
        assert_eq!(came, ["T is on a: 4 queues, RW-, without an address"]);
        assert_eq!(told(sight.see_route(&known(None, false))), ["T is gone: no broker has it any more"]);
        assert!(sight.see_route(&known(None, false)).is_empty());
    }

    #[test]
    fn staleness_is_said_at_its_beginning_and_its_end() {
        let mut sight = Sight::new("T".into());
        sight.see_route(&known(Some(4), false));
        assert_eq!(sight.see_route(&known(Some(4), true)).len(), 1);
        assert!(sight.see_route(&known(Some(4), true)).is_empty());
        assert_eq!(told(sight.see_route(&known(Some(4), false))), ["T is confirmed by a server again"]);
    }

    #[test]
    fn a_server_is_told_of_when_it_turns() {
        let mut sight = Sight::new("T".into());
        assert_eq!(sight.see_server("s", None), None);
        assert!(!sight.was_answered());
        let mut see = |answering| told(sight.see_server("s", answering));
        assert_eq!(see(Some(Ok(()))), ["name server s answers"]);
        assert!(see(Some(Ok(()))).is_empty());
        let silent = "name server s takes questions and sends no answer";
        assert_eq!(see(Some(Err(Fault::Silent))), [silent]);
        assert!(see(Some(Err(Fault::Connect))).is_empty(), "it is still away");
        assert_eq!(see(Some(Ok(()))), ["name server s answers"]);
        assert!(sight.was_answered());
    }
}
