//! The name servers of the original, each beside one of our own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use waypost_rocketmq_agent::agent::Agent;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::peers::{JavaPeer, Settings, Version, Workshop, tools_present};

use crate::alone;
use crate::world::{Broker, Folder, LONG, all_have, brokers_of, open, until};

/// What the agent says of a server's connection for the only broker: frames that wait, and the last error.
async fn upstream(agent: &Agent, server: SocketAddr) -> (usize, Option<String>) {
    let mut status = agent.status().await;
    let servers = status.brokers.remove(0).servers;
    let found = servers.into_iter().find(|upstream| upstream.server == server.to_string());
    found.map(|found| (found.queue, found.error)).expect("a server of the list")
}

async fn all(version: Version) {
    if !tools_present(&format!("the relay with the name server {version}"), &["java", "mvn"]) {
        return;
    }
    let workshop = Workshop::open().expect("a workshop");
    let mut java = JavaPeer::namesrv(&workshop, version, &Settings::new()).expect("a name server");
    let folder = Folder::new();
    let own = folder.server();
    let servers = [java.address(), own.addresses()[0]];
    let agent = folder.agent(&servers);
    // Our own question is none of theirs.
    let question = Request::new(request::IDENTIFY_AGENT);
    let told = open(servers[0]).await.call(&question, Duration::from_secs(3)).await;
    match version {
        Version::V5 => assert_eq!(told.map(|answer| answer.code).ok(), Some(3), "it does not support it"),
        Version::V4 => assert!(told.is_err(), "it never answers what it does not know: {told:?}"),
    }
    let mut broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a"], LONG).await;
    assert!(broker.register(&["single"], 2).await.is_success());
    all_have(&servers, "single", &["a"], LONG).await;
    broker.beat();
    let answer = broker.call(request::BROKER_HEARTBEAT, &[], &[]).await;
    assert!(answer.is_success(), "{answer:?}");
    let answer = broker.call(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "alone")], &alone("a")).await;
    assert!(answer.is_success(), "{answer:?}");
    assert_eq!(broker.query(2).await.field("changed"), Some("false"));
    // Nothing that a server does not know or does not answer is in the way of what comes after it.
    let began = Instant::now();
    assert!(broker.register(&["T", "U", "single", "after"], 3).await.is_success());
    all_have(&servers, "after", &["a"], LONG).await;
    println!("{version}: the next topic after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    until("empty queues", LONG, async || {
        upstream(&agent, servers[0]).await.0 + upstream(&agent, servers[1]).await.0 == 0
    })
    .await;
    assert_eq!(upstream(&agent, servers[0]).await.1, None);

    java.kill();
    until("its end is seen", LONG, async || upstream(&agent, servers[0]).await.1.is_some()).await;
    assert!(broker.register(&["while away"], 4).await.is_success());
    java.start_again().expect("it starts again");
    let began = Instant::now();
    for topic in ["while away", "T", "after"] {
        all_have(&servers, topic, &["a"], LONG).await;
    }
    // The broker itself says nothing more.
    println!("{version}: complete {:?} after it answers again", began.elapsed());

    broker.die();
    all_have(&servers, "T", &[], LONG).await;
    broker = Broker::start("a", "0", agent.addresses()[0]).await;
    assert!(broker.register(&["T", "U"], 1).await.is_success());
    all_have(&servers, "T", &["a"], LONG).await;
    assert!(broker.unregister().await.is_success());
    for server in servers {
        assert!(brokers_of(server, "T").await.is_empty(), "{server}");
    }
    let status = agent.status().await;
    assert_eq!((status.servers.len(), status.left_out), (2, Vec::new()));
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_of_5_5_0_hear_what_ours_hear() {
    all(Version::V5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_servers_of_4_9_7_hear_what_ours_hear() {
    all(Version::V4).await;
}
