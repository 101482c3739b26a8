//! Where the brokers' state is, and what follows from its changes.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use waypost_net::address::HostPort;
use waypost_net::clock::{Clock, Millis, Pulse};
use waypost_net::dialer::{DialError, Dialer};
use waypost_net::tasks::Tasks;
use waypost_net::throttle::Throttle;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_wire::body::BodyLimits;
use waypost_rocketmq_wire::frame::FrameLimits;

use crate::brokers::{Brokers, Effect};
use crate::heard::Heard;
use crate::room::NoRoom;
use crate::standings::Standings;
use crate::store::{Saved, Store};
use crate::upstream::Link;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);
/// After a standstill of the process, nobody is dropped for silence before what came meanwhile is read.
pub(crate) const THAW_GRACE: Duration = Duration::from_secs(3);
/// How long a broker's own port may take, and how often it is tried while the broker has no connection.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
const PROBE_PERIOD: Duration = Duration::from_millis(250);
/// At most one log line of each kind that peers can cause at will; the others are counted.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(10);
/// Between two writes of the same brokers: each is synced, and a broker may create many topics.
const SAVE_PERIOD: Duration = Duration::from_secs(1);
/// Before the first write, for what follows closely.
const SAVE_DELAY: Duration = Duration::from_millis(20);

/// The state of all brokers, with the means to act on it. Its lock is held for a look or a change, never while
/// bytes travel or bodies are decoded.
#[derive(Debug)]
pub(crate) struct Desk {
    brokers: Mutex<Brokers>,
    /// The links of each broker.
    links: Mutex<HashMap<String, Links>>,
    /// Wakes those who wait for answers.
    progress: watch::Sender<u64>,
    unsaved: Mutex<BTreeSet<String>>,
    /// Held while they are saved: an older state must not be written over a newer one, and the end waits for what was
    /// begun.
    saving: tokio::sync::Mutex<()>,
    save: Notify,
    pub(crate) standings: Standings,
    pub(crate) dialer: Dialer,
    pub(crate) clock: Clock,
    pub(crate) frame_limits: FrameLimits,
    pub(crate) body_limits: BodyLimits,
    servers: Servers,
    store: Option<Store>,
    complaints: Complaints,
    tasks: Tasks,
    runtime: Handle,
}

/// Warnings that a peer can cause at will, each kind once in a while.
#[derive(Debug)]
struct Complaints {
    brokers: Throttle,
    bytes: Throttle,
    older: Throttle,
    undecodable: Throttle,
}

impl Complaints {
    fn new() -> Self {
        let each = || Throttle::new(COMPLAINT_PERIOD);
        Self { brokers: each(), bytes: each(), older: each(), undecodable: each() }
    }
}

#[derive(Debug)]
struct Links {
    said: watch::Sender<u64>,
    servers: HashMap<Endpoint, Tasks>,
}

impl Desk {
    /// Starts the tasks of the relay on the current runtime.
    pub(crate) fn start(
        servers: Servers,
        standings: Standings,
        dialer: Dialer,
        store: Option<Store>,
        saved: Vec<Saved>,
        pulse: Pulse,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let desk = Arc::new(Self {
            brokers: Mutex::default(),
            links: Mutex::default(),
            progress: watch::Sender::new(0),
            unsaved: Mutex::default(),
            saving: tokio::sync::Mutex::default(),
            save: Notify::new(),
            standings,
            dialer,
            clock: Clock::system(),
            frame_limits: FrameLimits::default(),
            body_limits: BodyLimits::default(),
            servers,
            store,
            complaints: Complaints::new(),
            tasks: tasks.child(),
            runtime: Handle::current(),
        });
        let list = desk.servers.subscribe().borrow().clone();
        desk.change(|brokers, _| brokers.follow(&list));
        desk.spawn(|desk| desk.follow());
        desk.spawn(|desk| desk.tick(pulse));
        desk.spawn(|desk| desk.keep_saved());
        for saved in saved {
            desk.spawn(|desk| desk.restore(saved));
        }
        desk
    }

    /// Ends everything; the connections close, which is what servers see of a broker that is gone. What is not on
    /// disk yet is written first, for `limit` at most: the next agent speaks from it.
    pub(crate) async fn close(&self, limit: Duration) {
        drop(timeout(limit, self.save_all(&mut BTreeSet::new())).await);
        self.tasks.cancel();
        let links: Vec<Tasks> =
            self.links().drain().flat_map(|(_, links)| links.servers).map(|(_, it)| it).collect();
        for links in &links {
            links.cancel();
        }
        for links in &links {
            links.drain(limit).await;
        }
        self.tasks.drain(limit).await;
    }

