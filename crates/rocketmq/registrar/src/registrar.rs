//! The registrar: the caller's side, and the thread that does the work.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use waypost_net::address::AddressList;
use waypost_net::clock::{Clock, Millis};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::body::DataVersion;

use crate::announcement::Announcement;
use crate::drill::Drill;
use crate::error::{IdentityError, NotRegistered, StartError, TopicError};
use crate::identity::{self, Role};
use crate::keeper::Keeper;
use crate::master::Master;
use crate::options::Options;
use crate::shared::Shared;
use crate::state::{Farewell, FarewellOutcome, Phase, ServerState};
use crate::topics::Topic;

/// How long a server that was taken off the list may take to answer the goodbye (part C 12).
const REMOVED_LIMIT: Duration = Duration::from_secs(3);
/// How long connections may take to close at the end.
const END_LIMIT: Duration = Duration::from_millis(200);

/// Keeps a broker registered with all name servers, from a thread of its own.
///
/// Methods that are not `async` never wait for a server. Dropping it closes the connections and sends
/// nothing: servers take the broker off their routes when they see that; [`Registrar::close`] says goodbye
/// first.
#[derive(Debug)]
pub struct Registrar {
    shared: Arc<Shared>,
    servers: Servers,
    handle: Handle,
    stop: Stop,
    closing: mpsc::UnboundedSender<Closing>,
    allow_unreachable: bool,
}

/// How many servers [`Registrar::wait_registered`] waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quorum {
    /// One: clients can find the broker.
    One,
    /// All that are on the list, at least one.
    All,
}

struct Closing {
    deadline: Millis,
    said: oneshot::Sender<Vec<Farewell>>,
}

