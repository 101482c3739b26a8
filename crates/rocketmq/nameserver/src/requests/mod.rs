//! What is answered to each request, one file a family (spec section 1).

pub(crate) mod config;
pub(crate) mod kv;
pub(crate) mod liveness;
pub(crate) mod permissions;
pub(crate) mod registration;
pub(crate) mod route;
pub(crate) mod topics;

use std::net::SocketAddr;

use waypost_rocketmq_registry::ConnectionId;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::header::Header;

use crate::reply::Reply;
use crate::state::State;

/// A decoded request and where it came from.
pub(crate) struct Request<'a, 'f> {
    pub(crate) header: &'a Header<'f>,
    pub(crate) encoding: HeaderEncoding,
    pub(crate) body: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) connection: ConnectionId,
}

impl Request<'_, '_> {
    /// A field of the header that must be there and not empty.
    pub(crate) fn required(&self, request: &'static str, field: &'static str) -> Result<&str, Reply> {
        self.optional(field).ok_or_else(|| Reply::missing(request, field))
    }

    /// A field of the header; an empty one counts as absent, as the binary form cannot tell the two apart.
    pub(crate) fn optional(&self, field: &str) -> Option<&str> {
        self.header.ext.get(field).filter(|value| !value.is_empty())
    }
}

/// Whether the server answers this code with more than "not supported".
pub(crate) fn is_known(code: i32) -> bool {
    use request::*;
    matches!(
        code,
        PUT_KV_CONFIG
            | GET_KV_CONFIG
            | DELETE_KV_CONFIG
            | REGISTER_BROKER
            | UNREGISTER_BROKER
            | GET_ROUTEINFO_BY_TOPIC
            | GET_BROKER_CLUSTER_INFO
            | WIPE_WRITE_PERM_OF_BROKER
            | GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | DELETE_TOPIC_IN_NAMESRV
            | REGISTER_TOPIC_IN_NAMESRV
            | GET_KVLIST_BY_NAMESPACE
            | GET_TOPICS_BY_CLUSTER
            | GET_SYSTEM_TOPIC_LIST_FROM_NS
            | GET_UNIT_TOPIC_LIST
            | GET_HAS_UNIT_SUB_TOPIC_LIST
            | GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
            | UPDATE_NAMESRV_CONFIG
            | GET_NAMESRV_CONFIG
            | QUERY_DATA_VERSION
            | ADD_WRITE_PERM_OF_BROKER
            | GET_BROKER_MEMBER_GROUP
            | BROKER_HEARTBEAT
    )
}

/// Whether the answer lists what is in the table, and may be as long as that is large.
pub(crate) fn is_list(code: i32) -> bool {
    use request::*;
    matches!(
        code,
        GET_BROKER_CLUSTER_INFO
            | GET_KVLIST_BY_NAMESPACE
            | GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            | GET_TOPICS_BY_CLUSTER
            | GET_SYSTEM_TOPIC_LIST_FROM_NS
            | GET_UNIT_TOPIC_LIST
            | GET_HAS_UNIT_SUB_TOPIC_LIST
            | GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
    )
}

/// Requests that need the table and nothing else.
pub(crate) fn on_table(state: &State, request: &Request<'_, '_>) -> Reply {
    let reply = match request.header.code {
        request::UNREGISTER_BROKER => liveness::unregister(state, request),
        request::QUERY_DATA_VERSION => liveness::query_data_version(state, request),
        request::BROKER_HEARTBEAT => liveness::heartbeat(state, request),
        request::GET_BROKER_MEMBER_GROUP => liveness::member_group(state, request),
        request::WIPE_WRITE_PERM_OF_BROKER => permissions::wipe(state, request),
        request::ADD_WRITE_PERM_OF_BROKER => permissions::add(state, request),
        request::DELETE_TOPIC_IN_NAMESRV => topics::delete(state, request),
        request::REGISTER_TOPIC_IN_NAMESRV => topics::register(state, request),
        request::GET_KVLIST_BY_NAMESPACE => Ok(kv::list(state, request)),
        _ => topics::list(state, request),
    };
    reply.unwrap_or_else(|refusal| refusal)
}
