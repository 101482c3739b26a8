//! Programs that nobody can change work through the agent of their machine.

use std::time::Duration;

use waypost_testkit::peers::{
    Broker, Client, ClientKind, Mqadmin, NameServer, Settings, Version, poll_until,
};

use crate::stage::{JAVA_TOOLS, SOON, Stage};

const KINDS: [ClientKind; 4] =
    [ClientKind::Java(Version::V5), ClientKind::Java(Version::V4), ClientKind::Go, ClientKind::Cpp];

const MESSAGES: usize = 100;

const CLUSTER: &str = "DefaultCluster";

#[test]
fn clients_brokers_and_operators_work_through_an_agent() {
    let text = "
        Two name servers and one agent for both. A broker 5.5.0 and a broker 4.9.7 register through the agent: both
        servers know them. mqadmin 5.5.0 and 4.9.7 with the agent as name server show the cluster, create topics, see
        their routes, write to both servers' configuration, take a broker's write permission and give it back, and
        delete a topic on both servers. Java 5.5.0, Java 4.9.7, Go and C++ clients, with the agent as name server, send
        100 messages each and receive each of them; one topic of each is not known to anybody before.
    ";
    let tools: Vec<&str> = JAVA_TOOLS.iter().chain(&["go", "python3"]).copied().collect();
    let Some(stage) = Stage::open("agent", &tools, text) else { return };
    let servers = [(); 2].map(|()| stage.name_server(&Settings::new()));
    let agent = stage.agent(&servers);
    let through = agent.address().to_string();
    let names = ["broker-a", "broker-b"];
    let _brokers = [(Version::V5, names[0]), (Version::V4, names[1])].map(|(version, name)| {
        let identity = Broker { cluster: CLUSTER, name, id: 0, name_servers: &through };
        stage.broker(version, &identity, &Settings::new())
    });
    for server in &servers {
        stage.wait_for_brokers(server, &names, SOON);
    }
    for version in [Version::V5, Version::V4] {
        let mut admin = stage.mqadmin(version);
        operates(&stage, &mut admin, &through, &servers);
        if version == Version::V5 {
            for kind in KINDS {
                create_topic(&mut admin, &through, &topic(kind));
            }
        }
    }
    let mut clients = KINDS.map(|kind| {
        let topics = [topic(kind)];
        let what = format!("{kind} is ready");
        let start = || Client::start(&stage.workshop, kind, &through, kind.slug(), &topics);
        stage.story.timed(what, start).0.expect("a client")
    });
    for client in &mut clients {
        let kind = client.kind();
        client.begin_sending(&topic(kind), MESSAGES, Duration::ZERO);
        client.begin_sending(&format!("{}-new", topic(kind)), 1, Duration::ZERO);
    }
    for client in &mut clients {
        for count in [MESSAGES, 1] {
            let sent = client.sent(Duration::from_secs(60));
            assert_eq!((sent.failures, sent.stored), (Vec::new(), count), "{}", client.kind());
        }
        let received = client.wait_for_received(MESSAGES, Duration::from_secs(60));
        stage.story.step(format_args!("{}: {} received", client.kind(), received.distinct));
        assert_eq!(received.distinct, MESSAGES, "{} lost messages", client.kind());
    }
    for server in &servers {
        for kind in KINDS {
            let new = format!("{}-new", topic(kind));
            stage.wait_for_route(server, &new, "known", SOON, |route| !route.queues.is_empty());
        }
    }
}

fn topic(kind: ClientKind) -> String {
    format!("Agent-{}", kind.slug())
}

fn create_topic(admin: &mut Mqadmin, through: &str, topic: &str) {
    let words = ["updateTopic", "-n", through, "-c", CLUSTER, "-t", topic, "-r", "4", "-w", "4"];
    let output = admin.run(&words);
    assert!(output.text.contains("success"), "updateTopic {topic}: {}", output.text);
}

/// What operators do with a name server, done with the agent.
fn operates(stage: &Stage, admin: &mut Mqadmin, through: &str, servers: &[NameServer]) {
    let name = format!("Operated-{}", if admin.version() == Version::V5 { 5 } else { 4 });
    create_topic(admin, through, &name);
    for server in servers {
        stage.wait_for_route(server, &name, "known", SOON, |route| route.queues.len() == 2);
    }
    let mut run = |words: &[&str]| {
        let words: Vec<&str> = words.iter().copied().chain(["-n", through]).collect();
        admin.run(&words).text
    };
    // clusterList of 4.9.7 fails on 5.5.0 brokers, on any name server.
    let cluster = run(&["topicClusterList", "-t", &name]);
    assert!(cluster.contains(CLUSTER), "topicClusterList: {cluster}");
    assert!(run(&["topicList"]).contains(&name), "topicList does not have {name}");
    // mqadmin asks the agent, whose cache may be as old as 5 s.
    let route = poll_until(SOON, || {
        let text = run(&["topicRoute", "-t", &name]);
        (text.contains("broker-a") && text.contains("broker-b")).then_some(())
    });
    assert!(route.is_some(), "topicRoute does not show both brokers");
    stage.story.step("mqadmin sees topics and routes");

    run(&["updateKvConfig", "-s", "Space", "-k", &name, "-v", "value"]);
    for server in servers {
        let answer = server.probe().ask(101, &[("namespace", "Space"), ("key", &name)]).expect("an answer");
        assert_eq!(answer.fields.get("value").map(String::as_str), Some("value"), "{answer:?}");
    }
    run(&["deleteKvConfig", "-s", "Space", "-k", &name]);
    for server in servers {
        let answer = server.probe().ask(101, &[("namespace", "Space"), ("key", &name)]).expect("an answer");
        assert_ne!(answer.code, 0, "{answer:?}");
    }
    for (command, permission) in [("wipeWritePerm", 4), ("addWritePerm", 6)] {
        let text = run(&[command, "-b", "broker-a"]);
        for server in servers {
            let found = |route: &waypost_testkit::peers::Route| {
                route.queues.get("broker-a").is_some_and(|queues| queues.0 == permission)
            };
            let route = server.probe().route(&name).expect("a route");
            assert!(found(&route), "{command}: {text}\n{route:?}");
        }
    }
    run(&["deleteTopic", "-c", CLUSTER, "-t", &name]);
    for server in servers {
        assert!(server.probe().route(&name).is_none(), "deleteTopic did not reach {}", server.address());
    }
    stage.story.step("mqadmin wrote to both servers");
}
