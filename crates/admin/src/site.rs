//! The HTTP server: takes connections and serves a router on each.

use std::net::SocketAddr;
use std::pin::pin;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use waypost_net::accept::{AcceptLimits, Accepted, Acceptor};
use waypost_net::host_names::HostNames;
use waypost_net::listener::Listener;
use waypost_net::tasks::{Stop, Tasks};

use crate::connection::Connection;
use crate::places::{Limits, Place, Places};

/// Where an HTTP side listens, and by which names it is asked.
#[derive(Debug)]
pub struct Site {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) hosts: HostNames,
}

impl Site {
    /// The same, also for callers that use one of these names for this machine.
    #[must_use]
    pub fn named(self, hosts: HostNames) -> Self {
        Self { hosts, ..self }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listeners.first().map_or_else(|| SocketAddr::from(([0; 4], 0)), Listener::address)
    }

    /// Serves `router` until the tasks are stopped.
    pub(crate) fn serve(self, router: Router, limits: Limits, tasks: &Tasks) {
        // One more than there are places: somebody gives way to it.
        let connections = (limits.places as u64).saturating_add(1);
        let acceptor = Acceptor::new(self.listeners, AcceptLimits { connections, ..AcceptLimits::default() });
        let (places, stop, connections) = (Places::new(limits), tasks.stop(), tasks.clone());
        tasks.spawn(async move {
            let serve = |accepted: Accepted| {
                let Accepted { stream, number, slot, .. } = accepted;
                let place = places.take(number, slot);
                let connection = Connection::new(stream, place.turn.clone());
                connections.spawn(serve_one(connection, place, router.clone(), connections.stop()));
            };
            acceptor.run(&stop, serve).await;
        });
    }
}

/// Until the peer leaves, it has to give way or the tasks are stopped, which lets an answer end.
async fn serve_one(connection: Connection, place: Place, router: Router, stop: Stop) {
    let turn = &place.turn;
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        turn.begin();
        let answer = router.call(request);
        async {
            let answer = answer.await;
            turn.end();
            answer
        }
    });
    // The connection itself knows how long a request may take.
    let serving =
        http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(connection), service);
    let mut serving = pin!(serving);
    tokio::select! {
        // A broken connection concerns nobody but its peer.
        _ = serving.as_mut() => return,
        () = turn.leave.requested() => return,
        () = stop.requested() => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = serving => {}
        () = turn.leave.requested() => {}
    }
}
