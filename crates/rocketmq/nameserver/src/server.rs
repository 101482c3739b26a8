//! The server: binds, starts its threads, serves connections, stops.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, available_parallelism};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use waypost_net::accept::{AcceptLimits, AcceptStats, Accepted, Acceptor};
use waypost_net::budget::MemoryBudget;
use waypost_net::clock::{Clock, Pulse};
use waypost_net::entrance::{Entrance, EntranceError};
use waypost_net::frame_pool::FramePool;
use waypost_net::listener::{BindAddress, FileLimit, ListenError, ListenOptions, bind, raise_file_limit};
use waypost_net::preamble::{PreamblePolicy, TlsMode};
use waypost_net::queues::Queues;
use waypost_net::session::{End, Session, SessionContext};
use waypost_net::sessions::{FRAME_PATIENCE, Listed, Sessions};
use waypost_net::socket::SocketOptions;
use waypost_net::tasks::{Stop, Tasks};
use waypost_net::tls::{ClientAuth, DEFAULT_RELOAD_PERIOD, ServerTls, TlsError, TlsFiles};
use waypost_net::watchdog::{StallReport, Watchdog, WatchdogOptions, keep_beating};
use waypost_net::workers::Workers;
use waypost_rocketmq_access::audit::Audit;
use waypost_rocketmq_registry::{Command, ConnectionEnd, RouteTable};

use crate::config::{self, Configuration, Settings};
use crate::connection::Connection;
use crate::idle::close_idle;
use crate::kv::{KvOpenError, KvOptions, KvReport, KvStore, ORDER_TOPIC_CONFIG};
use crate::lane::{Chore, Lane};
use crate::metrics::Metrics;
use crate::notices;
use crate::owner::{NOTICES_MAX, Owner};
use crate::state::{Parts, State, policy, table_limits};

/// How often the table looks at the time.
const TABLE_TICK: Duration = Duration::from_millis(500);
/// How often idle connections are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// After a standstill of the process, the time in which signs of life that came meanwhile are read: nobody is
/// removed or closed for silence before. Brokers with short timeouts report every second.
pub(crate) const THAW_GRACE: Duration = Duration::from_secs(3);
/// How long connections may take to finish what they have begun when the server stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// After how long a stop says that it waits for the KV file, and how long it waits then: less than systemd's patience
/// in `deploy/waypost.service`.
const KV_PATIENCE: Duration = Duration::from_secs(1);
const KV_LIMIT: Duration = Duration::from_secs(30);
/// Registrations and lists yield to route queries: with this nice value the kernel gives their threads
/// about a third of a busy core, so that they go on even then.
const REGISTRATION_NICE: i32 = 5;
/// Files besides connections: listeners, logs, the KV file, the admin side, notices.
const OTHER_FILES: u64 = 2_048;
/// Where answers wait for a reader before more of its requests are read, unless set.
const DEFAULT_HIGH_WATER: usize = 65_536;

/// What the caller of [`NameServer::start`] decides.
pub struct StartOptions {
    /// Start from the backup of the KV file.
    pub kv_from_backup: bool,
    /// Called when a thread of the server makes no progress; a program logs and aborts, so that
    /// clients leave it (decision 15).
    pub on_stall: Box<dyn FnMut(&StallReport) + Send>,
}

