//! The HTTP side of the server and of the agent: metrics, health, the live table.
//!
//! It only shows. It never changes anything, and it cannot hold up route queries: connections are few and
//! bounded, and whatever reads the table runs on threads that may block, two at a time.
//!
//! Probes always get through. A connection that is slow with its request is closed; when all places are taken, the
//! one that has been idle for longest gives way to the newcomer; metrics and health have threads of their own.
//!
//! What tells names and addresses, everything but metrics and health, is only for callers that name this machine by
//! an IP address, as `localhost` or by a name of a list: see [`HostNames`].
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
//! let site = waypost_admin::bind("127.0.0.1:9880".parse()?, "adminListen")?;
//! let admin = Admin::start(site, server.view(), server.addresses(), &Tasks::new());
//! println!("http://{}/", admin.address());
//! # Ok(()) }
//! ```

pub mod agent;
mod answer;
mod connection;
mod hosts;
mod places;
mod site;
mod table;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use waypost_net::host_names::HostNames;
use waypost_net::listener::{BindAddress, ListenError, ListenOptions};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_nameserver::View;

use crate::answer::{Busy, say};
use crate::places::Limits;
pub use crate::site::Site;

/// Readers of the table at once, and of the metrics; others wait.
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
    scrapers: Semaphore,
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
pub fn bind(address: SocketAddr, option: impl Into<Cow<'static, str>>) -> Result<Site, ListenError> {
    let option = option.into();
    let options = ListenOptions {
        backlog: 64,
        address_setting: option.clone(),
        port_setting: option,
        ..ListenOptions::default()
    };
    let listeners = waypost_net::listener::bind(&BindAddress::Ip(address.ip()), address.port(), &options)?;
    Ok(Site { listeners, hosts: HostNames::default() })
}

impl Admin {
    /// Serves what `view` shows of the server that listens on `listening`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(site: Site, view: View, listening: &[SocketAddr], tasks: &Tasks) -> Self {
        let address = site.address();
        let shared = Arc::new(Shared {
            view,
            listening: listening.iter().map(ToString::to_string).collect(),
            stopping: AtomicBool::new(false),
            tasks: tasks.clone(),
            readers: Semaphore::new(READERS_MAX),
            scrapers: Semaphore::new(READERS_MAX),
            probes: Semaphore::new(PROBES_MAX),
        });
        let router = router(Arc::clone(&shared), site.hosts.clone());
        site.serve(router, Limits::default(), tasks);
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

/// An answer with metrics.
fn metrics_answer(text: String) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

fn router(shared: Arc<Shared>, hosts: HostNames) -> Router {
    let telling = Router::new()
        .route("/", get(async || say(StatusCode::OK, PATHS)))
        .route("/v1/table", get(table::table))
        .fallback(async || say(StatusCode::NOT_FOUND, &format!("nothing is here; there are:\n{PATHS}")));
    hosts::guard(telling, hosts, "adminHosts")
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match shared.on_a_thread(&shared.scrapers, READER_LIMIT, View::metrics_text).await {
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
