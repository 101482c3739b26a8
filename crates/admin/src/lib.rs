//! The HTTP side of the server and of the agent: metrics, health, the live table.
//!
//! It only shows. It never changes anything, and it cannot hold up route queries: connections are few and
//! bounded, a silent one is closed, and whatever reads the table runs on threads that may block, two at a
//! time.
//!
//! | path | what |
//! | --- | --- |
//! | `/` | this list |
//! | `/metrics` | everything that is counted and measured, for Prometheus |
//! | `/healthz` | 200 while the process can look up a route |
//! | `/readyz` | 200 while clients are served, 503 before and while stopping |
//! | `/v1/table` | the live table as JSON |
//!
//! ```no_run
//! use waypost_admin::Admin;
//! use waypost_net::tasks::Tasks;
//! # fn show(server: &waypost_rocketmq_nameserver::NameServer) -> Result<(), Box<dyn std::error::Error>> {
//! let listeners = waypost_admin::bind("127.0.0.1:9880".parse()?, "adminListen")?;
//! let admin = Admin::start(listeners, server.view(), server.addresses(), &Tasks::new());
//! println!("http://{}/", admin.address());
//! # Ok(()) }
//! ```

pub mod agent;
mod answer;
mod connection;
mod table;

use std::borrow::Cow;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{Semaphore, mpsc};
use waypost_net::accept::{AcceptLimits, Accepted, Acceptor};
use waypost_net::listener::{BindAddress, ListenError, ListenOptions, Listener};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_nameserver::View;

use crate::answer::{Busy, say};
use crate::connection::Incoming;

/// Connections at once: a few scrapers, a few people, and probes.
const CONNECTIONS_MAX: u64 = 64;
/// Readers of the table or the metrics at once; others wait.
const READERS_MAX: usize = 2;
/// Probes at once. They have room of their own: a big table must not make the process look dead.
const PROBES_MAX: usize = 4;
/// How long a reader may wait for its turn, and then for its answer.
const READER_LIMIT: Duration = Duration::from_secs(10);
/// How long a probe may take before the process counts as stuck.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// The list of paths.
const PATHS: &str = "\
/metrics    everything that is counted and measured, for Prometheus
/healthz    200 while the process can look up a route
/readyz     200 while clients are served, 503 before and while stopping
/v1/table   the live table as JSON: brokers, and with ?topics=true the topics;
            ?topic=NAME ?broker=NAME ?cluster=NAME filter, limit=1000 bounds the topics
";

/// A running admin side. It ends with the tasks that it was given.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    view: View,
    listening: Vec<String>,
    stopping: AtomicBool,
    tasks: Tasks,
    readers: Semaphore,
    probes: Semaphore,
}

/// Listens on `address`, which the operator chose with `option`; nothing is answered before [`Admin::start`].
///
/// # Errors
///
/// When the address is taken or not to be had; the message names `option`.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn bind(address: SocketAddr, option: impl Into<Cow<'static, str>>) -> Result<Vec<Listener>, ListenError> {
    let option = option.into();
    let options = ListenOptions {
        backlog: 64,
        address_setting: option.clone(),
        port_setting: option,
        ..ListenOptions::default()
    };
    waypost_net::listener::bind(&BindAddress::Ip(address.ip()), address.port(), &options)
}

impl Admin {
    /// Serves what `view` shows of the server that listens on `listening`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(listeners: Vec<Listener>, view: View, listening: &[SocketAddr], tasks: &Tasks) -> Self {
        let address = listeners.first().map_or_else(|| SocketAddr::from(([0; 4], 0)), Listener::address);
        let shared = Arc::new(Shared {
            view,
            listening: listening.iter().map(ToString::to_string).collect(),
            stopping: AtomicBool::new(false),
            tasks: tasks.clone(),
            readers: Semaphore::new(READERS_MAX),
            probes: Semaphore::new(PROBES_MAX),
        });
        serve(listeners, router(Arc::clone(&shared)), tasks);
        Self { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `/readyz` says that clients should go elsewhere.
    pub fn note_stopping(&self) {
        self.shared.stopping.store(true, Ordering::Release);
    }
}

/// Serves a router on listeners until the tasks are stopped.
fn serve(listeners: Vec<Listener>, router: Router, tasks: &Tasks) {
    let address = listeners.first().map_or_else(|| SocketAddr::from(([0; 4], 0)), Listener::address);
    let limits = AcceptLimits { connections: CONNECTIONS_MAX, ..AcceptLimits::default() };
    let acceptor = Acceptor::new(listeners, limits);
    let (sender, accepted) = mpsc::channel::<Accepted>(CONNECTIONS_MAX as usize);
    let stop = tasks.stop();
    tasks.spawn(async move {
        // There is room for every connection that the limits admit.
        acceptor.run(&stop, |accepted| drop(sender.try_send(accepted))).await;
    });
    let stop = tasks.stop();
    let serve = axum::serve(Incoming { accepted, address }, router)
        .with_graceful_shutdown(async move { stop.requested().await })
        .into_future();
    tasks.spawn(async move {
        if let Err(error) = serve.await {
            tracing::error!(%error, "the admin side stopped");
        }
    });
}

/// An answer with metrics.
fn metrics_answer(text: String) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(async || say(StatusCode::OK, PATHS)))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/v1/table", get(table::table))
        .fallback(async || say(StatusCode::NOT_FOUND, &format!("nothing is here; there are:\n{PATHS}")))
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match shared.read(View::metrics_text).await {
        Ok(text) => metrics_answer(text),
        Err(busy) => busy.into_response(),
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    let probe = shared.on_a_thread(&shared.probes, PROBE_LIMIT, View::probe);
    match probe.await {
        Ok(()) => say(StatusCode::OK, "ok\n"),
        Err(Busy) => say(
            StatusCode::SERVICE_UNAVAILABLE,
            "a look at the route table did not end within 2 s: the process is stuck or starved, see its log\n",
        ),
    }
}

async fn readiness(State(shared): State<Arc<Shared>>) -> Response {
    let unready = |reason| say(StatusCode::SERVICE_UNAVAILABLE, reason);
    if shared.stopping.load(Ordering::Acquire) {
        unready("the server is stopping\n")
    } else if shared.view.is_ready() {
        say(StatusCode::OK, "ready\n")
    } else {
        unready("routes are not served: the server waits for its brokers (needWaitForService), or stops\n")
    }
}

impl Shared {
    /// Reads something of the server on a thread that may block.
    async fn read<T, F>(self: &Arc<Self>, read: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&View) -> T + Send + 'static,
    {
        self.on_a_thread(&self.readers, READER_LIMIT, read).await
    }

    async fn on_a_thread<T, F>(
        self: &Arc<Self>,
        turns: &Semaphore,
        limit: Duration,
        read: F,
    ) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&View) -> T + Send + 'static,
    {
        let read = async {
            let _turn = turns.acquire().await.map_err(|_| Busy)?;
            let shared = Arc::clone(self);
            self.tasks.spawn_blocking(move || read(&shared.view)).await.map_err(|_| Busy)
        };
        tokio::time::timeout(limit, read).await.unwrap_or(Err(Busy))
    }
}

#[cfg(test)]
mod tests;
