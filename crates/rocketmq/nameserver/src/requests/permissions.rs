//! 205 and 327: taking and giving write permission of all topics of a broker.

use waypost_rocketmq_access::audit::Changed;
use waypost_rocketmq_registry::{Command, Outcome};

use super::Request;
use crate::reply::Reply;
use crate::state::State;

/// 205.
pub(crate) fn wipe(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let broker = request.optional("brokerName").unwrap_or_default();
    let changed = |broker, topics| Changed::WritePermissionWiped { broker, topics };
    change(state, request, broker, "wipeTopicCount", Command::WipeWritePermission { broker }, changed)
}

/// 327.
pub(crate) fn add(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let broker = request.optional("brokerName").unwrap_or_default();
    let changed = |broker, topics| Changed::WritePermissionAdded { broker, topics };
    change(state, request, broker, "addTopicCount", Command::AddWritePermission { broker }, changed)
}

/// The count is always there: admin clients take it for granted (K22).
fn change<'a>(
    state: &State,
    request: &Request<'_, '_>,
    broker: &'a str,
    count_field: &'static str,
    command: Command<'_>,
    changed: impl FnOnce(&'a str, usize) -> Changed<'a>,
) -> Result<Reply, Reply> {
    let count = match state.owner.apply(command) {
        Outcome::Topics(count) => count,
        _ => 0,
    };
    state.audit.changed(request.peer, changed(broker, count));
    Ok(Reply::success().with(count_field, count.to_string()))
}
