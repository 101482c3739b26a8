//! Lists of topics.

use serde::Serialize;
use waypost_rocketmq_wire::body::TopicList;
use waypost_rocketmq_wire::code::request;

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
        let answer = match cluster {
            None => caller.call(&server, request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, &[])).await?,
            Some(cluster) => {
                let fields = [("cluster", cluster)];
                caller.call(&server, request(request::GET_TOPICS_BY_CLUSTER, &fields)).await?
            }
        };
        let answer = answer.success(&server)?;
        let list = TopicList::decode(&answer.body, &body_limits())
            .map_err(|fault| CallError::malformed(&server, fault))?;
        let mut topics = list.topic_list;
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