impl Registrar {
    /// Starts the thread; registration begins at once if the role is decided. Does not wait for any server.
    ///
    /// # Errors
    ///
    /// When the broker or one of its topics cannot be announced, or there is no thread.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let Options { identity, role, topics, servers, dialer, timing, form, allow_unreachable, seed } =
            options;
        identity.check(role)?;
        if !allow_unreachable {
            identity.check_reachable(match &servers {
                Source::List(list) => Some(list),
                Source::AddressServer(_) => None,
            })?;
        }
        topics.iter().try_for_each(Topic::check)?;
        let clock = Clock::system();
        let (now, wall) = (clock.now(), i64::try_from(clock.wall_millis()).unwrap_or(i64::MAX));
        let mut announcement = Announcement::new(identity, role, timing, form, wall);
        let own = announcement.own_topics();
        announcement.topics.set(own.into_iter().chain(topics), now, wall);
        let shared = Arc::new(Shared::new(clock, announcement));

        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let tasks = Tasks::new();
        let servers = {
            let _inside = runtime.enter();
            Servers::start(servers, &tasks)
        };
        let (closing, close) = mpsc::unbounded_channel();
        let seeds = seed.map_or_else(|| StdRng::seed_from_u64(rand::random()), StdRng::seed_from_u64);
        let stop = tasks.stop();
        let office = Office {
            shared: Arc::clone(&shared),
            servers: servers.clone(),
            dialer,
            tasks,
            seeds,
            keepers: HashMap::new(),
        };
        std::thread::Builder::new()
            .name("registrar".to_owned())
            .spawn(move || office.run(&runtime, close))?;
        Ok(Self { shared, servers, handle, stop, closing, allow_unreachable })
    }

    // ---- topics

    /// Adds or changes a topic. Every server hears of it on its own, 50 ms later.
    ///
    /// # Errors
    ///
    /// When it cannot be announced; nothing changes then.
    pub fn set_topic(&self, topic: Topic) -> Result<(), TopicError> {
        self.set_topics([topic])
    }

    /// Adds or changes topics, all or none; others stay as they are.
    ///
    /// # Errors
    ///
    /// When one of them cannot be announced; nothing changes then.
    pub fn set_topics(&self, topics: impl IntoIterator<Item = Topic>) -> Result<(), TopicError> {
        let topics: Vec<Topic> = topics.into_iter().collect();
        topics.iter().try_for_each(Topic::check)?;
        self.shared.change(|broker, now, wall| broker.topics.set(topics, now, wall));
        Ok(())
    }

    /// Removes a topic from what is announced; returns whether it was there. Servers keep what they know of
    /// it unless they are told to delete it (216) or `deleteTopicWithBrokerRegistration` is set there.
    pub fn remove_topic(&self, name: &str) -> bool {
        self.shared.change(|broker, now, wall| broker.topics.remove(name, now, wall))
    }

    /// The topics, by name.
    #[must_use]
    pub fn topics(&self) -> Vec<Topic> {
        self.shared.announcement().topics.all().cloned().collect()
    }

    /// The version of the topics.
    #[must_use]
    pub fn data_version(&self) -> DataVersion {
        self.shared.announcement().topics.version()
    }

    /// Changes what the broker as a whole permits (6 read and write, 4 read, 2 write); every server gets
    /// everything again (part C 9).
    pub fn set_permission(&self, permission: i32) {
        self.shared.change(|broker, now, wall| {
            let changed = std::mem::replace(&mut broker.form.permission, permission) != permission;
            if changed {
                broker.topics.touch_all(now, wall);
            }
            changed
        });
    }

    // ---- role

    /// Changes the role: every server gets everything again, under the new id. [`Role::Undecided`]
    /// unregisters.
    ///
    /// # Errors
    ///
    /// When a slave is given an id that it cannot have; nothing changes then.
    pub fn set_role(&self, role: Role) -> Result<(), IdentityError> {
        identity::check_role(role)?;
        let changed = self.shared.change(|broker, _, _| {
            let changed = std::mem::replace(&mut broker.role, role) != role;
            broker.role_epoch += u64::from(changed);
            changed
        });
        if changed {
            self.shared.change_opinions(|opinions, _| opinions.clear());
        }
        Ok(())
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared.announcement().role
    }

    /// The master that name servers tell a slave; `None` if none of them knows one, or for a master.
    #[must_use]
    pub fn master(&self) -> Option<Master> {
        self.shared.subscribe_master().borrow().clone()
    }

    /// Hears of changes of [`Registrar::master`].
    #[must_use]
    pub fn watch_master(&self) -> MasterWatch {
        MasterWatch { master: self.shared.subscribe_master() }
    }

    /// The order configuration that servers returned: topic to `broker-a:8;broker-b:8` (part C 8). Topics of
    /// this broker that are in it are marked as ordered by themselves.
    #[must_use]
    pub fn order_topics(&self) -> BTreeMap<String, String> {
        self.shared.orders()
    }

    // ---- servers

    /// Replaces the list of servers: new ones get everything at once, those that are gone are told goodbye.
    /// An empty list is ignored.
    ///
    /// # Errors
    ///
    /// When the broker's address cannot be reached from one of them; the list stays as it is then.
    pub fn replace_servers(&self, list: AddressList) -> Result<(), IdentityError> {
        if !self.allow_unreachable {
            self.shared.announcement().identity.check_reachable(Some(&list))?;
        }
        self.servers.replace(list);
        Ok(())
    }

    /// How each server stands, by address.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerState> {
        self.shared.states()
    }

    /// Waits until servers hold all topics as they are now, at most `limit`. Cancel safe.
    ///
    /// # Errors
    ///
    /// When the limit is over first, with the states of the servers.
    pub async fn wait_registered(
        &self,
        quorum: Quorum,
        limit: Duration,
    ) -> Result<Vec<ServerState>, NotRegistered> {
        let shared = Arc::clone(&self.shared);
        let broker = shared.announcement();
        let mut sightings = shared.subscribe_states();
        let endpoints = self.servers.subscribe();
        let holds = move |states: &[ServerState]| {
            let current =
                states.iter().filter(|state| state.current && state.phase == Phase::Registered).count();
            match quorum {
                Quorum::One => current > 0,
                Quorum::All => current > 0 && current == states.len() && current == endpoints.borrow().len(),
            }
        };
        drop(broker);
        let watched = Arc::clone(&shared);
        // On the registrar's own runtime: the caller may have none, or one without timers.
        let waiting = self.handle.spawn(async move {
            timeout(limit, async { while !holds(&watched.states()) && sightings.changed().await.is_ok() {} })
                .await
                .is_ok()
        });
        // An error means that the registrar was closed meanwhile.
        let registered = AbortOnDrop(waiting).await.unwrap_or(false);
        let states = shared.states();
        if registered { Ok(states) } else { Err(NotRegistered::new(limit, states)) }
    }

    /// Unregisters from all servers at once and ends the registrar; waits at most `limit`. Returns what each
    /// said. A second call returns nothing. Cancel safe: the registrar ends all the same.
    pub async fn close(&self, limit: Duration) -> Vec<Farewell> {
        let (said, hear) = oneshot::channel();
        let closing = Closing { deadline: self.shared.clock.now().after(limit), said };
        // Fails only when it is closed already.
        let _ = self.closing.send(closing);
        hear.await.unwrap_or_default()
    }

    // ---- drills

    /// Sends nothing until [`Registrar::resume`], as if the process stood still. Connections stay open.
    pub fn pause(&self) {
        self.shared.set_drill(Drill { silent: true, ..self.shared.drill() });
    }

    /// Goes on; every server gets everything again.
    pub fn resume(&self) {
        self.shared.set_drill(Drill { silent: false, ..self.shared.drill() });
    }

    /// Misbehaves from now on as told; [`Drill::default`] ends it.
    pub fn set_drill(&self, drill: Drill) {
        self.shared.set_drill(drill);
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.stop.request();
    }
}

