//! The discovery as applications use it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use waypost_net::address::AddressList;
use waypost_net::clock::{Clock, Millis};
use waypost_net::dialer::Dialer;
use waypost_net::socket::SocketOptions;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::body::TopicRouteData;

use crate::brokers::Brokers;
use crate::core::{Core, Known, Lookup, Notice, Ticket};
use crate::driver::{Command, Driver};
use crate::error::{LookupError, StartError};
use crate::faults::{FaultPolicy, Faults, Outcome};
use crate::fleet::Server;
use crate::link::PROBE;
use crate::observer::Observer;
use crate::prober;
use crate::publish::{DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES, default_topic_route};
use crate::published::{Content, Published, Slot};
use crate::read::{Read, request_subject};
use crate::route::TopicRoute;

/// How often routes in use are asked for (spec B4).
pub const POLL_PERIOD: Duration = Duration::from_secs(30);

/// The core ends each call at its deadline and says what each server said. Should its task be held up for longer than
/// a busy machine makes it wait, the call ends by itself after this.
const GRACE: Duration = Duration::from_millis(100);

/// How a discovery works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the name servers are.
    pub servers: Source,
    /// How connections are made, to name servers and for probes to brokers.
    pub dialer: Dialer,
    /// How often routes in use are asked for; up to a fifth more often by chance.
    pub poll_period: Duration,
    /// When brokers are avoided and probed.
    pub faults: FaultPolicy,
    /// Whether silent brokers are probed (decision 25). Only useful to those who choose queues.
    pub probe_brokers: bool,
    /// Is told what happens.
    pub observer: Option<Arc<dyn Observer>>,
    /// Makes the choices by chance repeatable; from the system if `None`.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults: polls every 30 s, brokers probed, connections that notice a dead machine within 10 s
    /// (spec B17 item 7).
    #[must_use]
    pub fn new(servers: Source) -> Self {
        let socket = SocketOptions {
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(2),
            keepalive_probes: 3,
            user_timeout: Some(Duration::from_secs(10)),
            ..SocketOptions::default()
        };
        Self {
            servers,
            dialer: Dialer { socket, tls: None },
            poll_period: POLL_PERIOD,
            faults: FaultPolicy::default(),
            probe_brokers: true,
            observer: None,
            seed: None,
        }
    }
}

/// Whether [`Discovery::wait_ready`] gives up at the first failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every server is asked once; if none answers, that is the error.
    FailFast,
    /// The servers are asked again and again until the limit.
    Wait,
}

/// Finds routes and keeps them fresh. Clones share everything.
///
/// Dropping the last clone, and everything made from it, ends its tasks and closes its sockets;
/// [`Discovery::close`] also waits for that.
#[derive(Clone, Debug)]
pub struct Discovery {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
    clock: Clock,
    tickets: AtomicU64,
    tasks: Tasks,
    endpoints: watch::Receiver<Arc<[waypost_rocketmq_remoting::endpoint::Endpoint]>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

/// What the driver's task and callers share. Locks are held for a few instructions, never across IO, and neither a look
/// at a known route nor a choice among brokers takes one.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) published: Published,
    brokers: Mutex<BrokerSide>,
    /// Counts what the faults hold against brokers; see [`Faults::changes`].
    pub(crate) fault_changes: Arc<AtomicU64>,
    observer: Option<Arc<dyn Observer>>,
}

#[derive(Debug)]
pub(crate) struct BrokerSide {
    pub(crate) brokers: Brokers,
    pub(crate) faults: Faults,
    pub(crate) random: StdRng,
}

impl Shared {
    pub(crate) fn brokers(&self) -> MutexGuard<'_, BrokerSide> {
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, topic: &Arc<str>, known: Known, changed: bool) {
        if changed {
            let old = self.published.known(topic).and_then(|old| old.route);
            self.brokers().brokers.replace(topic, old.as_deref(), known.route.as_deref());
        }
        self.published.publish(topic, known, changed);
    }

    pub(crate) fn forget(&self, topic: &Arc<str>) {
        if let Some(known) = self.published.known(topic) {
            self.brokers().brokers.replace(topic, known.route.as_deref(), None);
        }
        self.published.forget(topic);
    }

    pub(crate) fn observe(&self, notice: &Notice) {
        if let Some(observer) = &self.observer {
            observer.notice(notice);
        }
    }
}

