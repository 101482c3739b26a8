//! The first thing that must work: a broker registers, and clients find it.

use std::time::Duration;

use waypost_testkit::peers::{Broker, Client, ClientKind, Settings, Version};

use crate::stage::{JAVA_TOOLS, SOON, Stage};

const MESSAGES: usize = 1000;

#[test]
fn java_messages_flow_over_the_route_given() {
    let text = "
        A Java broker 5.5.0 registers. mqadmin creates a topic on it.
        A Java producer sends 1,000 messages to the topic; a Java consumer receives each of them.
    ";
    let Some(stage) = Stage::open("exchange", JAVA_TOOLS, text) else { return };
    let server = stage.name_server(&Settings::new());
    let name_servers = server.address().to_string();
    let identity = Broker { cluster: "DefaultCluster", name: "broker-a", id: 0, name_servers: &name_servers };
    let broker = stage.broker(Version::V5, &identity, &Settings::new());
    stage.wait_for_brokers(&server, &["broker-a"], SOON);

    let mut admin = stage.mqadmin(Version::V5);
    stage.create_topic(&mut admin, &server, "DefaultCluster", "Exchange");
    let (route, _) =
        stage.wait_for_route(&server, "Exchange", "known", SOON, |route| !route.queues.is_empty());
    assert_eq!(route.addresses["broker-a"][&0], broker.address().to_string());
    assert_eq!(route.queues["broker-a"], (6, 4), "permission and write queues");

    let kind = ClientKind::Java(Version::V5);
    let topics = ["Exchange".to_owned()];
    let mut client =
        Client::start(&stage.workshop, kind, &name_servers, "exchange", &topics).expect("a client");
    client.begin_sending("Exchange", MESSAGES, Duration::ZERO);
    let sent = client.sent(Duration::from_secs(60));
    stage.story.step(format_args!("{} messages sent", sent.stored));
    assert_eq!(sent.failures, Vec::<String>::new());
    let received = client.wait_for_received(MESSAGES, Duration::from_secs(60));
    stage.story.step(format_args!("{} messages received, {} repeated", received.distinct, received.repeated));
    assert_eq!((sent.stored, received.distinct), (MESSAGES, MESSAGES));
}
