//! Taking the routes of a topic away.

use waypost_rocketmq_wire::code::request;

use crate::call::{Caller, request};
use crate::everywhere::{Outcomes, tell_all};
use crate::servers::Servers;

/// Deletes the routes of a topic on every server, in one cluster or in all. Servers answer the same whether
/// it was there or not. A broker that still has the topic brings it back with its next registration.
pub async fn delete_topic(
    caller: &Caller,
    servers: &Servers,
    topic: &str,
    cluster: Option<&str>,
) -> Outcomes<()> {
    tell_all(servers, |server| async move {
        let mut fields = vec![("topic", topic)];
        fields.extend(cluster.map(|cluster| ("clusterName", cluster)));
        let answer = caller.call(&server, request(request::DELETE_TOPIC_IN_NAMESRV, &fields)).await?;
        answer.success(&server).map(drop)
    })
    .await
}
