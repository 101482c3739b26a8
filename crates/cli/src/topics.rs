//! Lists of topics.

use serde::Serialize;
use waypost_net::address::HostPort;
use waypost_rocketmq_wire::body::TopicList;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::brokers::cluster_info;
use crate::call::{CallError, Caller, Missing, body_limits, request};
use crate::first::{First, NoAnswer, ask_first};
use crate::servers::Servers;

/// Topics, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Topics {
    /// The server that answered.
    pub server: String,
    /// The cluster that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Sorted by name.
    pub topics: Vec<String>,
}

/// Asks for all topics, or those of one cluster.
///
/// # Errors
///
/// [`CallError::NotFound`] in it where a server does not know the cluster.
pub async fn ask(
    caller: &Caller,
    servers: &Servers,
    cluster: Option<&str>,
) -> Result<First<Topics>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let mut topics = match cluster {
            None => all(caller, &server).await?,
            Some(cluster) => of_cluster(caller, &server, cluster).await?,
        };
        if let (Some(cluster), true) = (cluster, topics.is_empty()) {
            // The protocol answers an empty list for a cluster that does not exist as well.
            let known = cluster_info(caller, &server).await?;
            if !known.cluster_addr_table.contains_key(cluster) {
                return Err(CallError::not_found(&server, Missing::Cluster(cluster.to_owned())));
            }
        }
        topics.sort_unstable();
        Ok(Topics { server: server.to_string(), cluster: cluster.map(str::to_owned), topics })
    })
    .await
}

/// Asks one server for all topics.
///
/// # Errors
///
/// Why there is no answer.
pub async fn all(caller: &Caller, server: &HostPort) -> Result<Vec<String>, CallError> {
    list(caller, server, request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[])).await
}

async fn of_cluster(caller: &Caller, server: &HostPort, cluster: &str) -> Result<Vec<String>, CallError> {
    list(caller, server, request(request::GET_TOPICS_BY_CLUSTER, &[("cluster", cluster)])).await
}

async fn list(caller: &Caller, server: &HostPort, question: Request<'_>) -> Result<Vec<String>, CallError> {
    let answer = caller.call(server, question).await?.success(server)?;
    let list = TopicList::decode(&answer.body, &body_limits());
    Ok(list.map_err(|fault| CallError::malformed(server, fault))?.topic_list)
}