    /// Looks at the state.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Brokers, Millis) -> R) -> R {
        let now = self.clock.now();
        look(&self.brokers(), now)
    }

    /// Changes the state and does what follows.
    pub(crate) fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut Brokers, Millis) -> R) -> R {
        let now = self.clock.now();
        let (result, effects) = {
            let mut brokers = self.brokers();
            let result = change(&mut brokers, now);
            let effects = brokers.take_effects();
            // In the order of the changes: a broker that ended must not keep the links of an earlier one.
            let mut links = self.links();
            drop(brokers);
            let rest = effects.into_iter().filter_map(|effect| self.act(effect, &mut links)).collect();
            (result, rest)
        };
        self.act_slowly(effects);
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// Waits until `look` finds something, or it is `until`, when it is asked for the last time.
    pub(crate) async fn wait_for<R>(
        &self,
        until: Millis,
        mut look: impl FnMut(&Brokers, Millis) -> Option<R>,
    ) -> Option<R> {
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            let now = self.clock.now();
            if let Some(found) = look(&self.brokers(), now) {
                return Some(found);
            }
            if now >= until {
                return None;
            }
            tokio::select! {
                _ = progress.changed() => {}
                () = sleep(until.since(now)) => {}
            }
        }
    }

    pub(crate) fn recheck(&self) {
        self.servers.recheck();
    }

    /// Up to a fifth shorter, so that links do not come all at once.
    pub(crate) fn jittered(&self, pause: Duration) -> Duration {
        pause.mul_f64(rand::rng().random_range(0.8..=1.0))
    }

    fn brokers(&self) -> MutexGuard<'_, Brokers> {
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, HashMap<String, Links>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn<F>(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, task) = (self.tasks.stop(), task(Arc::clone(self)));
        self.tasks.spawn_on(&self.runtime, async move {
            tokio::select! {
                () = stop.requested() => {}
                () = task => {}
            }
        });
    }

    /// Does what concerns links; gives the rest back.
    fn act(self: &Arc<Self>, effect: Effect, links: &mut HashMap<String, Links>) -> Option<Effect> {
        match effect {
            Effect::Link(address, server) => {
                let new = || Links { said: watch::Sender::new(0), servers: HashMap::new() };
                let links = links.entry(address.clone()).or_insert_with(new);
                let tasks = self.tasks.child();
                let link = Link {
                    desk: Arc::clone(self),
                    address,
                    server: server.clone(),
                    said: links.said.subscribe(),
                    tasks: tasks.clone(),
                };
                tasks.spawn_on(&self.runtime, link.run());
                if let Some(earlier) = links.servers.insert(server, tasks) {
                    earlier.cancel();
                }
                None
            }
            Effect::Unlink(address, server) => {
                if let Some(link) = links.get_mut(&address).and_then(|links| links.servers.remove(&server)) {
                    link.cancel();
                }
                None
            }
            Effect::Speak(address) => {
                if let Some(links) = links.get(&address) {
                    links.said.send_modify(|count| *count = count.wrapping_add(1));
                }
                None
            }
            Effect::End(address) => {
                for link in links.remove(&address).into_iter().flat_map(|links| links.servers) {
                    link.1.cancel();
                }
                Some(Effect::End(address))
            }
            rest @ (Effect::Probe(_) | Effect::Save(_) | Effect::NoRoom(..)) => Some(rest),
        }
    }

    fn act_slowly(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Probe(address) => self.spawn(|desk| desk.probe(address)),
                Effect::Save(address) | Effect::End(address) if self.store.is_some() => {
                    self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
                    self.save.notify_one();
                }
                Effect::NoRoom(address, reason) => self.tell_no_room(&address, reason),
                Effect::Save(_) | Effect::End(_) => {}
                // They were done where the links are.
                Effect::Link(..) | Effect::Unlink(..) | Effect::Speak(_) => {}
            }
        }
    }

    fn tell_no_room(&self, address: &str, reason: NoRoom) {
        let throttle = match reason {
            NoRoom::Brokers => &self.complaints.brokers,
            NoRoom::Bytes { .. } => &self.complaints.bytes,
            NoRoom::Older { .. } => &self.complaints.older,
        };
        if let Some(withheld) = throttle.pass(self.clock.now()) {
            tracing::warn!(broker = address, %reason, withheld, "what a broker said is not kept");
        }
    }

    /// A request of a broker was refused before anything was done.
    pub(crate) fn tell_undecodable(&self, peer: SocketAddr, refusal: &Answer) {
        if let Some(withheld) = self.complaints.undecodable.pass(self.clock.now()) {
            tracing::warn!(%peer, remark = refusal.remark, withheld, "a broker's request was refused");
        }
    }

    async fn follow(self: Arc<Self>) {
        let mut list = self.servers.subscribe();
        loop {
            let servers = list.borrow_and_update().clone();
            self.change(|brokers, _| brokers.follow(&servers));
            if list.changed().await.is_err() {
                return;
            }
        }
    }

    async fn tick(self: Arc<Self>, pulse: Pulse) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !pulse.is_thawing(self.clock.now(), THAW_GRACE) {
                self.change(|brokers, now| brokers.tick(now));
            }
        }
    }

    /// Tries the port of a broker that has no connection until that is decided.
    async fn probe(self: Arc<Self>, address: String) {
        let Ok(target) = address.parse::<HostPort>() else { return };
        let dialer = Dialer { tls: None, ..self.dialer.clone() };
        let loss = |brokers: &Brokers, _| {
            let broker = brokers.broker(&address).filter(|broker| broker.orphan_until.is_some())?;
            broker.lost
        };
        let mine = self.look(loss);
        // A later loss of a connection has a probe of its own: those of a broker that flaps would pile up.
        while mine.is_some() && self.look(loss) == mine {
            if matches!(dialer.dial(&target, PROBE_LIMIT).await, Err(DialError::Refused { .. })) {
                return self.change(|brokers, _| brokers.refused(&address));
            }
            sleep(PROBE_PERIOD).await;
        }
    }

    /// Says again what a broker had said to the agent's predecessor, if it lives.
    async fn restore(self: Arc<Self>, saved: Saved) {
        let mut alive = None;
        for bytes in saved.frames {
            let heard = Heard::decode(&bytes, &self.frame_limits);
            // A 217 comes again within the broker's next full registration.
            let Ok(Some(Heard::Registration(registration))) = heard else { continue };
            let address = registration.identity.address.clone();
            if alive.is_none() {
                let Ok(target) = address.parse::<HostPort>() else { break };
                let dialer = Dialer { tls: None, ..self.dialer.clone() };
                alive = Some(dialer.dial(&target, PROBE_LIMIT).await.is_ok());
            }
            if alive != Some(true) {
                tracing::info!(
                    broker = address,
                    "a saved broker does not accept connections: it is forgotten"
                );
                self.act_slowly(vec![Effect::End(address)]);
                return;
            }
            let (desk, limits) = (Arc::clone(&self), (self.frame_limits, self.body_limits));
            let hasher = self.look(|brokers, _| brokers.hasher());
            let restored = self
                .tasks
                .spawn_blocking(move || {
                    let table = registration.table(&limits.0, &limits.1, &hasher)?;
                    desk.change(|brokers, now| brokers.restore(&registration, table, now))
                })
                .await;
            if let Ok(Err(answer)) = restored {
                tracing::warn!(broker = address, remark = answer.remark, "a saved registration was left out");
            }
        }
    }

    async fn keep_saved(self: Arc<Self>) {
        let mut failed = BTreeSet::new();
        loop {
            self.save.notified().await;
            sleep(SAVE_DELAY).await;
            self.save_all(&mut failed).await;
            sleep(SAVE_PERIOD).await;
        }
    }

    /// Writes what is not on disk. `failed` are the brokers of which that was said: once until it works again, as
    /// the agent serves without its disk, too.
    async fn save_all(&self, failed: &mut BTreeSet<String>) {
        let Some(store) = &self.store else { return };
        let _saving = self.saving.lock().await;
        let unsaved = std::mem::take(&mut *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner));
        for address in unsaved {
            let frames = self.look(|brokers, _| brokers.frames(&address));
            let (store, name) = (store.clone(), address.clone());
            let write = move || {
                if frames.is_empty() { store.remove(&name) } else { store.save(&name, &frames) }
            };
            match self.tasks.spawn_blocking(write).await {
                Ok(Err(error)) => {
                    if failed.insert(address.clone()) {
                        tracing::error!(
                            broker = address, %error,
                            "what a broker said is not on disk: its route will not survive the agent's death"
                        );
                    }
                }
                _ => drop(failed.remove(&address)),
            }
        }
    }
}
