//! 104, 322, 904 and 901: brokers that leave, that are alive, and who is in their group.

use waypost_rocketmq_access::audit::Changed;
use waypost_rocketmq_registry::{Command, Outcome, Sign, Unregistration};
use waypost_rocketmq_wire::body::{DataVersion, Dialect};
use waypost_rocketmq_wire::code::response;

use super::Request;
use crate::reply::Reply;
use crate::state::State;

/// 104. Answered when it has taken effect.
pub(crate) fn unregister(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    const NAME: &str = "UNREGISTER_BROKER";
    let (broker, address) = (request.required(NAME, "brokerName")?, request.required(NAME, "brokerAddr")?);
    let cluster = request.required(NAME, "clusterName")?;
    let id = request.header.ext.get_i64("brokerId");
    let connection = request.connection;
    let outcome = state.owner.apply(Command::Unregister(Unregistration { broker, address, id, connection }));
    if outcome != Outcome::Ignored {
        let id = id.unwrap_or(-1);
        state.audit.changed(request.peer, Changed::BrokerUnregistered { cluster, broker, address, id });
    }
    Ok(Reply::success())
}

/// 322.
pub(crate) fn query_data_version(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let sign = sign("QUERY_DATA_VERSION", request)?;
    let version = match request.body {
        [] => None,
        body => DataVersion::decode_comparable(body, &state.body_limits).map_err(|error| {
            let remark = format!("QUERY_DATA_VERSION: the body is no DataVersion: {error}");
            Reply::error(response::SYSTEM_ERROR, remark)
        })?,
    };
    let outcome = state.owner.apply(Command::QueryDataVersion { sign, version });
    let Outcome::DataVersion { changed, stored } = outcome else {
        return Err(Reply::error(response::SYSTEM_ERROR, "QUERY_DATA_VERSION: unexpected outcome"));
    };
    let mut reply = Reply::success().with("changed", if changed { "true" } else { "false" });
    if let Some(stored) = stored {
        stored.encode(&mut reply.body);
    }
    Ok(reply)
}

/// 904.
pub(crate) fn heartbeat(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    state.owner.apply(Command::Heartbeat(sign("BROKER_HEARTBEAT", request)?));
    Ok(Reply::success())
}

/// Request 901: peers ignore the remark; it stays, so that comparisons with the original stay simple (decision 10).
/// Callers that ask for standard JSON get it (field report A30).
pub(crate) fn member_group(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let ext = &request.header.ext;
    let (cluster, broker) =
        (ext.get("clusterName").unwrap_or_default(), ext.get("brokerName").unwrap_or_default());
    let mut reply = Reply::success();
    state
        .owner
        .read(|table| table.member_group(cluster, broker))
        .encode(dialect_by_flag(request), &mut reply.body);
    reply.remark = Some("not set any response code".into());
    Ok(reply)
}

/// Bare integer keys unless the caller asks for standard JSON: 106 and 901 do not look at versions.
pub(super) fn dialect_by_flag(request: &Request<'_, '_>) -> Dialect {
    if request.header.ext.get_bool("acceptStandardJsonOnly") == Some(true) {
        Dialect::Standard
    } else {
        Dialect::Legacy
    }
}

fn sign<'a>(name: &'static str, request: &'a Request<'_, '_>) -> Result<Sign<'a>, Reply> {
    Ok(Sign {
        cluster: request.required(name, "clusterName")?,
        address: request.required(name, "brokerAddr")?,
        connection: request.connection,
    })
}
