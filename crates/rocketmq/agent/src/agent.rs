//! The agent: binds, serves the programs of the machine, stops.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpStream;
use waypost_net::accept::{AcceptLimits, Accepted, Acceptor};
use waypost_net::address::{AddressList, HostPort};
use waypost_net::budget::MemoryBudget;
use waypost_net::clock::{Clock, Pulse};
use waypost_net::dialer::Dialer;
use waypost_net::durable;
use waypost_net::entrance::Entrance;
use waypost_net::frame_pool::FramePool;
use waypost_net::listener::{BindAddress, ListenError, ListenOptions, Listener, bind};
use waypost_net::preamble::{PreamblePolicy, TlsMode};
use waypost_net::queues::Queues;
use waypost_net::session::{Session, SessionContext};
use waypost_net::sessions::Sessions;
use waypost_net::tasks::{Stop, Tasks};
use waypost_net::watchdog::{Watchdog, keep_beating};
use waypost_net::workers::Workers;
use waypost_rocketmq_access::access::AccessPolicy;
use waypost_rocketmq_access::audit::Audit;
use waypost_rocketmq_discovery::client::{Discovery, Options as DiscoveryOptions};
use waypost_rocketmq_remoting::servers::{Servers, is_own};
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::frame::FrameLimits;

use crate::asker::Asker;
use crate::metrics::Metrics;
use crate::reads::Reads;
use crate::relay::{Relay, RelayOptions};
use crate::routes::Routes;
use crate::saved::{self, SavedRoutes};
use crate::session::{Connection, Shared};
use crate::standings::Standings;
use crate::status::{ServerStatus, Status};
use crate::upkeep::Upkeep;
use crate::writes::Writes;

/// Programs of one machine at once.
const CONNECTIONS_MAX: u64 = 16_384;

/// How often idle connections and unused routes are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(5);

/// Memory of unfinished large frames: registrations of the brokers of one machine.
const FRAMES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes that wait for one reader, and for all.
const READER_QUEUE_MAX: usize = 32 * 1024 * 1024;
const READER_QUEUES_MAX: usize = 256 * 1024 * 1024;

/// Where answers wait for a reader before more of its requests are read.
const HIGH_WATER: usize = 64 * 1024;

/// How long the end may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// After how long the end says that it waits for a disk, and how long it waits then: less than systemd's patience in
/// `deploy/waypost-agent.service`.
const SAVE_PATIENCE: Duration = Duration::from_secs(1);
const SAVE_LIMIT: Duration = Duration::from_secs(8);

/// How an agent works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where programs of this machine connect to.
    pub listen: Vec<SocketAddr>,
    /// Where the name servers are.
    pub servers: Source,
    /// How connections to name servers are made.
    pub dialer: Dialer,
    /// Who may send what.
    pub access: AccessPolicy,
    /// A folder for what has to survive the agent: routes, and what brokers said. `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// Notices that a thread of the agent hangs; a program logs and aborts then, so that it is started anew.
    pub watchdog: Watchdog,
}

/// Why an agent does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no place for what has to survive the agent.
    #[error(transparent)]
    State(io::Error),
    /// It would be its own and only name server.
    #[error(
        "the agent's own address {0} is the only name server of its list; give the list of the cluster with -n \
         (programs of this machine have the agent in NAMESRV_ADDR, the agent itself must not)"
    )]
    Itself(SocketAddr),
    /// The discovery does not start.
    #[error(transparent)]
    Discovery(#[from] waypost_rocketmq_discovery::error::StartError),
    /// The operating system gave no thread.
    #[error("a thread could not be started: {0}; raise the limit of processes (ulimit -u)")]
    Thread(io::Error),
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    addresses: Vec<SocketAddr>,
    discovery: Discovery,
    servers: Servers,
    standings: Standings,
    shared: Arc<Shared>,
    sessions: Sessions,
    saved: Option<Arc<SavedRoutes>>,
    accepting: Stop,
    connections: Tasks,
    tasks: Tasks,
    workers: Workers,
}

