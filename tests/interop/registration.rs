//! Brokers that register in unusual ways.

use waypost_testkit::peers::{Broker, JavaPeer, Mqadmin, NameServer, Program, Settings, Version};

use crate::stage::{JAVA_TOOLS, NEXT_REGISTRATION, SOON, Stage};

/// More topics than fit into one part of a split registration.
const TOPICS: usize = 12;
const PART: usize = 5;

#[test]
fn every_way_of_registering_is_understood() {
    let text = "
        Three brokers 5.5.0 and one 4.9.7, each in a cluster of its own:
        `compressed` and `compressed-4` register with compressedRegister=true (the 5.5.0 one deflates its bodies but
        says that it does not, and the Java NameServer 5.5.0 refuses it);
        `split` has enableSplitRegistration=true with parts of 5 topics, and 12 topics besides its own;
        `single` has enableSingleTopicRegister=true and announces a new topic by request 217.
        Each registers, each new topic is in the table at once, and after kill -9 and a new start all topics are back.
    ";
    let Some(stage) = Stage::open("registration", JAVA_TOOLS, text) else { return };
    let server = stage.name_server(&Settings::new());
    let mut admin = stage.mqadmin(Version::V5);

    let compressed = Settings::new().with("compressedRegister", "true");
    let split = Settings::new().with("enableSplitRegistration", "true").with("splitRegistrationSize", PART);
    let single = Settings::new().with("enableSingleTopicRegister", "true");
    let mut brokers = [
        start(&stage, &server, Version::V4, "compressed-4", &compressed),
        start(&stage, &server, Version::V5, "single", &single),
        start(&stage, &server, Version::V5, "split", &split),
    ];
    let refused = matches!(stage.program, Program::Java(Version::V5));
    let mut compressed = start(&stage, &server, Version::V5, "compressed", &compressed);
    if refused {
        compressed
            .wait_for_line("refusal", SOON, |line| line.contains("Failed to decode RegisterBrokerBody"));
        stage.story.step("the Java NameServer 5.5.0 refuses `compressed`, as expected");
        stage.wait_for_brokers(&server, &["compressed-4", "single", "split"], SOON);
    } else {
        stage.wait_for_brokers(&server, &["compressed", "compressed-4", "single", "split"], SOON);
        create(&stage, &mut admin, &server, "compressed", 2);
        comes_back(&stage, &server, &mut compressed, "compressed", 2);
    }
    for (broker, (name, topics)) in
        brokers.iter_mut().zip([("compressed-4", 2), ("single", 2), ("split", TOPICS)])
    {
        create(&stage, &mut admin, &server, name, topics);
        comes_back(&stage, &server, broker, name, topics);
    }
}

fn start(stage: &Stage, server: &NameServer, version: Version, name: &str, extra: &Settings) -> JavaPeer {
    let name_servers = server.address().to_string();
    stage.broker(version, &Broker { cluster: name, name, id: 0, name_servers: &name_servers }, extra)
}

fn topic(broker: &str, number: usize) -> String {
    format!("Topic-{broker}-{number}")
}

fn create(stage: &Stage, admin: &mut Mqadmin, server: &NameServer, broker: &str, topics: usize) {
    for number in 0..topics {
        let topic = topic(broker, number);
        stage.create_topic(admin, server, broker, &topic);
        stage
            .wait_for_route(server, &topic, "known", SOON, |route| route.queues.get(broker) == Some(&(6, 4)));
    }
}

/// Kills the broker and starts it again: everything must come from its own registration then.
fn comes_back(stage: &Stage, server: &NameServer, peer: &mut JavaPeer, broker: &str, topics: usize) {
    peer.kill();
    let first = topic(broker, 0);
    stage.wait_for_route(server, &first, "gone", SOON, |route| route.brokers().is_empty());
    stage.story.timed(format_args!("{broker} starts again"), || peer.start_again()).0.expect("a broker");
    for number in 0..topics {
        let topic = topic(broker, number);
        stage.wait_for_route(server, &topic, "back", NEXT_REGISTRATION, |route| {
            route.queues.get(broker) == Some(&(6, 4))
        });
    }
}
