//! Lists of topics and brokers (106, 206, 224, 304, 311 to 313), and changes of one topic (216, 217).

use waypost_rocketmq_access::audit::Changed;
use waypost_rocketmq_registry::{Command, Outcome};
use waypost_rocketmq_wire::body::{TopicList, TopicRouteData};
use waypost_rocketmq_wire::code::{request as code, response};

use super::Request;
use super::liveness::dialect_by_flag;
use crate::reply::Reply;
use crate::state::State;

/// 216.
pub(crate) fn delete(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let topic = request.required("DELETE_TOPIC_IN_NAMESRV", "topic")?;
    let cluster = request.optional("clusterName");
    let outcome = state.owner.apply(Command::DeleteTopic { topic, cluster });
    if outcome != Outcome::Ignored {
        state.audit.changed(request.peer, Changed::TopicDeleted { topic, cluster });
    }
    Ok(Reply::success())
}

/// 217. Always a success, also when a broker name is unknown (spec 1.3).
pub(crate) fn register(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    const NAME: &str = "REGISTER_TOPIC_IN_NAMESRV";
    let topic = request.required(NAME, "topic")?;
    if request.body.is_empty() {
        return Ok(Reply::success());
    }
    let data = TopicRouteData::decode(request.body, &state.body_limits).map_err(|error| {
        Reply::error(
            response::SYSTEM_ERROR,
            format!("{NAME}: the body is no route of topic {topic}: {error}"),
        )
    })?;
    let outcome = state.owner.apply(Command::RegisterTopic { topic, queues: &data.queue_datas });
    if outcome != Outcome::Ignored {
        let brokers = data.queue_datas.len();
        state.audit.changed(request.peer, Changed::TopicRegistered { topic, brokers });
    }
    Ok(Reply::success())
}

/// The lists.
pub(crate) fn list(state: &State, request: &Request<'_, '_>) -> Result<Reply, Reply> {
    let settings = state.settings();
    let disabled = || Reply::error(response::SYSTEM_ERROR, "disable");
    let list = match request.header.code {
        code::GET_BROKER_CLUSTER_INFO => {
            let mut body = Vec::new();
            state.owner.read(|table| table.cluster_info()).encode(dialect_by_flag(request), &mut body);
            return Ok(Reply::body(body));
        }
        code::GET_SYSTEM_TOPIC_LIST_FROM_NS => state.owner.read(|table| table.system_topics()),
        code::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
            if !settings.routes.all_topic_list {
                return Err(disabled());
            }
            state.owner.read(|table| table.all_topics())
        }
        _ if !settings.routes.topic_list => return Err(disabled()),
        code::GET_TOPICS_BY_CLUSTER => {
            let cluster = request.optional("cluster").unwrap_or_default();
            return of_cluster(state, cluster, settings.routes.strict_unknown_cluster);
        }
        code::GET_UNIT_TOPIC_LIST => state.owner.read(|table| table.unit_topics()),
        code::GET_HAS_UNIT_SUB_TOPIC_LIST => state.owner.read(|table| table.unit_sub_topics()),
        _ => state.owner.read(|table| table.unit_sub_ununit_topics()),
    };
    Ok(listed(&list))
}

/// Request 224: an unknown cluster is an empty list with a remark, or an error if the operator wants that (field
/// report A18).
fn of_cluster(state: &State, cluster: &str, strict: bool) -> Result<Reply, Reply> {
    if let Some(list) = state.owner.read(|table| table.topics_of_cluster(cluster)) {
        return Ok(listed(&list));
    }
    let remark = format!("cluster {cluster} is not registered here");
    if strict {
        return Err(Reply::error(response::SYSTEM_ERROR, remark));
    }
    Ok(Reply { remark: Some(remark.into()), ..listed(&TopicList::default()) })
}

fn listed(list: &TopicList) -> Reply {
    let mut body = Vec::new();
    list.encode(&mut body);
    Reply::body(body)
}
