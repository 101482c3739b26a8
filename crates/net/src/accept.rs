//! The loop that takes connections from the listeners, within limits.

use std::collections::HashMap;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::TcpStream;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::listener::Listener;
use crate::socket::SocketOptions;
use crate::tasks::Stop;
use crate::throttle::Throttle;

/// Connections at the same time, by default.
pub const DEFAULT_CONNECTIONS: u64 = 65_536;

/// How long the loop rests when the system is out of something and nothing could be freed.
const REST: Duration = Duration::from_millis(50);

/// One warning of a kind in this time.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// How many connections may be open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptLimits {
    /// In all. Further ones are accepted and closed at once, so that the peer goes elsewhere.
    pub connections: u64,
    /// From one address of the peer's socket; `None` is without limit. Behind a proxy all connections have
    /// the proxy's address.
    pub per_address: Option<u64>,
    /// What the accepted sockets are told.
    pub socket: SocketOptions,
}

impl Default for AcceptLimits {
    fn default() -> Self {
        Self { connections: DEFAULT_CONNECTIONS, per_address: None, socket: SocketOptions::default() }
    }
}

/// Counters of an [`Acceptor`], for metrics.
#[derive(Debug, Default)]
pub struct AcceptStats {
    accepted: AtomicU64,
    open: AtomicU64,
    over_limit: AtomicU64,
    over_address_limit: AtomicU64,
    out_of_files: AtomicU64,
    failed: AtomicU64,
}

/// What [`AcceptStats`] counted, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcceptCounts {
    /// Connections that were handed over.
    pub accepted: u64,
    /// Of these, those whose [`Slot`] lives.
    pub open: u64,
    /// Closed at once because of [`AcceptLimits::connections`].
    pub over_limit: u64,
    /// Closed at once because of [`AcceptLimits::per_address`].
    pub over_address_limit: u64,
    /// Times that the process or the system had no file descriptor left.
    pub out_of_files: u64,
    /// Connections that died before they could be handed over.
    pub failed: u64,
}

impl AcceptStats {
    /// All counters.
    pub fn counts(&self) -> AcceptCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AcceptCounts {
            accepted: read(&self.accepted),
            open: read(&self.open),
            over_limit: read(&self.over_limit),
            over_address_limit: read(&self.over_address_limit),
            out_of_files: read(&self.out_of_files),
            failed: read(&self.failed),
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Accepted {
    /// The connection, with its socket options set.
    pub stream: TcpStream,
    /// The other end; IPv4 on a dual-stack socket is IPv4 here.
    pub peer: SocketAddr,
    /// This end.
    pub local: SocketAddr,
    /// Its number: from 1, each higher than those before it, never used twice.
    pub number: u64,
    /// Its place among the limits, to be kept as long as the connection.
    pub slot: Slot,
}

/// The place of a connection among the limits; given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    /// Set if connections are counted by address.
    address: Option<IpAddr>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.stats.open.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        let mut addresses = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = addresses.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                addresses.remove(&address);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    stats: Arc<AcceptStats>,
    /// Open connections by address; empty if they are not limited.
    addresses: Mutex<HashMap<IpAddr, u64>>,
}

/// Takes connections from listeners.
#[derive(Debug)]
pub struct Acceptor {
    listeners: Vec<Listener>,
    limits: AcceptLimits,
    shared: Arc<Shared>,
    clock: Clock,
    /// A descriptor to give up when there is no other, so that the peer can be told by a close.
    spare: Option<File>,
    number: u64,
    /// Which listener is asked first: each time the next, so that a busy one does not starve the others.
    turn: usize,
}

static REFUSED: Throttle = Throttle::new(WARNING_PERIOD);
static OUT_OF_FILES: Throttle = Throttle::new(WARNING_PERIOD);
static OUT_OF_MEMORY: Throttle = Throttle::new(WARNING_PERIOD);

impl Acceptor {
    /// An acceptor that has not started.
    pub fn new(listeners: Vec<Listener>, limits: AcceptLimits) -> Self {
        Self {
            listeners,
            limits,
            shared: Arc::default(),
            clock: Clock::system(),
            spare: File::open("/dev/null").ok(),
            number: 0,
            turn: 0,
        }
    }

    /// The counters, which outlive the acceptor.
    pub fn stats(&self) -> Arc<AcceptStats> {
        Arc::clone(&self.shared.stats)
    }