/// Why the server did not start. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The KV file is damaged.
    #[error(transparent)]
    Kv(#[from] KvOpenError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The operating system gave no thread.
    #[error("a thread could not be started: {0}; raise the limit of processes (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// A running NameServer.
#[derive(Debug)]
pub struct NameServer {
    pub(crate) state: Arc<State>,
    addresses: Vec<SocketAddr>,
    accept_stats: Arc<AcceptStats>,
    tls: Option<ServerTls>,
    budget: MemoryBudget,
    pool: FramePool,
    queues: Queues,
    file_limit: FileLimit,
    kv_report: KvReport,
    accepting: Stop,
    tasks: Tasks,
    /// Kept to the end: connections are served on them after the last one was accepted.
    workers: Workers,
    connections: Tasks,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl NameServer {
    /// Binds and starts serving. To be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// When an address, the KV file, a certificate or a thread is not to be had.
    pub fn start(mut configuration: Configuration, options: StartOptions) -> Result<Self, StartError> {
        let settings = configuration.shared_settings();
        let wanted_files = settings.limits.connections as u64 + OTHER_FILES;
        let file_limit = raise_file_limit(wanted_files);
        let tls = load_tls(&settings.tls)?;
        let listen = &settings.listen;
        let listeners = bind(&bind_address(&settings), listen.port, &listen_options(&configuration))?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.address()).collect();
        if let Some(address) = addresses.first() {
            configuration.note_bound_port(address.port());
        }

        let clock = Clock::system();
        let watchdog = Watchdog::start(WatchdogOptions::default(), options.on_stall)?;
        let pulse = Pulse::start_watched(clock.clone(), &watchdog)?;
        let (sessions, metrics) = (Sessions::new(), Arc::new(Metrics::new()));
        let (notices, notices_to_send) = mpsc::channel(NOTICES_MAX);
        let table = RouteTable::new(policy(&settings), table_limits(&settings));
        let owner =
            Arc::new(Owner::new(table, clock.clone(), sessions.clone(), notices, Arc::clone(&metrics)));
        let (kv, kv_report) = open_kv(&settings, options.kv_from_backup, &watchdog, &owner)?;
        let audit = Arc::new(Audit::default());
        let (table_lane, table_thread) =
            Lane::start("table lane", &watchdog, || {}, Some(table_chore(&owner, &audit, &clock, &pulse)))?;
        let (list_lane, list_thread) = Lane::start("list lane", &watchdog, yield_to_queries, None)?;
        let (registration_lane, registration_thread) =
            Lane::start("registration lane", &watchdog, yield_to_queries, None)?;

        let state = Arc::new(State::new(Parts {
            configuration,
            owner,
            kv,
            metrics: Arc::clone(&metrics),
            audit,
            sessions,
            clock,
            pulse,
            watchdog: watchdog.clone(),
            table_lane,
            list_lane,
            registration_lane,
        }));
        let acceptor = Acceptor::new(listeners, accept_limits(&settings));
        let server = Self {
            accept_stats: acceptor.stats(),
            state,
            addresses,
            tls,
            budget: MemoryBudget::new(settings.limits.unfinished_frames as u64, settings.limits.frame as u64),
            pool: FramePool::new(),
            queues: Queues::new(settings.limits.reader_queue, settings.limits.reader_queues),
            file_limit,
            kv_report,
            accepting: Stop::new(),
            tasks: Tasks::new(),
            workers: Workers::start(session_threads(), &watchdog)?,
            connections: Tasks::new(),
            threads: Mutex::new(vec![table_thread, list_thread, registration_thread]),
        };
        let stop = server.tasks.stop();
        server.tasks.spawn(notices::send_all(notices_to_send, metrics, stop));
        server.tasks.spawn_until_stopped(keep_beating(watchdog.watch("event loop", 0)));
        server.spawn_sweep(listen.idle);
        if let Some(tls) = server.tls.clone() {
            let stop = server.tasks.stop();
            server.tasks.spawn(async move { tls.keep_fresh(DEFAULT_RELOAD_PERIOD, &stop).await });
        }
        server.spawn_accepting(acceptor, &settings);
        Ok(server)
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What notices that a thread of the server hangs.
    pub fn watchdog(&self) -> &Watchdog {
        &self.state.watchdog
    }

    /// How many files the process may open.
    pub fn file_limit(&self) -> &FileLimit {
        &self.file_limit
    }

    /// What was found in the KV file.
    pub fn kv_report(&self) -> &KvReport {
        &self.kv_report
    }

    pub(crate) fn accept_stats(&self) -> Arc<AcceptStats> {
        Arc::clone(&self.accept_stats)
    }

    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Stops: first listening, then (if configured) tells newer peers to go elsewhere for a while,
    /// then lets every connection finish what was read and closes it (decision 15, part D 13).
    pub async fn shutdown(&self) {
        self.accepting.request();
        self.state.stop();
        let listen = self.state.settings().listen.clone();
        if listen.shutdown_gracefully {
            self.state.go_away();
            tracing::info!(at_most_seconds = listen.shutdown_wait.as_secs(), "peers are told to go away");
            self.wait_for_connections(listen.shutdown_wait).await;
        }
        self.connections.cancel();
        self.state.sessions.drain();
        self.wait_for_connections(DRAIN_LIMIT).await;
        self.state.sessions.close_all("shutdown");
        self.tasks.cancel();
        let left = self.connections.drain(Duration::from_secs(1)).await;
        if left > 0 {
            tracing::warn!(connections = left, "connections did not end in time");
        }
        self.tasks.drain(Duration::from_secs(1)).await;
        self.close_kv().await;
    }

    /// Waits for the changes that were taken, on a thread that may block: a disk that hangs must not take the event
    /// loop. Nobody was told yet that what is given up in the end is stored.
    async fn close_kv(&self) {
        let state = Arc::clone(&self.state);
        let mut closing = self.tasks.spawn_blocking(move || state.kv.close());
        if tokio::time::timeout(KV_PATIENCE, &mut closing).await.is_ok() {
            return;
        }
        let (file, at_most_seconds) = (self.kv_report.path.display(), KV_LIMIT.as_secs());
        tracing::warn!(%file, at_most_seconds, "the stop waits for changes of the KV configuration that are being written");
        if tokio::time::timeout(KV_LIMIT, closing).await.is_err() {
            tracing::error!(%file, "changes of the KV configuration were not written in time, nor answered");
        }
    }

    async fn wait_for_connections(&self, limit: Duration) {
        let none_left = async {
            while !self.state.sessions.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // Those that are left after the limit are closed by the caller.
        drop(tokio::time::timeout(limit, none_left).await);
    }

    fn spawn_sweep(&self, idle: Duration) {
        let (state, budget, pool) = (Arc::clone(&self.state), self.budget.clone(), self.pool.clone());
        let stop = self.tasks.stop();
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(SWEEP_PERIOD);
            loop {
                tokio::select! {
                    () = stop.requested() => return,
                    _ = ticks.tick() => {}
                }
                let now = state.pulse.now();
                if state.pulse.is_thawing(state.clock.now(), THAW_GRACE) {
                    continue;
                }
                close_idle(&state, now, idle);
                pool.sweep(now);
                if budget.waiting() > 0 {
                    state.sessions.shed_large_frames(now, FRAME_PATIENCE);
                }
            }
        });
    }

    fn spawn_accepting(&self, acceptor: Acceptor, settings: &Settings) {
        let listen = &settings.listen;
        let policy = PreamblePolicy {
            tls_mode: tls_mode(settings),
            tls_available: self.tls.is_some(),
            trusted_proxies: listen.proxy_protocol_trusted.clone(),
        };
        let mut entrance = Entrance::new(policy, self.tls.clone());
        if !listen.idle.is_zero() {
            entrance.first_byte_limit = listen.idle;
        }
        let context = SessionContext {
            clock: self.state.clock.clone(),
            pulse: self.state.pulse.clone(),
            budget: self.budget.clone(),
            pool: self.pool.clone(),
            flush_at: match listen.write_high_water {
                0 => DEFAULT_HIGH_WATER,
                bytes => bytes,
            },
            queues: self.queues.clone(),
        };
        let door = Arc::new(Door { state: Arc::clone(&self.state), entrance, context });
        let (connections, accepting) = (self.connections.clone(), self.accepting.clone());
        let workers = self.workers.clone();
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

/// One thread less than there are cores, at least one: registrations have a core to themselves, and the fewer
/// threads share the connections, the more requests each finds when it wakes.
fn session_threads() -> usize {
    available_parallelism().map_or(1, NonZero::get).saturating_sub(1).max(1)
}

/// Where connections come in.
struct Door {
    state: Arc<State>,
    entrance: Entrance,
    context: SessionContext,
}

impl Door {
    async fn serve(&self, stream: TcpStream, peer: SocketAddr, number: u64, stop: &Stop) {
        let entered = tokio::select! {
            entered = self.entrance.enter(stream, peer) => entered,
            () = stop.requested() => return,
        };
        let entered = match entered {
            Ok(entered) => entered,
            Err(error) => return self.refuse(peer, &error),
        };
        let peer = entered.source.unwrap_or(peer);
        let listed: Listed = self.state.sessions.list(number, peer, self.state.clock.now());
        if stop.is_requested() {
            return;
        }
        let connection = Connection::new(Arc::clone(&self.state), number, peer);
        let session =
            Session::new(entered.stream, connection, Arc::clone(listed.handle()), self.context.clone());
        let (end, connection) = session.run().await;
        self.state.metrics.connection_ended(end.name());
        if let End::SlowReader { queued } = end {
            tracing::warn!(%peer, queued, "connection closed: the peer does not read its answers (readerQueueMax, readerQueuesMax)");
        }
        if connection.carries_brokers() {
            let how = match end {
                End::TimedOut(_) => ConnectionEnd::TimedOut,
                _ => ConnectionEnd::Closed,
            };
            let (owner, connection) = (Arc::clone(&self.state.owner), connection.id());
            self.state.table_lane.give(0, move |_| {
                owner.apply(Command::ConnectionLost { connection, how });
            });
        }
        drop(listed);
    }

    fn refuse(&self, peer: SocketAddr, error: &EntranceError) {
        let reason = match error {
            EntranceError::Left => "left_before_first_request",
            EntranceError::Silent(_) => "idle",
            EntranceError::Slow(_) => "slow_preamble",
            EntranceError::Refused(_) => "preamble_refused",
            EntranceError::Handshake(_) => "tls_handshake",
            _ => "broken",
        };
        self.state.metrics.connection_ended(reason);
        if matches!(error, EntranceError::Left | EntranceError::Silent(_) | EntranceError::Io(_)) {
            return;
        }
        if let Some(suppressed) = self.state.complaints.pass(self.state.pulse.now()) {
            tracing::warn!(%peer, reason, %error, suppressed, "connection closed before its first request");
        }
    }
}

fn bind_address(settings: &Settings) -> BindAddress {
    let address = settings.listen.bind_address;
    if address.is_unspecified() { BindAddress::Any } else { BindAddress::Ip(address) }
}

fn listen_options(configuration: &Configuration) -> ListenOptions {
    let listen = &configuration.settings().listen;
    let size = |bytes: u32| (bytes > 0).then_some(bytes as usize);
    ListenOptions {
        backlog: listen.backlog,
        send_buffer: size(listen.send_buffer),
        receive_buffer: size(listen.receive_buffer),
        address_setting: configuration.option("bindAddress").into(),
        port_setting: configuration.option("listenPort").into(),
    }
}

fn accept_limits(settings: &Settings) -> AcceptLimits {
    let limits = &settings.limits;
    AcceptLimits {
        connections: limits.connections as u64,
        per_address: match limits.connections_per_address {
            0 => None,
            connections => Some(connections as u64),
        },
        socket: SocketOptions::default(),
    }
}

fn tls_mode(settings: &Settings) -> TlsMode {
    match settings.tls.mode {
        config::TlsMode::Disabled => TlsMode::Disabled,
        config::TlsMode::Permissive => TlsMode::Permissive,
        config::TlsMode::Enforcing => TlsMode::Enforcing,
    }
}

fn client_auth(tls: &config::Tls) -> ClientAuth {
    match tls.client_auth {
        config::ClientAuth::None => ClientAuth::None,
        config::ClientAuth::Optional => ClientAuth::Optional,
        config::ClientAuth::Require => ClientAuth::Require,
    }
}

/// Loads what the settings name; `None` if they name no certificate.
///
/// # Errors
///
/// When a file cannot be read, or the certificate and the key do not belong together.
pub fn load_tls(tls: &config::Tls) -> Result<Option<ServerTls>, TlsError> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return Ok(None) };
    ServerTls::load(TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_auth: client_auth(tls),
        client_authorities: tls.trust.clone(),
    })
    .map(Some)
}

