//! More brokers than an agent speaks for.

use std::net::{SocketAddr, TcpListener};

use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::message::Request;

use crate::world::{CLUSTER, Folder, LONG, open, table};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_refuses_brokers_beyond_its_bound_and_keeps_the_others() {
    let folder = Folder::new();
    // Its connections would be as many as the brokers.
    let down: SocketAddr = {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        port.local_addr().expect("bound")
    };
    let agent = folder.agent(&[down]);
    let connection = open(agent.addresses()[0]).await;
    let body = table(&["T", "U"], 1);
    let register = async |number: usize| {
        let (name, address) = (format!("broker-{number}"), format!("127.0.0.1:{}", 10_000 + number));
        let ext =
            [("clusterName", CLUSTER), ("brokerName", &*name), ("brokerAddr", &*address), ("brokerId", "0")];
        let request = Request { ext: &ext, body: &body, ..Request::new(request::REGISTER_BROKER) };
        connection.call(&request, LONG).await.expect("an answer")
    };
    for number in 0..1_000 {
        let answer = register(number).await;
        assert!(answer.is_success(), "{number}: {answer:?}");
    }
    let refusal = register(1_000).await;
    assert_eq!(refusal.code, response::SYSTEM_ERROR, "{refusal:?}");
    assert!(refusal.remark.as_deref().unwrap_or_default().contains("1000 brokers"), "{refusal:?}");
    assert!(register(999).await.is_success(), "it is known");
    assert_eq!(agent.status().await.brokers.len(), 1_000);
    agent.shutdown().await;
}
