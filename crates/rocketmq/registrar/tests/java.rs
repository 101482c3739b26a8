//! A registrar with the name servers of the original.
#![allow(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]

mod support;

use std::time::{Duration, Instant};

use support::{BROKER, Client, LONG, Proxy, options, until};
use waypost_rocketmq_registrar::{
    ActingMaster, Beat, FarewellOutcome, Form, Phase, Quorum, Registrar, Role, Timing, Topic,
};
use waypost_rocketmq_wire::code::request;
use waypost_testkit::peers::{JavaPeer, Mqadmin, Settings, Signal, Version, Workshop, tools_present};

/// A JVM on a busy machine takes its time.
const JVM: Duration = Duration::from_secs(60);

const NAMES: [(&str, &str); 4] =
    [("clusterName", "TestCluster"), ("brokerName", "broker-a"), ("brokerAddr", BROKER), ("brokerId", "0")];

fn name_server(version: Version) -> Option<JavaPeer> {
    if !tools_present(&format!("the registrar with the name server {version}"), &["java", "mvn"]) {
        return None;
    }
    let workshop = Workshop::open().expect("a workshop");
    Some(JavaPeer::namesrv(&workshop, version, &Settings::new()).expect("a name server"))
}

fn forms() -> [(&'static str, Form, Timing); 5] {
    let beats = |with| Timing {
        acting_master: Some(ActingMaster { with, ..ActingMaster::default() }),
        ..Timing::default()
    };
    [
        ("plain", Form::default(), beats(Beat::DataVersion)),
        ("split", Form { split: Some(2), ..Form::default() }, Timing::default()),
        ("deflated", Form { compressed: true, ..Form::default() }, Timing::default()),
        ("single topics", Form { single_topic: true, ..Form::default() }, beats(Beat::Heartbeat)),
        (
            "one topic",
            Form { own_topics: false, ..Form::default() },
            Timing { force: false, ..Timing::default() },
        ),
    ]
}

/// Every form of registration is taken, changes arrive, nothing is refused, and the goodbye is heard.
async fn take_every_form(server: &JavaPeer) {
    let client = Client::connect(server.address()).await;
    for (name, form, timing) in forms() {
        let mut options = options(&[server.address()]);
        (options.form, options.timing) = (form, timing);
        if name != "one topic" {
            options.topics.extend((0..7).map(|index| Topic::new(&format!("t{index}"), 3)));
        }
        let topics = options.topics.clone();
        let registrar = Registrar::start(options).expect("a registrar");
        registrar.wait_registered(Quorum::All, LONG).await.expect("it registers");
        registrar.set_topic(Topic::new("later", 5)).expect("a topic");
        let route = client.wait_for_route("later").await;
        assert_eq!(route.queue_datas[0].write_queue_nums, 5, "{name}");
        for topic in topics {
            assert!(client.route(&topic.name).await.is_some(), "{} with {name}", topic.name);
        }
        // The question after the registration finds nothing lost.
        let asked = registrar.servers()[0].accepted.expect("it accepted").age;
        until("it was asked", async || registrar.servers()[0].answered.expect("an answer") < asked).await;
        let state = registrar.servers().remove(0);
        // 4.x cannot read the texts of topics in the deflated form of 5.x; it was given plain JSON then.
        let refuses = name == "deflated" && server.version() == Version::V4;
        assert!(state.failure.is_some() == refuses && state.current, "{name}: {state:?}");
        let farewells = registrar.close(LONG).await;
        assert_eq!(farewells[0].outcome, FarewellOutcome::Unregistered, "{name}");
        until("the broker is gone", async || client.route("later").await.is_none()).await;
    }
}

/// It is complete again soon after it was killed, after it forgot the broker, and after it stood still.
async fn survive(server: &mut JavaPeer) {
    let registrar = Registrar::start(options(&[server.address()])).expect("a registrar");
    registrar.wait_registered(Quorum::All, LONG).await.expect("it registers");
    server.kill();
    until("the end is seen", async || registrar.servers()[0].phase == Phase::Connecting).await;
    server.start_again().expect("it starts again");
    let client = Client::connect(server.address()).await;
    let started = Instant::now();
    client.wait_for_route("first").await;
    println!("{} killed: complete {:?} after it answers", server.version(), started.elapsed());
    // Far below a period of registration.
    assert!(started.elapsed() <= Duration::from_secs(5), "{:?}", started.elapsed());

    assert!(client.ask(request::UNREGISTER_BROKER, &NAMES).await.is_success());
    until("it forgets", async || client.route("first").await.is_none()).await;
    let started = Instant::now();
    client.wait_for_route("first").await;
    println!("{} forgot: complete after {:?}", server.version(), started.elapsed());

    server.send(Signal::Stop);
    registrar.set_topic(Topic::new("while-stopped", 1)).expect("a topic");
    until("it is found silent", async || registrar.servers()[0].phase == Phase::Silent).await;
    server.send(Signal::Continue);
    let started = Instant::now();
    client.wait_for_route("while-stopped").await;
    println!("{} stopped: complete {:?} after it goes on", server.version(), started.elapsed());
    assert!(client.route("first").await.is_some());
    registrar.close(LONG).await;
}

/// A connection that carries nothing any more is replaced, and the broker stays on the routes.
async fn change_connections(server: &JavaPeer) {
    let proxy = Proxy::start(server.address()).await;
    let registrar = Registrar::start(options(&[proxy.address])).expect("a registrar");
    registrar.wait_registered(Quorum::All, LONG).await.expect("it registers");
    let client = Client::connect(server.address()).await;
    proxy.deaden();
    registrar.set_topic(Topic::new("after", 1)).expect("a topic");
    until("the topic arrives over another connection", async || {
        assert!(client.route("first").await.is_some(), "the broker left the routes");
        client.route("after").await.is_some()
    })
    .await;
    registrar.close(LONG).await;
}

/// A slave learns who the master is.
async fn learn_the_master(server: &JavaPeer) {
    let master = Registrar::start(options(&[server.address()])).expect("a registrar");
    master.wait_registered(Quorum::All, LONG).await.expect("it registers");
    let mut slave = options(&[server.address()]);
    slave.identity.address = "127.0.0.1:20911".parse().expect("an address");
    slave.role = Role::Slave(1);
    let slave = Registrar::start(slave).expect("a registrar");
    until("the master is known", async || slave.master().is_some()).await;
    let found = slave.master().expect("a master");
    assert_eq!((found.address.as_str(), found.ha_address.as_deref()), (BROKER, Some("127.0.0.1:10912")));
    slave.close(LONG).await;
    master.close(LONG).await;
}

async fn all(version: Version) {
    let Some(mut server) = name_server(version) else { return };
    take_every_form(&server).await;
    change_connections(&server).await;
    learn_the_master(&server).await;
    survive(&mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_of_5_5_0_is_served_like_our_own() {
    all(Version::V5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_of_4_9_7_is_served_like_our_own() {
    all(Version::V4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mqadmin_sees_the_broker_and_its_topics() {
    if !tools_present("the registrar seen by mqadmin", &["java", "javac", "mvn"]) {
        return;
    }
    let server = support::Server::start();
    let registrar = support::start(&[server.address]);
    registrar.wait_registered(Quorum::All, LONG).await.expect("it registers");
    let address = server.address.to_string();
    let seen = tokio::task::spawn_blocking(move || {
        let workshop = Workshop::open().expect("a workshop");
        Mqadmin::batch(&workshop, Version::V5, &[&["topicRoute", "-n", &address, "-t", "first"]])
            .expect("mqadmin")
    });
    let seen = tokio::time::timeout(JVM * 2, seen).await.expect("in time").expect("it ran");
    let text = &seen[0].text;
    for part in ["broker-a", BROKER, "TestCluster", "\"writeQueueNums\":4"] {
        assert!(text.replace(' ', "").contains(part), "{part} in {text}");
    }
    registrar.close(LONG).await;
}
