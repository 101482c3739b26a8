//! How each name server of the list stands; each change of it is a line of the log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::sync::{Notify, watch};
use waypost_net::clock::{Clock, Millis, Pulse};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_discovery::core::Notice;
use waypost_rocketmq_discovery::observer::Observer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::language::Language;
use waypost_rocketmq_wire::message::Request;

use crate::standing::{Asked, Change, Failure, Standing, State};

/// How often standings are looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// A server that answered anybody within this is not asked: so soon its end is seen where nobody speaks to it.
const ASK_PERIOD: Duration = Duration::from_secs(5);

/// The same for one that does not answer or refuses: so soon its return is seen.
const ASK_AGAIN_PERIOD: Duration = Duration::from_secs(2);

/// The least time between two questions.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// How long a connect may take, as the original's clients have it.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long an answer is waited for: one question to a stopped server is enough, and its answer is the first sign that
/// it goes on. A machine that is gone is noticed by the system, much earlier.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// After a standstill of the own process nobody is called silent before what came meanwhile is read.
const THAW_GRACE: Duration = Duration::from_secs(3);

/// How much of a reason is logged, in characters: a refusal is the peer's text.
const REASON_MAX: usize = 200;

/// Namespace and key of the agent's question: cheap for every server and logged by none, as nobody sets it.
const QUESTION: [(&str, &str); 2] = [("namespace", "WAYPOST"), ("key", "probe")];

/// Whether a request is such a question, of another agent for example: it is answered here and not passed on, or two
/// agents that have each other in their lists would ask in circles.
pub(crate) fn is_question(header: &Header<'_>) -> bool {
    header.code == request::GET_KV_CONFIG
        && QUESTION.iter().all(|(name, value)| header.ext.get(name) == Some(*value))
}

/// What it is answered, as by a name server that does not have the key.
pub(crate) const ANSWER: (i32, &str) =
    (response::QUERY_NOT_FOUND, "No config item, Namespace: WAYPOST Key: probe");

/// The standings of all servers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Standings {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    servers: Mutex<HashMap<Endpoint, Watched>>,
}

#[derive(Debug)]
struct Watched {
    standing: Standing,
    /// Wakes who asks it.
    doubt: Arc<Notify>,
}

/// Something that a server has to answer; without an outcome it is given up.
#[derive(Debug)]
pub(crate) struct Waiting {
    standings: Standings,
    server: Endpoint,
    /// `None` if it is not on the list.
    asked: Option<Asked>,
}

impl Standings {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { inner: Arc::new(Inner { clock, servers: Mutex::default() }) }
    }

    /// How a server stands; nothing if it is not on the list.
    pub(crate) fn of(&self, server: &Endpoint) -> Option<Standing> {
        self.servers().get(server).map(|watched| watched.standing.clone())
    }

    /// A broker's frame is said to a server that has to answer it.
    pub(crate) fn asked(&self, server: &Endpoint) -> Waiting {
        let asked = self.change(server, |standing, now| standing.asked(now));
        Waiting { standings: self.clone(), server: server.clone(), asked }
    }

    /// A broker has no connection to a server.
    pub(crate) fn not_connected(&self, server: &Endpoint, error: &CallError) {
        let fault = Failure::of_error(error).fault;
        self.change(server, |standing, now| standing.failed_others(fault, now));
    }

    /// Follows the list: asks each server that nobody else hears of, and logs each change.
    pub(crate) fn start(
        &self,
        mut list: watch::Receiver<Arc<[Endpoint]>>,
        dialer: Dialer,
        pulse: Pulse,
        tasks: &Tasks,
    ) {
        let (standings, all, stop) = (self.clone(), tasks.clone(), tasks.stop());
        // Before anything else is said to them.
        let mut asking = HashMap::new();
        standings.follow(&list.borrow_and_update().clone(), &dialer, &all, &mut asking);
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(LOOK_PERIOD);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    changed = list.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        let servers = list.borrow_and_update().clone();
                        standings.follow(&servers, &dialer, &all, &mut asking);
                    }
                    _ = ticks.tick() => {
                        if !pulse.is_thawing(standings.inner.clock.now(), THAW_GRACE) {
                            standings.look();
                        }
                    }
                }
            }
        });
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Endpoint, Watched>> {
        self.inner.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, server: &Endpoint, change: impl FnOnce(&mut Standing, Millis) -> R) -> Option<R> {
        let now = self.inner.clock.now();
        let (result, changed) = {
            let mut servers = self.servers();
            let watched = servers.get_mut(server)?;
            let result = change(&mut watched.standing, now);
            if watched.standing.is_doubtful(now) {
                watched.doubt.notify_one();
            }
            // A first or a new answer counts at once; what is bad news is looked at when its time has come.
            let may_be_well = watched.standing.state() != State::Healthy;
            (result, may_be_well.then(|| watched.standing.look(now)).flatten())
        };
        if let Some(changed) = changed {
            log(server, &changed);
        }
        Some(result)
    }

    fn follow(
        &self,
        list: &[Endpoint],
        dialer: &Dialer,
        tasks: &Tasks,
        asking: &mut HashMap<Endpoint, Tasks>,
    ) {
        let now = self.inner.clock.now();
        asking.retain(|server, tasks| {
            let stays = list.contains(server);
            if !stays {
                tasks.cancel();
                self.servers().remove(server);
            }
            stays
        });
        for server in list {
            if asking.contains_key(server) {
                continue;
            }
            let doubt = Arc::new(Notify::new());
            let watched = Watched { standing: Standing::new(now), doubt: Arc::clone(&doubt) };
            self.servers().insert(server.clone(), watched);
            let own = tasks.child();
            let questioner = Questioner {
                standings: self.clone(),
                server: server.clone(),
                dialer: dialer.clone(),
                doubt,
                tasks: own.clone(),
            };
            let stop = own.stop();
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.requested() => {}
                    () = questioner.run() => {}
                }
            });
            asking.insert(server.clone(), own);
        }
    }

    /// Looks at the time.
    fn look(&self) {
        let now = self.inner.clock.now();
        let mut changes = Vec::new();
        for (server, watched) in self.servers().iter_mut() {
            changes.extend(watched.standing.look(now).map(|change| (server.clone(), change)));
            if watched.standing.is_doubtful(now) {
                watched.doubt.notify_one();
            }
        }
        for (server, change) in changes {
            log(&server, &change);
        }
    }
}

