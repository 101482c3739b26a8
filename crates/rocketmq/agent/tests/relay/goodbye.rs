//! Goodbyes that end nobody, through the agent as directly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::alone;
use crate::world::{Broker, CLUSTER, Folder, LONG, all_have, brokers_of, open, until};

/// Sends a 104 of this broker name over this connection and waits for the answer, which is always a success.
async fn say_goodbye(connection: &Connection, name: &str, address: &str) {
    let ext = [("clusterName", CLUSTER), ("brokerName", name), ("brokerAddr", address), ("brokerId", "0")];
    let goodbye = Request { ext: &ext, ..Request::new(request::UNREGISTER_BROKER) };
    let answer = connection.call(&goodbye, LONG).await.expect("an answer");
    assert!(answer.is_success(), "{answer:?}");
}

/// Looks for a second, far longer than it takes to withdraw a broker.
async fn stays(server: SocketAddr, broker: &str) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert_eq!(brokers_of(server, broker).await, [broker], "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_under_another_name_ends_nobody() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let agent = folder.agent(&[address]);
    for (door, name) in [(address, "direct"), (agent.addresses()[0], "through")] {
        let broker = Broker::start(name, "0", door).await;
        assert!(broker.register(&["T", "U", name], 1).await.is_success());
        all_have(&[address], name, &[name], LONG).await;
        say_goodbye(&open(door).await, "another", &broker.address).await;
        stays(address, name).await;
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goodbye_over_an_older_connection_ends_nobody() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let agent = folder.agent(&[address]);
    for (door, name) in [(address, "direct"), (agent.addresses()[0], "through")] {
        let mut broker = Broker::start(name, "0", door).await;
        assert!(broker.register(&["T", "U"], 1).await.is_success());
        let old = broker.take_connection();
        broker.connect(door).await;
        assert!(broker.register(&["T", "U", name], 2).await.is_success());
        all_have(&[address], name, &[name], LONG).await;
        say_goodbye(&old, name, &broker.address).await;
        stays(address, name).await;
        // The broker's own still ends it.
        assert!(broker.unregister().await.is_success());
        until("the end of the broker", LONG, async || brokers_of(address, name).await.is_empty()).await;
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_another_broker_reach_the_servers_over_a_brokers_connection() {
    let folder = Folder::new();
    let server = folder.server();
    let address = server.addresses()[0];
    let agent = folder.agent(&[address]);
    let a = Broker::start("a", "0", agent.addresses()[0]).await;
    let b = Broker::start("b", "0", address).await;
    assert!(a.register(&["T", "U"], 1).await.is_success());
    assert!(b.register(&["T", "U"], 1).await.is_success());
    all_have(&[address], "T", &["a", "b"], LONG).await;
    let answer = a.call(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "of b")], &alone("b")).await;
    assert!(answer.is_success(), "{answer:?}");
    assert_eq!(brokers_of(address, "of b").await, ["b"]);
    agent.shutdown().await;
}