impl Agent {
    /// Binds and serves. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// When an address, a thread or the state folder is not to be had.
    pub fn start(options: Options) -> Result<Self, StartError> {
        if let Some(folder) = &options.state {
            make_state_folder(folder)?;
        }
        let listen = ListenOptions {
            address_setting: "--listen".into(),
            port_setting: "--listen".into(),
            ..ListenOptions::default()
        };
        let mut listeners: Vec<Listener> = Vec::new();
        for address in &options.listen {
            listeners.extend(bind(&BindAddress::Ip(address.ip()), address.port(), &listen)?);
        }
        let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let options = match options.servers {
            Source::List(list) if !list.is_empty() => {
                let others = without_itself(list, &addresses);
                match addresses.first() {
                    Some(own) if others.is_empty() => return Err(StartError::Itself(*own)),
                    _ => Options { servers: Source::List(others), ..options },
                }
            }
            _ => options,
        };
        let tasks = Tasks::new();
        // One list for clients and brokers: resolved once, and without this agent under whatever name.
        let servers = Servers::start_without(options.servers.clone(), addresses.clone(), &tasks);
        let standings = Standings::new(Clock::system());
        let defaults = DiscoveryOptions::new(options.servers);
        let discovery = Discovery::over(
            servers.clone(),
            DiscoveryOptions {
                dialer: Dialer { tls: options.dialer.tls.clone(), ..defaults.dialer },
                // Programs choose their queues themselves.
                probe_brokers: false,
                observer: Some(Arc::new(standings.clone())),
                ..defaults
            },
        )?;
        let saved = options.state.as_ref().map(|folder| Arc::new(SavedRoutes::open(folder, &discovery)));
        let pulse = Pulse::start_watched(Clock::system(), &options.watchdog).map_err(StartError::Thread)?;
        let relay_options = RelayOptions {
            servers: servers.clone(),
            dialer: options.dialer.clone(),
            pulse: pulse.clone(),
            state: options.state.clone(),
        };
        standings.start(servers.subscribe(), options.dialer.clone(), pulse.clone(), &tasks);
        let relay = Relay::start_beside(relay_options, standings.clone(), &tasks);
        let shared = Arc::new(Shared {
            routes: Routes::new(discovery.clone(), relay.clone()),
            reads: Reads::new(discovery.clone()),
            asker: Asker::start(servers.clone(), options.dialer.clone(), &tasks),
            writes: Writes::new(servers.subscribe(), options.dialer, tasks.clone()),
            relay,
            metrics: Metrics::new(),
            pulse,
            limits: FrameLimits::default(),
            access: options.access,
            audit: Audit::default(),
        });
        let agent = Self {
            addresses,
            discovery,
            servers,
            standings,
            shared,
            sessions: Sessions::new(),
            saved,
            accepting: Stop::new(),
            connections: Tasks::new(),
            tasks,
            workers: Workers::start(1, &options.watchdog).map_err(StartError::Thread)?,
        };
        agent.tasks.spawn_until_stopped(keep_beating(options.watchdog.watch("event loop", 0)));
        let context = SessionContext {
            clock: Clock::system(),
            pulse: agent.shared.pulse.clone(),
            budget: MemoryBudget::new(FRAMES_MAX, agent.shared.limits.frame_max as u64),
            pool: FramePool::new(),
            flush_at: HIGH_WATER,
            queues: Queues::new(READER_QUEUE_MAX, READER_QUEUES_MAX),
        };
        agent.spawn_upkeep(&context);
        agent.spawn_accepting(listeners, context);
        Ok(agent)
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Replaces the list of name servers, for clients and for brokers.
    pub fn replace_servers(&self, list: AddressList) {
        self.servers.replace(without_itself(list, &self.addresses));
    }

    /// How it does.
    pub async fn status(&self) -> Status {
        let now = self.discovery.clock().now();
        let age =
            |at: waypost_net::clock::Millis| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let known: Vec<_> =
            self.discovery.all_known().into_iter().filter(|(_, known)| known.route.is_some()).collect();
        let servers = self.discovery.servers().await;
        Status {
            listening: self.addresses.iter().map(ToString::to_string).collect(),
            connections: self.sessions.len(),
            routes: known.len(),
            stale_routes: known.iter().filter(|(_, known)| known.stale).count(),
            oldest_route_ms: known.iter().filter_map(|(_, known)| known.checked).map(age).max(),
            servers: servers
                .iter()
                .filter_map(|server| {
                    let standing = self.standings.of(&server.endpoint)?;
                    Some(ServerStatus::new(&server.endpoint, &standing, &server.health, now))
                })
                .collect(),
            left_out: self.shared.asker.left_out(),
            brokers: self.shared.relay.status(),
        }
    }

    /// Everything that is counted and measured, in the text format of Prometheus.
    pub async fn metrics_text(&self) -> String {
        self.shared.metrics.text(&self.status().await, &self.shared.pulse)
    }

    /// Stops listening, lets connections finish what was read, saves, and closes everything. Brokers are not
    /// unregistered: they live on, and the next agent takes over.
    pub async fn shutdown(&self) {
        self.accepting.request();
        self.connections.cancel();
        self.sessions.drain();
        self.connections.drain(CLOSE_LIMIT).await;
        self.sessions.close_all("shutdown");
        self.shared.relay.close(CLOSE_LIMIT).await;
        self.save_routes().await;
        self.tasks.cancel();
        self.discovery.close(CLOSE_LIMIT).await;
        self.tasks.drain(CLOSE_LIMIT).await;
    }

    /// On a thread that may block: a disk that hangs must not take the event loop.
    async fn save_routes(&self) {
        let Some(saved) = self.saved.clone() else { return };
        let discovery = self.discovery.clone();
        let mut saving = self.tasks.spawn_blocking(move || saved.save(&discovery));
        let saved = match tokio::time::timeout(SAVE_PATIENCE, &mut saving).await {
            Ok(saved) => Ok(saved),
            Err(_) => {
                let at_most_seconds = SAVE_LIMIT.as_secs();
                tracing::warn!(at_most_seconds, "the stop waits for the routes that are being saved");
                tokio::time::timeout(SAVE_LIMIT, saving).await
            }
        };
        match saved {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the routes were not saved"),
            Ok(Err(error)) => tracing::warn!(%error, "the routes were not saved"),
            Err(_) => tracing::warn!("the routes were not saved in time"),
        }
    }

    fn spawn_upkeep(&self, context: &SessionContext) {
        let (shared, stop) = (Arc::clone(&self.shared), self.tasks.stop());
        let upkeep = Upkeep {
            clock: context.clock.clone(),
            pulse: context.pulse.clone(),
            sessions: self.sessions.clone(),
            budget: context.budget.clone(),
            pool: context.pool.clone(),
        };
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(SWEEP_PERIOD);
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    _ = ticks.tick() => {}
                }
                let of_brokers = shared.relay.connections();
                upkeep.sweep(|number| of_brokers.contains(&number));
                shared.routes.sweep();
                shared.audit.tick(shared.pulse.now());
            }
        });
        if let Some(saved) = &self.saved {
            let stop = self.tasks.stop();
            self.tasks.spawn(saved::keep(Arc::clone(saved), self.discovery.clone(), stop));
        }
    }

    fn spawn_accepting(&self, listeners: Vec<Listener>, context: SessionContext) {
        let limits = AcceptLimits { connections: CONNECTIONS_MAX, ..AcceptLimits::default() };
        let acceptor = Acceptor::new(listeners, limits);
        let policy = PreamblePolicy {
            tls_mode: TlsMode::Disabled,
            tls_available: false,
            trusted_proxies: waypost_net::network::NetworkList::default(),
        };
        let door = Arc::new(Door {
            shared: Arc::clone(&self.shared),
            sessions: self.sessions.clone(),
            entrance: Entrance::new(policy, None),
            context,
        });
        let (connections, accepting, workers) =
            (self.connections.clone(), self.accepting.clone(), self.workers.clone());
        self.tasks.spawn(async move {
            let serve = |accepted: Accepted| {
                let (door, stop) = (Arc::clone(&door), connections.stop());
                let Accepted { stream, peer, number, slot, .. } = accepted;
                let serve = move |stream| async move {
                    door.serve(stream, peer, number, &stop).await;
                    drop(slot);
                };
                if let Err(error) = workers.serve(&connections, stream, serve) {
                    tracing::warn!(%peer, %error, "connection closed before its first request");
                }
            };
            acceptor.run(&accepting, serve).await;
        });
    }
}