impl Discovery {
    /// Starts on the current tokio runtime. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`StartError::NoRuntime`].
    pub fn start(options: Options) -> Result<Self, StartError> {
        Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let tasks = Tasks::new();
        let servers = Servers::start(options.servers.clone(), &tasks);
        Self::launch(servers, options, tasks)
    }

    /// The same over a live list that others follow as well; the source in `options` is not used. The list is
    /// resolved once for all, and [`Discovery::replace_servers`] replaces it for all.
    ///
    /// # Errors
    ///
    /// [`StartError::NoRuntime`].
    pub fn over(servers: Servers, options: Options) -> Result<Self, StartError> {
        Self::launch(servers, options, Tasks::new())
    }

    fn launch(servers: Servers, options: Options, tasks: Tasks) -> Result<Self, StartError> {
        Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let Options { servers: _, dialer, poll_period, faults, probe_brokers, observer, seed } = options;
        let mut random = seed.map_or_else(|| StdRng::from_rng(&mut rand::rng()), StdRng::seed_from_u64);
        let broker_side = BrokerSide {
            brokers: Brokers::default(),
            faults: Faults::new(faults),
            random: StdRng::from_rng(&mut random),
        };
        let shared = Arc::new(Shared {
            published: Published::default(),
            fault_changes: broker_side.faults.changes(),
            brokers: Mutex::new(broker_side),
            observer,
        });
        let endpoints = servers.subscribe();
        let (commands, waiting) = mpsc::unbounded_channel();
        let (replies, replied) = mpsc::unbounded_channel();
        let driver = Driver {
            core: Core::new(poll_period, random),
            clock: Clock::system(),
            shared: Arc::clone(&shared),
            servers,
            dialer: dialer.clone(),
            tasks: tasks.clone(),
            links: HashMap::new(),
            lookups: HashMap::new(),
            reads: HashMap::new(),
            replies,
        };
        tasks.spawn(driver.run(waiting, replied, tasks.stop()));
        if probe_brokers {
            tasks.spawn(prober::run(Arc::clone(&shared), dialer, commands.downgrade(), tasks.clone()));
        }
        let tickets = AtomicU64::new(0);
        let inner = Inner { commands, shared, clock: Clock::system(), tickets, tasks, endpoints };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The route of a topic: the known one at once, else what the servers say within `limit`. From now on the
    /// topic is kept fresh, until nobody has asked for it for five minutes. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LookupError`]; it lists what each server said.
    pub async fn route(&self, topic: &str, limit: Duration) -> Result<Arc<TopicRoute>, LookupError> {
        self.look_up(topic, None, false, limit).await.and_then(|known| route_of(topic, known))
    }

    /// What is known of the topic, confirmed within the last `age`, or asked for now. If no server answers
    /// within `limit`, a known route is given and is marked stale. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Discovery::route`].
    pub async fn younger_than(
        &self,
        topic: &str,
        age: Duration,
        limit: Duration,
    ) -> Result<Known, LookupError> {
        self.look_up(topic, Some(age), false, limit).await
    }

    /// Asks the servers for the route now, whatever is known. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Discovery::route`], also when only the known route could be given.
    pub async fn refresh(&self, topic: &str, limit: Duration) -> Result<Arc<TopicRoute>, LookupError> {
        let found = self.look_up(topic, Some(Duration::ZERO), true, limit).await;
        found.and_then(|known| route_of(topic, known))
    }

    /// The route of a topic, or if it does not exist, where its first message can be sent: the queues of the
    /// default topic `TBW102`, at most `queues` (the original has 4) a broker (spec B11). Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`Discovery::route`]; the error is about `topic` also when the default topic does not exist either.
    pub async fn route_or_default(
        &self,
        topic: &str,
        queues: Option<i32>,
        limit: Duration,
    ) -> Result<Arc<TopicRoute>, LookupError> {
        let began = self.inner.clock.now();
        let missing = match self.route(topic, limit).await {
            Err(missing @ LookupError::NotExist { .. }) => missing,
            found => return found,
        };
        let rest = limit.saturating_sub(self.inner.clock.now().since(began));
        let Ok(default) = self.route(DEFAULT_TOPIC, rest).await else { return Err(missing) };
        let derived = default_topic_route(default.to_wire(), queues.unwrap_or(DEFAULT_TOPIC_QUEUES));
        Ok(Arc::new(TopicRoute::from(derived)))
    }

    /// What is known of the topic, without asking anybody.
    #[must_use]
    pub fn known(&self, topic: &str) -> Option<Known> {
        self.inner.shared.published.known(topic)
    }

    /// Every topic that is known, in no order.
    #[must_use]
    pub fn all_known(&self) -> Vec<(Arc<str>, Known)> {
        self.inner.shared.published.all_known()
    }

    /// Follows the route of a topic, which is kept fresh as long as this is held.
    #[must_use]
    pub fn watch(&self, topic: &str) -> RouteWatch {
        let topic: Arc<str> = topic.into();
        let slot = self.inner.shared.published.slot(&topic);
        let mut content = slot.subscribe();
        // What is known already is no news, but for a first look.
        content.mark_changed();
        self.send(Command::Watch(Arc::clone(&topic)));
        RouteWatch { discovery: self.clone(), topic, slot, content, seen: None }
    }

    /// Gives a route that was saved in an earlier life. It is marked stale until a server confirms it.
    pub fn restore(&self, topic: &str, route: TopicRouteData) {
        self.send(Command::Restore(topic.into(), Box::new(route)));
    }

    /// Tells how a request to a broker of the topic ended. After a failure the broker is avoided at once, and
    /// the route is asked for until it changes. Requests to a slave are reported under its address.
    pub fn report(&self, topic: &str, broker: &str, outcome: Outcome) {
        let failed = outcome.is_failure();
        self.inner.shared.brokers().faults.report(broker, outcome, self.inner.clock.now());
        if failed {
            self.send(Command::ReportFailure(topic.into()));
        }
    }

    /// Asks any healthy server something else, the next one if the first is silent or busy. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LookupError::NoAnswer`], [`LookupError::NoServers`] or [`LookupError::Closed`].
    pub async fn ask(&self, read: Read, limit: Duration) -> Result<Answer, LookupError> {
        self.put_read(read, limit, true).await
    }

    /// Waits until a name server answers.
    ///
    /// # Errors
    ///
    /// What each server said.
    pub async fn wait_ready(&self, readiness: Readiness, limit: Duration) -> Result<(), LookupError> {
        let began = self.inner.clock.now();
        let mut endpoints = self.inner.endpoints.clone();
        // Names are still being resolved: that is not a failure yet.
        let listed = timeout(limit, endpoints.wait_for(|list| !list.is_empty())).await;
        drop(listed);
        let rest = limit.saturating_sub(self.inner.clock.now().since(began));
        self.put_read(Read::new(PROBE.code, PROBE.ext), rest, readiness == Readiness::Wait).await.map(drop)
    }

    /// Replaces the list of servers; routes stay. An empty list is ignored.
    pub fn replace_servers(&self, list: AddressList) {
        self.send(Command::Replace(list));
    }

    /// The servers and their health; empty after the close.
    pub async fn servers(&self) -> Vec<Server> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Servers(answer));
        answered.await.unwrap_or_default()
    }

    /// The health of the brokers that topics in use have.
    #[must_use]
    pub fn broker_health(&self) -> Vec<crate::faults::BrokerHealth> {
        self.inner.shared.brokers().faults.health(self.inner.clock.now()).collect()
    }

    /// The clock that [`Known::checked`] is told by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Ends all calls and closes all connections, waiting for at most `limit`. Returns whether everything ended.
    pub async fn close(&self, limit: Duration) -> bool {
        self.inner.tasks.cancel();
        self.inner.tasks.drain(limit).await == 0
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    fn send(&self, command: Command) {
        // Fails only after the close, when nobody is left to care.
        let _ = self.inner.commands.send(command);
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.inner.tickets.fetch_add(1, Ordering::Relaxed))
    }

    async fn look_up(
        &self,
        topic: &str,
        max_age: Option<Duration>,
        strict: bool,
        limit: Duration,
    ) -> Result<Known, LookupError> {
        let now = self.inner.clock.now();
        if let Some(known) = self.known_at_once(topic, max_age, now) {
            return Ok(known);
        }
        let ticket = self.ticket();
        let deadline = now.after(limit);
        let lookup = Lookup { topic: topic.into(), max_age, strict, deadline };
        let (answer, answered) = oneshot::channel();
        self.send(Command::Lookup { ticket, lookup, answer });
        let found = self.wait_for(ticket, answered, &format!("topic \"{topic}\""), limit).await;
        let known = || self.known(topic).filter(|known| known.route.is_some());
        match found {
            // The core would have given the known route, had its task not been held up.
            Err(LookupError::NoAnswer { .. }) if !strict && let Some(known) = known() => {
                Ok(Known { stale: true, ..known })
            }
            found => found,
        }
    }

    /// The known route if it is young enough, without waiting for the driver; nothing after the close.
    fn known_at_once(&self, topic: &str, max_age: Option<Duration>, now: Millis) -> Option<Known> {
        if self.inner.commands.is_closed() {
            return None;
        }
        let found = self.inner.shared.published.fresh(topic, max_age, now)?;
        if found.tell {
            self.send(Command::Used(topic.into()));
        }
        Some(found.known)
    }

    async fn put_read(&self, read: Read, limit: Duration, persistent: bool) -> Result<Answer, LookupError> {
        let ticket = self.ticket();
        let deadline = self.inner.clock.now().after(limit);
        let (answer, answered) = oneshot::channel();
        let subject = request_subject(read.code);
        self.send(Command::Read { ticket, read: Arc::new(read), deadline, persistent, answer });
        self.wait_for(ticket, answered, &subject, limit).await
    }

    async fn wait_for<T>(
        &self,
        ticket: Ticket,
        answered: oneshot::Receiver<Result<T, LookupError>>,
        subject: &str,
        limit: Duration,
    ) -> Result<T, LookupError> {
        let _abandon = Abandon { discovery: self, ticket };
        match timeout(limit.saturating_add(GRACE), answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(LookupError::Closed),
            Err(_) => Err(LookupError::NoAnswer { subject: subject.to_owned(), limit, said: Vec::new() }),
        }
    }
}