    /// Hands each connection to `serve`, which must not block, until `stop` is requested; then closes the
    /// listeners.
    pub async fn run(mut self, stop: &Stop, mut serve: impl FnMut(Accepted) + Send) {
        let mut stopped = std::pin::pin!(stop.requested());
        loop {
            let next = poll_fn(|context| self.poll_next(context));
            let next = tokio::select! {
                biased;
                () = &mut stopped => return,
                next = next => next,
            };
            let rest = match next {
                Ok((stream, peer)) => {
                    if let Some(accepted) = self.admit(stream, peer) {
                        serve(accepted);
                    }
                    false
                }
                Err(error) => self.fail(&error),
            };
            if rest {
                tokio::select! {
                    biased;
                    () = &mut stopped => return,
                    () = tokio::time::sleep(REST) => {}
                }
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn.checked_rem(self.listeners.len()).unwrap_or(0);
        let (before, from) = self.listeners.split_at_checked(first).unwrap_or_default();
        for listener in from.iter().chain(before) {
            if let Poll::Ready(next) = listener.poll_accept(context) {
                return Poll::Ready(next);
            }
        }
        Poll::Pending
    }

    /// Gives the connection its place, or closes it.
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> Option<Accepted> {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let stats = &self.shared.stats;
        if stats.open.load(Ordering::Relaxed) >= self.limits.connections {
            stats.over_limit.fetch_add(1, Ordering::Relaxed);
            self.warn_refused(peer, "maximum of connections");
            return None;
        }
        let address = match self.limits.per_address {
            Some(limit) if !self.count_address(peer.ip(), limit) => {
                self.shared.stats.over_address_limit.fetch_add(1, Ordering::Relaxed);
                self.warn_refused(peer, "maximum of connections from one address");
                return None;
            }
            limited => limited.map(|_| peer.ip()),
        };
        stats.open.fetch_add(1, Ordering::Relaxed);
        let slot = Slot { shared: Arc::clone(&self.shared), address };
        let local = self.limits.socket.apply(&stream).and_then(|()| stream.local_addr());
        let local = match local {
            Ok(local) => SocketAddr::new(local.ip().to_canonical(), local.port()),
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        stats.accepted.fetch_add(1, Ordering::Relaxed);
        self.number = self.number.wrapping_add(1);
        Some(Accepted { stream, peer, local, number: self.number, slot })
    }

    fn count_address(&self, address: IpAddr, limit: u64) -> bool {
        let mut addresses = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let open = addresses.get(&address).copied().unwrap_or(0);
        let allowed = open < limit;
        if allowed {
            addresses.insert(address, open.saturating_add(1));
        }
        allowed
    }

    fn warn_refused(&self, peer: SocketAddr, limit: &str) {
        if let Some(withheld) = REFUSED.pass(self.clock.now()) {
            warn!(%peer, limit, withheld, "connection refused by a limit");
        }
    }

    /// Counts what went wrong. Whether to rest before the next try.
    fn fail(&mut self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => {
                self.shared.stats.out_of_files.fetch_add(1, Ordering::Relaxed);
                if let Some(withheld) = OUT_OF_FILES.pass(self.clock.now()) {
                    warn!(%error, withheld, "no file descriptor for a connection, which is closed");
                }
                !self.close_one_with_the_spare()
            }
            Some(Errno::NOBUFS | Errno::NOMEM) => {
                self.shared.stats.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(withheld) = OUT_OF_MEMORY.pass(self.clock.now()) {
                    warn!(%error, withheld, "no memory for a connection");
                }
                true
            }
            // The rest is about that one connection: it died while it waited, or a firewall had it.
            _ => {
                self.shared.stats.failed.fetch_add(1, Ordering::Relaxed);
                debug!(%error, "connection lost before it was served");
                false
            }
        }
    }

    /// Frees the spare descriptor to accept the first connection that waits and close it: its peer learns
    /// at once that it must go elsewhere. Whether that worked; else somebody took the descriptor first.
    fn close_one_with_the_spare(&mut self) -> bool {
        if self.spare.take().is_none() {
            self.spare = File::open("/dev/null").ok();
            return false;
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        let next = self.poll_next(&mut context);
        let closed = matches!(&next, Poll::Ready(Ok(_)));
        drop(next);
        self.spare = File::open("/dev/null").ok();
        closed
    }
}

#[cfg(test)]
mod tests;
