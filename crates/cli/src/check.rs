//! Whether servers serve: the probe for containers and scripts.

use waypost_rocketmq_wire::code::{request, response};

use crate::call::{CallError, Caller, request};
use crate::everywhere::{Outcomes, tell_all};
use crate::servers::Servers;

/// A topic that nobody has: its answer is the smallest that proves that routes are served.
const NOBODYS_TOPIC: &str = "waypost-check";

/// Asks every server for a route. One that knows none is well; one that refuses, is silent or closes the
/// connection is not.
pub async fn check(caller: &Caller, servers: &Servers) -> Outcomes<()> {
    tell_all(servers, |server| async move {
        let fields = [("topic", NOBODYS_TOPIC)];
        let answer = caller.call(&server, request(request::GET_ROUTEINFO_BY_TOPIC, &fields)).await?;
        match answer.code {
            response::TOPIC_NOT_EXIST => Ok::<(), CallError>(()),
            _ => answer.success(&server).map(drop),
        }
    })
    .await
}
