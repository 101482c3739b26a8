//! The client and the broker library among Java name servers and Java brokers.

use std::process::Command;
use std::time::{Duration, Instant};

use waypost_net::address::AddressList;
use waypost_rocketmq_discovery::client::{Discovery, Options};
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_registrar::{Identity, Options as RegistrarOptions, Quorum, Registrar, Role, Topic};
use waypost_rocketmq_remoting::source::Source;
use waypost_testkit::peers::{
    Broker, Client, ClientKind, NameServer, Process, Program, Scratch, Settings, Signal, Version, poll_until,
};

use crate::stage::{JAVA_TOOLS, SOON, Stage};

const LIMIT: Duration = Duration::from_secs(3);

fn java_servers(stage: &Stage, versions: &[Version]) -> Vec<NameServer> {
    let start = |version: &Version| {
        let what = format!("Java NameServer {version} is ready");
        let start = || NameServer::start(&stage.workshop, &Program::Java(*version), &Settings::new());
        stage.story.timed(what, start).0.expect("a name server")
    };
    versions.iter().map(start).collect()
}

fn list(servers: &[NameServer]) -> AddressList {
    servers.iter().map(|server| server.address().into()).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn discovery_follows_java_brokers_over_java_name_servers() {
    let text = "
        Java NameServers 5.5.0, 4.9.7 and 5.5.0; Java brokers a and b 5.5.0. Discovery finds the default topic on both.
        One name server is stopped with SIGSTOP: twenty fresh clients find the topic within 700 ms each.
        Broker a is killed with -9 and one failure is reported: the next choices avoid it, and its route goes
        within 1.5 s of the moment when a name server has dropped it.
    ";
    let Some(stage) = Stage::open("discovery", JAVA_TOOLS, text) else { return };
    let mut servers = java_servers(&stage, &[Version::V5, Version::V4, Version::V5]);
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let names = names.join(";");
    let broker = |name| {
        let identity = Broker { cluster: "DefaultCluster", name, id: 0, name_servers: &names };
        stage.broker(Version::V5, &identity, &Settings::new())
    };
    let mut a = broker("broker-a");
    let _b = broker("broker-b");
    for server in &servers {
        stage.wait_for_brokers(server, &["broker-a", "broker-b"], SOON);
    }
    let runtime = runtime();
    let source = || Source::List(list(&servers));
    let discovery = {
        let _entered = runtime.enter();
        Discovery::start(Options::new(source())).expect("it starts")
    };
    let route = runtime.block_on(discovery.route("TBW102", LIMIT)).expect("a route");
    let group = route.group("broker-a").expect("both have the default topic");
    assert_eq!(group.broker_addrs[&0], a.address().to_string());

    let fresh: Vec<Options> = (0..20).map(|_| Options::new(source())).collect();
    servers[0].stand_still();
    let mut slowest = Duration::ZERO;
    for options in fresh {
        let client = {
            let _entered = runtime.enter();
            Discovery::start(options).expect("it starts")
        };
        let began = Instant::now();
        runtime.block_on(client.route("TBW102", LIMIT)).expect("a route");
        slowest = slowest.max(began.elapsed());
    }
    stage.story.step(format_args!("one stopped: twenty fresh clients, slowest {} ms", slowest.as_millis()));
    assert!(slowest < Duration::from_millis(700), "{slowest:?}");
    servers[0].send(Signal::Continue);

    let _entered = runtime.enter();
    let mut chooser = discovery.chooser("TBW102");
    a.kill();
    let server_knows = poll_until(SOON, || {
        let brokers = servers[1].probe().brokers()?;
        (!brokers.contains_key("broker-a")).then(Instant::now)
    });
    discovery.report("TBW102", "broker-a", Outcome::TransportError);
    for _ in 0..20 {
        let choice = chooser.choose(None).expect("broker-b is there");
        assert_eq!(&*choice.queue.broker, "broker-b");
    }
    let renewed = poll_until(SOON, || {
        let route = discovery.known("TBW102")?.route?;
        route.group("broker-a").is_none().then(Instant::now)
    });
    let took = renewed.expect("renewed").saturating_duration_since(server_knows.expect("dropped"));
    stage.story.step(format_args!("route renewed {} ms after a server knew", took.as_millis()));
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    runtime.block_on(discovery.close(LIMIT));
}

#[test]
fn java_name_servers_and_mqadmin_know_a_registrar() {
    let text = "
        Java NameServers 5.5.0 and 4.9.7; a registrar announces two topics. Both servers and mqadmin 5.5.0 know the
        broker. The 5.5.0 server is killed with -9 and started again, empty: it is complete again. A third topic
        comes: both know it. The registrar closes: both have dropped the broker.
    ";
    let Some(stage) = Stage::open("registrar", JAVA_TOOLS, text) else { return };
    let mut servers = java_servers(&stage, &[Version::V5, Version::V4]);
    let identity = Identity::new("lib-cluster", "lib-broker", "127.0.0.1:20911".parse().expect("an address"));
    let registrar = Registrar::start(RegistrarOptions {
        role: Role::Master,
        topics: vec![Topic::new("One", 4), Topic::new("Two", 8)],
        ..RegistrarOptions::new(identity, Source::List(list(&servers)))
    })
    .expect("it starts");
    let runtime = runtime();
    let states = runtime.block_on(registrar.wait_registered(Quorum::All, SOON)).expect("registered");
    assert_eq!(states.len(), 2);
    for server in &servers {
        let route = server.probe().route("Two").expect("known");
        assert_eq!(route.addresses["lib-broker"][&0], "127.0.0.1:20911");
        assert_eq!(route.queues["lib-broker"], (6, 8));
    }
    let mut admin = stage.mqadmin(Version::V5);
    for server in &servers {
        let address = server.address().to_string();
        let output = admin.run(&["topicRoute", "-n", &address, "-t", "Two"]);
        assert!(output.text.contains("127.0.0.1:20911"), "{}", output.text);
        let output = admin.run(&["topicClusterList", "-n", &address, "-t", "Two"]);
        assert!(output.text.contains("lib-cluster"), "{}", output.text);
    }

    servers[0].kill();
    servers[0].start_again().expect("it starts again");
    let answers = Instant::now();
    let (_, _) = stage.wait_for_route(&servers[0], "One", "complete after the restart", SOON, |route| {
        !route.queues.is_empty()
    });
    assert!(answers.elapsed() < Duration::from_secs(5), "{:?}", answers.elapsed());

    let began = Instant::now();
    registrar.set_topic(Topic::new("Three", 2)).expect("a topic");
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    for server in &servers {
        stage.wait_for_route(server, "Three", "the new topic is known", SOON, |route| {
            !route.queues.is_empty()
        });
    }
    let farewells = runtime.block_on(registrar.close(LIMIT));
    assert_eq!(farewells.len(), 2);
    for server in &servers {
        stage.wait_for_brokers(server, &[], SOON);
    }
}

#[test]
fn java_clients_and_mqadmin_take_simulated_brokers_for_brokers() {
    let text = "
        Two name servers; `waypost register` runs two simulated brokers of a drill file. mqadmin 5.5.0 lists both. A
        Java client 5.5.0 and one 4.9.7 send 100 messages each to a topic on both: none fails.
    ";
    let Some(stage) = Stage::open("simulated", JAVA_TOOLS, text) else { return };
    let servers: Vec<NameServer> = (0..2).map(|_| stage.name_server(&Settings::new())).collect();
    let names: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let names = names.join(";");
    let home = Scratch::new("simulated");
    let file = home.path().join("brokers.toml");
    let broker = |name: &str| {
        format!(
            "[[broker]]\ncluster = \"DrillCluster\"\nname = \"{name}\"\ntopics = [{{ name = \"orders\", queues = 4 }}]\n"
        )
    };
    std::fs::write(&file, broker("drill-a") + &broker("drill-b")).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.args(["register", "-n", &names, "--from"]).arg(&file);
    let _brokers = Process::start("waypost register", &mut command, &home.path().join("register.log"));
    for server in &servers {
        stage.wait_for_brokers(server, &["drill-a", "drill-b"], SOON);
    }
    let mut admin = stage.mqadmin(Version::V5);
    let output = admin.run(&["topicRoute", "-n", &names, "-t", "orders"]);
    assert!(output.text.contains("drill-a") && output.text.contains("drill-b"), "{}", output.text);
    for version in [Version::V5, Version::V4] {
        let kind = ClientKind::Java(version);
        let topics = ["orders".to_owned()];
        let mut client = Client::start(&stage.workshop, kind, &names, "drill", &topics).expect("a client");
        client.begin_sending("orders", 100, Duration::ZERO);
        let sent = client.sent(SOON);
        stage.story.step(format_args!("{kind}: {} of 100 messages taken", sent.stored));
        assert_eq!((sent.stored, sent.failures), (100, Vec::new()));
    }
}
