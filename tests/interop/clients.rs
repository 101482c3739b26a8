//! Clients in several languages keep working while name servers die.

use std::time::Duration;

use waypost_testkit::peers::{Broker, Client, ClientKind, NameServer, Settings, Version};

use crate::stage::{JAVA_TOOLS, NEXT_REGISTRATION, SOON, Stage};

/// Java twice, then Go and C++.
const KINDS: [ClientKind; 4] =
    [ClientKind::Java(Version::V5), ClientKind::Java(Version::V4), ClientKind::Go, ClientKind::Cpp];

/// Five phases of 200 make the 1,000 messages of each client.
const PHASES: [Event; 5] = [Event::Kill(0), Event::Start(0), Event::Kill(1), Event::Start(1), Event::Nothing];
const PER_PHASE: usize = 200;

/// The second half of a phase takes at least two seconds, in which the event happens.
const PAUSE: Duration = Duration::from_millis(20);

/// What happens in the middle of a phase, to which server.
#[derive(Debug, Clone, Copy)]
enum Event {
    Kill(usize),
    Start(usize),
    Nothing,
}

#[test]
fn clients_lose_nothing_while_name_servers_die() {
    let text = "
        Three name servers in one list; one broker 5.5.0; a Java 5.5.0, a Java 4.9.7, a Go and a C++ client, each a
        producer and a consumer. In each of five phases every client sends 200 messages to a topic that it has not
        sent to before, so that it must ask for the route at that time. While the second half is being sent:
        1. server 1 is killed with -9; 2. server 1 starts again, empty; 3. server 2 is killed with -9;
        4. server 2 starts again, empty; 5. nothing. After a start the next phase waits until that server is whole.
        No send fails, and each consumer gets each of its 1,000 messages.
    ";
    let tools: Vec<&str> = JAVA_TOOLS.iter().chain(&["go", "python3"]).copied().collect();
    let Some(stage) = Stage::open("clients", &tools, text) else { return };
    let mut servers: Vec<NameServer> = (0..3).map(|_| stage.name_server(&Settings::new())).collect();
    let addresses: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let list = addresses.join(";");
    let identity = Broker { cluster: "DefaultCluster", name: "broker-a", id: 0, name_servers: &list };
    // A restarted server is whole after one period: 10 s, the shortest that brokers take.
    let often = Settings::new().with("registerNameServerPeriod", 10_000);
    let _broker = stage.broker(Version::V5, &identity, &often);
    for server in &servers {
        stage.wait_for_brokers(server, &["broker-a"], SOON);
    }
    create_topics(&stage, &servers);

    let mut clients: Vec<Client> = KINDS
        .into_iter()
        .map(|kind| {
            let topics: Vec<String> = (0..PHASES.len()).map(|phase| topic(kind, phase)).collect();
            let what = format!("{kind} is ready");
            stage
                .story
                .timed(what, || Client::start(&stage.workshop, kind, &list, kind.slug(), &topics))
                .0
                .expect("a client")
        })
        .collect();

    for (phase, event) in PHASES.into_iter().enumerate() {
        stage.story.step(format_args!("---- phase {}", phase + 1));
        begin_half(&mut clients, phase);
        end_half(&stage, &mut clients);
        begin_half(&mut clients, phase);
        match event {
            Event::Kill(index) => {
                servers[index].kill();
                stage.story.step(format_args!("server {} is killed with -9", index + 1));
            }
            Event::Start(index) => come_back(&stage, &mut servers[index]),
            Event::Nothing => {}
        }
        end_half(&stage, &mut clients);
    }

    let expected = PER_PHASE * PHASES.len();
    for client in &mut clients {
        let received = client.wait_for_received(expected, Duration::from_secs(90));
        stage.story.step(format_args!(
            "{}: {} of {expected} messages received, {} repeated",
            client.kind(),
            received.distinct,
            received.repeated
        ));
        assert_eq!(received.distinct, expected, "{} lost messages", client.kind());
    }
}

fn topic(kind: ClientKind, phase: usize) -> String {
    format!("Clients-{}-{phase}", kind.slug())
}

fn create_topics(stage: &Stage, servers: &[NameServer]) {
    let mut admin = stage.mqadmin(Version::V5);
    for kind in KINDS {
        for phase in 0..PHASES.len() {
            stage.create_topic(&mut admin, &servers[0], "DefaultCluster", &topic(kind, phase));
        }
    }
    for server in servers {
        let last = topic(KINDS[KINDS.len() - 1], PHASES.len() - 1);
        stage.wait_for_route(server, &last, "known", SOON, |route| !route.queues.is_empty());
    }
}

/// All clients send at the same time.
fn begin_half(clients: &mut [Client], phase: usize) {
    for client in clients {
        let topic = topic(client.kind(), phase);
        client.begin_sending(&topic, PER_PHASE / 2, PAUSE);
    }
}

fn end_half(stage: &Stage, clients: &mut [Client]) {
    for client in clients {
        let sent = client.sent(Duration::from_secs(90));
        stage.story.step(format_args!("{}: {} sent", client.kind(), sent.stored));
        assert_eq!(sent.failures, Vec::<String>::new(), "{} failed to send", client.kind());
        assert_eq!(sent.stored, PER_PHASE / 2);
    }
}

/// Starts a killed server again and waits until the broker has registered there with its topics. Meanwhile the
/// clients' periodic queries may find it empty, which must not harm them.
fn come_back(stage: &Stage, server: &mut NameServer) {
    stage.story.timed("started again", || server.start_again()).0.expect("a name server");
    let last = topic(KINDS[KINDS.len() - 1], PHASES.len() - 1);
    stage.wait_for_route(server, &last, "known again", NEXT_REGISTRATION, |route| !route.queues.is_empty());
}