/// Not at the first write: who starts it should hear of what is wrong with the folder.
fn make_state_folder(folder: &Path) -> Result<(), StartError> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let explained = format!("the state folder {} cannot be made: {error}", folder.display());
        StartError::State(io::Error::new(error.kind(), explained))
    })?;
    if let Err(error) = durable::probe(&folder.join("any")) {
        tracing::warn!(%error, "what is kept in the state folder may not survive a power failure");
    }
    Ok(())
}

/// The list without the agent's own addresses: brokers' frames would come back to it without end, and renew
/// leases that no broker renews.
fn without_itself(list: AddressList, own: &[SocketAddr]) -> AddressList {
    let is_other = |server: &&HostPort| {
        let is_itself = server.socket_address().is_some_and(|address| is_own(address, own));
        if is_itself {
            tracing::warn!(%server, "the agent's own address was left out of its list of name servers");
        }
        !is_itself
    };
    list.addresses().iter().filter(is_other).cloned().collect()
}

/// Where connections come in.
struct Door {
    shared: Arc<Shared>,
    sessions: Sessions,
    entrance: Entrance,
    context: SessionContext,
}

impl Door {
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, number: u64, stop: &Stop) {
        let entered = tokio::select! {
            entered = self.entrance.enter(stream, peer) => entered,
            () = stop.requested() => return,
        };
        let Ok(entered) = entered else { return };
        let listed = self.sessions.list(number, peer, self.context.clock.now());
        if stop.is_requested() {
            return;
        }
        let connection = Connection::new(Arc::clone(&self.shared), number, peer);
        let session =
            Session::new(entered.stream, connection, Arc::clone(listed.handle()), self.context.clone());
        let (_, connection) = session.run().await;
        connection.ended();
        drop(listed);
    }
}
