//! Topics that an operator deletes through the agent while a broker of the machine announces them.

use std::net::SocketAddr;

use waypost_rocketmq_agent::agent::Agent;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::path::Path;
use crate::world::{Broker, Folder, LONG, all_have, ask, hung, until};

async fn delete(agent: SocketAddr, ext: &[(&str, &str)]) -> Answer {
    ask(agent, &Request { ext, ..Request::new(request::DELETE_TOPIC_IN_NAMESRV) }).await
}

/// A broker that announces T and U, and the topic "single" by itself.
async fn broker_of(agent: &Agent) -> Broker {
    let broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    assert!(broker.register(&["single"], 2).await.is_success());
    broker
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_every_server_refused_makes_nobody_forget_the_topic() {
    let folder = Folder::new();
    let server = folder.server_with(&[("accessAdmin", "10.0.0.0/8")]);
    let path = Path::to(server.addresses()[0]).await;
    let agent = folder.agent(&[path.address]);
    let _broker = broker_of(&agent).await;
    all_have(&server.addresses()[..1], "single", &["a"], LONG).await;
    let answer = delete(agent.addresses()[0], &[("topic", "single")]).await;
    assert!(answer.remark.as_deref().unwrap_or_default().contains("refused"), "{answer:?}");
    let empty = folder.server();
    path.lead_to(empty.addresses()[0]);
    all_have(&empty.addresses()[..1], "single", &["a"], LONG).await;
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_forgotten_as_soon_as_one_server_accepted_its_deletion() {
    for cluster in [&[][..], &[("clusterName", "")], &[("clusterName", "c")]] {
        let folder = Folder::new();
        let server = folder.server();
        let (hung, _listener) = hung().await;
        let agent = folder.agent(&[server.addresses()[0], hung]);
        let _broker = broker_of(&agent).await;
        all_have(&server.addresses()[..1], "single", &["a"], LONG).await;
        let waiting = async |frames: usize| {
            let status = agent.status().await;
            status.brokers[0].servers.iter().any(|it| it.server == hung.to_string() && it.queue == frames)
        };
        until("both frames wait for the hung server", LONG, async || waiting(2).await).await;
        let ext = [&[("topic", "single")], cluster].concat();
        let forgotten = async {
            until("one frame is left", LONG, async || waiting(1).await).await;
        };
        let deleted = delete(agent.addresses()[0], &ext);
        tokio::pin!(deleted);
        tokio::select! {
            biased;
            answer = &mut deleted => panic!("the hung server keeps the answer: {answer:?}"),
            () = forgotten => {}
        }
        all_have(&server.addresses()[..1], "single", &[], LONG).await;
        let answer = deleted.await;
        assert!(answer.remark.as_deref().unwrap_or_default().starts_with("1 of 2"), "{answer:?}");
        agent.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_in_another_cluster_makes_nobody_forget_the_topic() {
    let folder = Folder::new();
    let server = folder.server();
    let path = Path::to(server.addresses()[0]).await;
    let agent = folder.agent(&[path.address]);
    let _broker = broker_of(&agent).await;
    all_have(&server.addresses()[..1], "single", &["a"], LONG).await;
    let answer = delete(agent.addresses()[0], &[("topic", "single"), ("clusterName", "elsewhere")]).await;
    assert!(answer.is_success(), "{answer:?}");
    let empty = folder.server();
    path.lead_to(empty.addresses()[0]);
    all_have(&empty.addresses()[..1], "single", &["a"], LONG).await;
    agent.shutdown().await;
}
