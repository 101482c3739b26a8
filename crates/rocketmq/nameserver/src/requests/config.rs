//! 318 and 319: the settings of the running server.

use waypost_rocketmq_access::audit::Changed;

use super::Request;
use crate::reply::Reply;
use crate::state::State;

/// 319. The body is never empty: admin tools take it for granted (K14).
pub(crate) fn show(state: &State) -> Reply {
    Reply::body(state.configuration(|configuration| configuration.properties_text()).into_bytes())
}

/// 318 (decision 11). In force, and on disk, before it is answered. Warnings about the new values are the lines of
/// the remark: admin tools ignore one beside code 0, and ours prints it.
pub(crate) fn update(state: &State, request: &Request<'_, '_>) -> Reply {
    match state.update_configuration(|configuration| configuration.update(request.body)) {
        Ok(change) => {
            for warning in &change.warnings {
                tracing::warn!(peer = %request.peer, %warning, "setting changed at run time");
            }
            for value in &change.values {
                let (key, before, after) = (value.key, value.before.as_str(), value.after.as_str());
                state.audit.changed(request.peer, Changed::Setting { key, before, after });
            }
            let warnings: Vec<String> = change.warnings.iter().map(ToString::to_string).collect();
            let remark = (!warnings.is_empty()).then(|| warnings.join("\n").into());
            Reply { remark, ..Reply::success() }
        }
        Err(refusal) => {
            let remark = refusal.to_string();
            state.audit.refused(request.peer, request.header.code, &remark, state.pulse.now());
            Reply::error(refusal.code(), remark)
        }
    }
}