/// Opens the KV file. Order configurations in it, and later changes of them, go to the table.
fn open_kv(
    settings: &Settings,
    from_backup: bool,
    watchdog: &Watchdog,
    owner: &Arc<Owner>,
) -> Result<(KvStore, KvReport), KvOpenError> {
    let table = Arc::clone(owner);
    let on_change = Box::new(move |changes: &[crate::kv::KvChange]| {
        for change in changes.iter().filter(|change| &*change.namespace == ORDER_TOPIC_CONFIG) {
            table.apply(Command::SetOrder { topic: &change.key, configuration: change.value.as_deref() });
        }
    });
    let (store, report) = KvStore::open_watched(
        KvOptions::new(settings, from_backup),
        watchdog.watch("kv-writer", 0),
        on_change,
    )?;
    if let Some(entries) = store.snapshot().list(ORDER_TOPIC_CONFIG) {
        for (topic, configuration) in entries {
            owner.apply(Command::SetOrder { topic, configuration: Some(configuration) });
        }
    }
    Ok((store, report))
}

fn table_chore(owner: &Arc<Owner>, audit: &Arc<Audit>, clock: &Clock, pulse: &Pulse) -> Chore {
    let (owner, audit, clock, pulse) = (Arc::clone(owner), Arc::clone(audit), clock.clone(), pulse.clone());
    Chore {
        period: TABLE_TICK,
        work: Box::new(move || {
            if !pulse.is_thawing(clock.now(), THAW_GRACE) {
                owner.apply(Command::Tick);
            }
            audit.tick(pulse.now());
        }),
    }
}

fn yield_to_queries() {
    // Without the right to do so registrations merely compete with queries.
    if let Err(error) = rustix::process::nice(REGISTRATION_NICE) {
        tracing::debug!(%error, "a thread for registrations or lists runs at normal priority");
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // Whoever has called `shutdown` has nothing left here; everybody else at least stops the
        // server from taking connections. The lanes end with the state.
        self.accepting.request();
        self.connections.cancel();
        self.tasks.cancel();
        self.state.sessions.close_all("shutdown");
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
