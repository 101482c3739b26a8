//! Connections on which nothing happened for long.

use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_registry::{Command, ConnectionId};

use crate::server::THAW_GRACE;
use crate::state::State;

/// Closes connections that were idle for `idle_after`. One that carries brokers is closed when the last of
/// their leases is over: closed earlier, its end would remove brokers that may still be silent.
pub(crate) fn close_idle(state: &Arc<State>, now: Millis, idle_after: Duration) {
    let idle = state.sessions.idle(now, idle_after);
    if idle.is_empty() {
        return;
    }
    let shared = Arc::clone(state);
    // The table is asked on its lane: nobody else may wait for its lock.
    state.table_lane.give(0, move |watch| {
        if shared.pulse.is_thawing(shared.clock.now(), THAW_GRACE) {
            return;
        }
        let (carriers, others): (Vec<_>, Vec<_>) = shared
            .owner
            .read(|table| idle.into_iter().partition(|handle| table.is_bound(ConnectionId(handle.id()))));
        for handle in others {
            // Something may have come since it was found idle.
            if handle.is_idle(shared.pulse.now(), idle_after) {
                handle.close_idle();
            }
        }
        for handle in carriers {
            watch.progress(0);
            shared.owner.apply(Command::ConnectionIdle { connection: ConnectionId(handle.id()) });
        }
    });
}
