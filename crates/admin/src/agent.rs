//! The HTTP side of an agent.
//!
//! | path | what |
//! | --- | --- |
//! | `/` | this list |
//! | `/metrics` | everything that is counted and measured, for Prometheus |
//! | `/healthz` | 200 while the process answers |
//! | `/v1/agent` | servers, routes and brokers as JSON |

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use waypost_net::host_names::HostNames;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_agent::agent::Agent;

use crate::answer::say;
use crate::hosts;
use crate::places::Limits;
use crate::site::Site;

/// The list of paths.
const PATHS: &str = "\
/metrics    everything that is counted and measured, for Prometheus
/healthz    200 while the process answers
/v1/agent   name servers, routes and brokers as the agent sees them, as JSON
";

/// Serves what `agent` shows until `tasks` are stopped. Returns where.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn serve(site: Site, agent: Arc<Agent>, tasks: &Tasks) -> SocketAddr {
    let address = site.address();
    let router = router(agent, site.hosts.clone());
    site.serve(router, Limits::default(), tasks);
    address
}

fn router(agent: Arc<Agent>, hosts: HostNames) -> Router {
    let telling = Router::new()
        .route("/", get(async || say(StatusCode::OK, PATHS)))
        .route("/v1/agent", get(status))
        .fallback(async || say(StatusCode::NOT_FOUND, &format!("nothing is here; there are:\n{PATHS}")));
    hosts::guard(telling, hosts, "--admin-hosts")
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || say(StatusCode::OK, "ok\n")))
        .with_state(agent)
}

async fn metrics(State(agent): State<Arc<Agent>>) -> Response {
    crate::metrics_answer(agent.metrics_text().await)
}

async fn status(State(agent): State<Arc<Agent>>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(agent.status().await)).into_response()
}
