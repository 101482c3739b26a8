//! Refuses callers that name this machine as nobody allowed.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use waypost_net::host_names::HostNames;

use crate::answer::say;

#[derive(Clone)]
struct Guard {
    hosts: Arc<HostNames>,
    setting: &'static str,
}

/// The routes of `router` only for callers that name this machine by one of `hosts`; `setting` is what lists them.
pub(crate) fn guard<S>(router: Router<S>, hosts: HostNames, setting: &'static str) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    router.layer(from_fn_with_state(Guard { hosts: Arc::new(hosts), setting }, check))
}

async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if is_admitted(&request, &guard.hosts) {
        return next.run(request).await;
    }
    let setting = guard.setting;
    say(
        StatusCode::FORBIDDEN,
        &format!(
            "ask by an IP address or as localhost, or let {setting} list the name that you use for this machine\n"
        ),
    )
}

/// Who names no host is no browser: HTTP 1.0 has none. Who names several has to be admitted by each.
fn is_admitted(request: &Request, hosts: &HostNames) -> bool {
    let target = request.uri().authority().map(|authority| authority.as_str());
    let named = request.headers().get_all(header::HOST);
    target.is_none_or(|name| hosts.admit(name))
        && named.iter().all(|name| name.to_str().is_ok_and(|name| hosts.admit(name)))
}