fn route_of(topic: &str, known: Known) -> Result<Arc<TopicRoute>, LookupError> {
    known.route.ok_or_else(|| LookupError::NotExist { topic: topic.to_owned(), said: Vec::new() })
}

/// Tells the core when a call is over, also when it was dropped.
struct Abandon<'a> {
    discovery: &'a Discovery,
    ticket: Ticket,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.discovery.send(Command::Abandon(self.ticket));
    }
}

/// The route of a topic as it changes.
#[derive(Debug)]
pub struct RouteWatch {
    discovery: Discovery,
    topic: Arc<str>,
    slot: Arc<Slot>,
    content: watch::Receiver<Content>,
    seen: Option<u64>,
}

impl RouteWatch {
    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub(crate) fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// What is known now.
    #[must_use]
    pub fn current(&self) -> Known {
        self.discovery.shared().published.known(&self.topic).unwrap_or_default()
    }

    /// Another number than before says that [`RouteWatch::current`] may give something else.
    pub(crate) fn version(&self) -> u64 {
        self.slot.version()
    }

    /// Waits for content that [`RouteWatch::changed`] has not given yet; `None` says that the topic is gone.
    /// Changes that follow each other quickly may be seen as one. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LookupError::Closed`].
    pub async fn changed(&mut self) -> Result<Option<Arc<TopicRoute>>, LookupError> {
        let stop = self.discovery.inner.tasks.stop();
        loop {
            tokio::select! {
                changed = self.content.changed() => changed.map_err(|_| LookupError::Closed)?,
                () = stop.requested() => return Err(LookupError::Closed),
            }
            let content = self.content.borrow_and_update().clone();
            // Number 0 is the place before anybody answered.
            if content.number > 0 && self.seen != Some(content.number) {
                self.seen = Some(content.number);
                return Ok(content.route);
            }
        }
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.discovery.send(Command::Unwatch(Arc::clone(&self.topic)));
    }
}
