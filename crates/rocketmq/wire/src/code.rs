//! Request and response codes (`rocketmq-remoting` section 10).

/// Codes of requests.
pub mod request {
    /// A producer's message, long field names.
    pub const SEND_MESSAGE: i32 = 10;
    /// A consumer asks for messages.
    pub const PULL_MESSAGE: i32 = 11;
    /// The largest offset of a queue.
    pub const GET_MAX_OFFSET: i32 = 30;
    /// A client's heartbeat to a broker.
    pub const HEART_BEAT: i32 = 34;
    /// A client leaves a broker.
    pub const UNREGISTER_CLIENT: i32 = 35;
    /// Sets one key of the key-value configuration.
    pub const PUT_KV_CONFIG: i32 = 100;
    /// Reads one key of the key-value configuration.
    pub const GET_KV_CONFIG: i32 = 101;
    /// Deletes one key of the key-value configuration.
    pub const DELETE_KV_CONFIG: i32 = 102;
    /// A broker announces itself and its topics.
    pub const REGISTER_BROKER: i32 = 103;
    /// A broker leaves.
    pub const UNREGISTER_BROKER: i32 = 104;
    /// The route of one topic.
    pub const GET_ROUTEINFO_BY_TOPIC: i32 = 105;
    /// All clusters and brokers.
    pub const GET_BROKER_CLUSTER_INFO: i32 = 106;
    /// Takes the write permission from all topics of a broker.
    pub const WIPE_WRITE_PERM_OF_BROKER: i32 = 205;
    /// All topic names.
    pub const GET_ALL_TOPIC_LIST_FROM_NAMESERVER: i32 = 206;
    /// Deletes a topic's routes.
    pub const DELETE_TOPIC_IN_NAMESRV: i32 = 216;
    /// A broker announces one topic.
    pub const REGISTER_TOPIC_IN_NAMESRV: i32 = 217;
    /// All keys of one namespace of the key-value configuration.
    pub const GET_KVLIST_BY_NAMESPACE: i32 = 219;
    /// The topics of one cluster.
    pub const GET_TOPICS_BY_CLUSTER: i32 = 224;
    /// Cluster and broker names, which are topics of the system.
    pub const GET_SYSTEM_TOPIC_LIST_FROM_NS: i32 = 304;
    /// A producer's message, short field names.
    pub const SEND_MESSAGE_V2: i32 = 310;
    /// Topics with the unit flag.
    pub const GET_UNIT_TOPIC_LIST: i32 = 311;
    /// Topics with the unit-subscription flag.
    pub const GET_HAS_UNIT_SUB_TOPIC_LIST: i32 = 312;
    /// Topics with the unit-subscription flag but without the unit flag.
    pub const GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: i32 = 313;
    /// Changes the configuration of the NameServer.
    pub const UPDATE_NAMESRV_CONFIG: i32 = 318;
    /// Reads the configuration of the NameServer.
    pub const GET_NAMESRV_CONFIG: i32 = 319;
    /// Several messages of a producer in one request.
    pub const SEND_BATCH_MESSAGE: i32 = 320;
    /// A broker asks whether its registration is current.
    pub const QUERY_DATA_VERSION: i32 = 322;
    /// Gives the write permission back to all topics of a broker.
    pub const ADD_WRITE_PERM_OF_BROKER: i32 = 327;
    /// The addresses of one broker group.
    pub const GET_BROKER_MEMBER_GROUP: i32 = 901;
    /// A broker's heartbeat.
    pub const BROKER_HEARTBEAT: i32 = 904;
    /// The NameServer tells a broker that the least id of its group changed (outgoing, one-way).
    pub const NOTIFY_MIN_BROKER_ID_CHANGE: i32 = 905;
    /// Asks a server whether it is a Waypost agent, which names itself and the agents that it leads to. Ours alone:
    /// name servers do not support it.
    pub const IDENTIFY_AGENT: i32 = 98_760;
}