fn log(server: &Endpoint, change: &Change) {
    let Change { before, lasted, now, why } = change;
    let (before, lasted_seconds) = (before.name(), lasted.as_secs());
    let why: String = why.iter().flat_map(|why| why.chars()).take(REASON_MAX).collect();
    match now {
        State::Healthy => tracing::info!(%server, before, lasted_seconds, "name server is healthy"),
        State::Silent => {
            tracing::warn!(%server, before, lasted_seconds, error = why, "name server is silent")
        }
        State::Refusing => {
            tracing::warn!(%server, before, lasted_seconds, error = why, "name server is refusing");
        }
        State::Unknown => tracing::info!(%server, before, lasted_seconds, "name server is unknown"),
    }
}

impl Waiting {
    /// What became of it.
    pub(crate) fn ended(self, error: Option<&CallError>) {
        self.standings.change(&self.server, |standing, now| match error {
            None => standing.answered(now),
            Some(error) => standing.failed_others(Failure::of_error(error).fault, now),
        });
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(asked) = self.asked {
            self.standings.change(&self.server, |standing, _| standing.given_up(asked));
        }
    }
}

impl Observer for Standings {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Answered { server, .. } => {
                self.change(server, |standing, now| standing.answered(now));
            }
            Notice::Failed { server, fault, .. } => {
                self.change(server, |standing, now| standing.failed_others(*fault, now));
            }
            // Routes are no matter of servers.
            _ => {}
        }
    }
}

/// Asks one server for the agent itself.
struct Questioner {
    standings: Standings,
    server: Endpoint,
    dialer: Dialer,
    doubt: Arc<Notify>,
    /// Carry its connections.
    tasks: Tasks,
}

impl Questioner {
    async fn run(self) {
        let mut connection: Option<Connection> = None;
        loop {
            self.ask(&mut connection).await;
            tokio::time::sleep(ASK_PAUSE).await;
            self.wait(connection.as_ref()).await;
        }
    }

    async fn ask(&self, connection: &mut Option<Connection>) {
        let Some(asked) = self.standings.change(&self.server, |standing, now| standing.asked(now)) else {
            return;
        };
        let began = self.standings.inner.clock.now();
        let answered = self.answer(connection).await;
        self.standings.change(&self.server, |standing, now| {
            standing.given_up(asked);
            match answered {
                Ok(None) => standing.answered_us(now.since(began), now),
                Ok(Some(failure)) => standing.failed_us(failure, now),
                Err(error) => standing.failed_us(Failure::of_error(&error), now),
            }
        });
    }

    async fn answer(&self, connection: &mut Option<Connection>) -> Result<Option<Failure>, CallError> {
        let open = match connection.as_ref().filter(|connection| connection.is_open()) {
            Some(open) => open.clone(),
            None => {
                let opened = Connection::open(&self.dialer, &self.server, CONNECT_LIMIT, &self.tasks).await?;
                connection.insert(opened).clone()
            }
        };
        // `OTHER` is the one name beside Java that every version of every server knows.
        let question =
            Request { language: Language::Other, ext: &QUESTION, ..Request::new(request::GET_KV_CONFIG) };
        let failure = Failure::of_answer(&open.call(&question, ANSWER_LIMIT).await?);
        if failure.is_some() {
            // It may be stopping; another connection may meet it in a better state.
            open.close();
        }
        Ok(failure)
    }

    /// Until it is time to ask again.
    async fn wait(&self, connection: Option<&Connection>) {
        // Agents that were started together need not ask together.
        let part = rand::rng().random_range(0.9..=1.1);
        let began = self.standings.inner.clock.now();
        loop {
            let now = self.standings.inner.clock.now();
            let Some(standing) = self.standings.of(&self.server) else { return };
            let due = match standing.state() {
                State::Healthy => standing.answered_at().unwrap_or(began).after(ASK_PERIOD.mul_f64(part)),
                State::Unknown | State::Silent | State::Refusing => {
                    began.after(ASK_AGAIN_PERIOD.mul_f64(part))
                }
            };
            if now >= due || standing.is_doubtful(now) {
                return;
            }
            let closed = async {
                match connection.filter(|connection| connection.is_open()) {
                    Some(connection) => connection.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(due.since(now)) => {}
                () = self.doubt.notified() => {}
                () = closed => return,
            }
        }
    }
}