/// Hears of changes of the master.
#[derive(Clone, Debug)]
pub struct MasterWatch {
    master: watch::Receiver<Option<Master>>,
}

impl MasterWatch {
    /// The master now; it counts as seen.
    pub fn current(&mut self) -> Option<Master> {
        self.master.borrow_and_update().clone()
    }

    /// Waits until the master is another one than the last seen; `None` inside if nobody is known any more,
    /// outside if the registrar has ended. Cancel safe.
    pub async fn changed(&mut self) -> Option<Option<Master>> {
        self.master.changed().await.ok()?;
        Some(self.current())
    }
}

/// A task that ends with who waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What runs on the thread: one keeper for each server.
struct Office {
    shared: Arc<Shared>,
    servers: Servers,
    dialer: Dialer,
    tasks: Tasks,
    seeds: StdRng,
    keepers: HashMap<SocketAddr, Kept>,
}

struct Kept {
    server: Endpoint,
    leave_by: watch::Sender<Option<Millis>>,
    keeping: JoinHandle<Farewell>,
}

impl Office {
    fn run(mut self, runtime: &Runtime, mut closing: mpsc::UnboundedReceiver<Closing>) {
        runtime.block_on(async {
            if let Some(closing) = self.serve(&mut closing).await {
                self.say_goodbye(closing).await;
            }
            self.tasks.cancel();
            // What does not end in time ends with the runtime.
            self.tasks.drain(END_LIMIT).await;
        });
    }

    /// Follows the list of servers until the registrar is closed or dropped.
    async fn serve(&mut self, closing: &mut mpsc::UnboundedReceiver<Closing>) -> Option<Closing> {
        let mut list = self.servers.subscribe();
        let stop = self.tasks.stop();
        loop {
            let endpoints = Arc::clone(&list.borrow_and_update());
            self.follow(&endpoints);
            tokio::select! {
                () = stop.requested() => return None,
                closing = closing.recv() => return closing,
                // Fails only when the list's task was stopped.
                changed = list.changed() => if changed.is_err() {
                    return None;
                },
            }
        }
    }

    fn follow(&mut self, endpoints: &[Endpoint]) {
        if endpoints.is_empty() {
            // Names that are not found now were found before: staying is better than leaving everybody.
            return;
        }
        for server in endpoints {
            if !self.keepers.contains_key(&server.address) {
                let kept = self.hire(server);
                self.keepers.insert(server.address, kept);
            }
        }
        let leave_by = Some(self.shared.clock.now().after(REMOVED_LIMIT));
        let gone = |address: &SocketAddr| endpoints.iter().all(|server| server.address != *address);
        for (_, kept) in self.keepers.extract_if(|address, _| gone(address)) {
            let shared = Arc::clone(&self.shared);
            self.tasks.spawn(async move {
                kept.leave_by.send_replace(leave_by);
                // An error is a panic, which was reported.
                if let Ok(farewell) = kept.keeping.await {
                    tracing::info!(server = %farewell.server, %farewell, "a name server was taken off the list");
                }
                shared.forget(&kept.server);
            });
        }
    }

    fn hire(&mut self, server: &Endpoint) -> Kept {
        let (leave_by, told) = watch::channel(None);
        let keeper = Keeper {
            server: server.clone(),
            shared: Arc::clone(&self.shared),
            servers: self.servers.clone(),
            dialer: self.dialer.clone(),
            seed: self.seeds.random(),
            leave_by: told,
        };
        let keeping = self.tasks.spawn(keeper.keep(self.tasks.clone()));
        Kept { server: server.clone(), leave_by, keeping }
    }

    async fn say_goodbye(&mut self, closing: Closing) {
        for kept in self.keepers.values() {
            kept.leave_by.send_replace(Some(closing.deadline));
        }
        let mut farewells = Vec::new();
        for (_, kept) in self.keepers.drain() {
            let left = closing.deadline.since(self.shared.clock.now()).saturating_add(END_LIMIT);
            let farewell = tokio::select! {
                farewell = kept.keeping => farewell.ok(),
                () = sleep(left) => None,
            };
            let none = Farewell { server: kept.server, outcome: FarewellOutcome::NoAnswer };
            farewells.push(farewell.unwrap_or(none));
        }
        farewells.sort_by(|a, b| a.server.cmp(&b.server));
        // The caller may have gone.
        let _ = closing.said.send(farewells);
    }
}