/// Codes of responses.
pub mod response {
    /// Done.
    pub const SUCCESS: i32 = 0;
    /// The request failed; the remark says why.
    pub const SYSTEM_ERROR: i32 = 1;
    /// The server has too much to do.
    pub const SYSTEM_BUSY: i32 = 2;
    /// The server does not know the request's code.
    pub const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
    /// The caller may not do this.
    pub const NO_PERMISSION: i32 = 16;
    /// The topic has no route.
    pub const TOPIC_NOT_EXIST: i32 = 17;
    /// The key has no value.
    pub const QUERY_NOT_FOUND: i32 = 22;
    /// The server is stopping; the caller should connect to another.
    pub const GO_AWAY: i32 = 1500;
}

/// The name that the originals, or we, give to the request `code`, for logs and metrics; `None` when it is not one of
/// [`request`].
#[must_use]
pub fn request_name(code: i32) -> Option<&'static str> {
    Some(match code {
        request::SEND_MESSAGE => "SEND_MESSAGE",
        request::PULL_MESSAGE => "PULL_MESSAGE",
        request::GET_MAX_OFFSET => "GET_MAX_OFFSET",
        request::HEART_BEAT => "HEART_BEAT",
        request::UNREGISTER_CLIENT => "UNREGISTER_CLIENT",
        request::PUT_KV_CONFIG => "PUT_KV_CONFIG",
        request::GET_KV_CONFIG => "GET_KV_CONFIG",
        request::DELETE_KV_CONFIG => "DELETE_KV_CONFIG",
        request::REGISTER_BROKER => "REGISTER_BROKER",
        request::UNREGISTER_BROKER => "UNREGISTER_BROKER",
        request::GET_ROUTEINFO_BY_TOPIC => "GET_ROUTEINFO_BY_TOPIC",
        request::GET_BROKER_CLUSTER_INFO => "GET_BROKER_CLUSTER_INFO",
        request::WIPE_WRITE_PERM_OF_BROKER => "WIPE_WRITE_PERM_OF_BROKER",
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        request::DELETE_TOPIC_IN_NAMESRV => "DELETE_TOPIC_IN_NAMESRV",
        request::REGISTER_TOPIC_IN_NAMESRV => "REGISTER_TOPIC_IN_NAMESRV",
        request::GET_KVLIST_BY_NAMESPACE => "GET_KVLIST_BY_NAMESPACE",
        request::GET_TOPICS_BY_CLUSTER => "GET_TOPICS_BY_CLUSTER",
        request::GET_SYSTEM_TOPIC_LIST_FROM_NS => "GET_SYSTEM_TOPIC_LIST_FROM_NS",
        request::SEND_MESSAGE_V2 => "SEND_MESSAGE_V2",
        request::GET_UNIT_TOPIC_LIST => "GET_UNIT_TOPIC_LIST",
        request::GET_HAS_UNIT_SUB_TOPIC_LIST => "GET_HAS_UNIT_SUB_TOPIC_LIST",
        request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
        request::UPDATE_NAMESRV_CONFIG => "UPDATE_NAMESRV_CONFIG",
        request::GET_NAMESRV_CONFIG => "GET_NAMESRV_CONFIG",
        request::SEND_BATCH_MESSAGE => "SEND_BATCH_MESSAGE",
        request::QUERY_DATA_VERSION => "QUERY_DATA_VERSION",
        request::ADD_WRITE_PERM_OF_BROKER => "ADD_WRITE_PERM_OF_BROKER",
        request::GET_BROKER_MEMBER_GROUP => "GET_BROKER_MEMBER_GROUP",
        request::BROKER_HEARTBEAT => "BROKER_HEARTBEAT",
        request::NOTIFY_MIN_BROKER_ID_CHANGE => "NOTIFY_MIN_BROKER_ID_CHANGE",
        request::IDENTIFY_AGENT => "IDENTIFY_AGENT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{request, request_name};

    #[test]
    fn names_are_those_of_the_originals() {
        assert_eq!(request_name(105), Some("GET_ROUTEINFO_BY_TOPIC"));
        assert_eq!(request_name(request::BROKER_HEARTBEAT), Some("BROKER_HEARTBEAT"));
        assert_eq!(request_name(999), None);
        assert_eq!(request_name(-1), None);
    }
}
