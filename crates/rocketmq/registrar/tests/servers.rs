//! A registrar with real name servers, some of which misbehave.
#![allow(clippy::disallowed_methods, reason = "tests wait for real servers in real time")]

mod support;

use std::time::{Duration, Instant};

use support::{BROKER, Hung, LONG, Proxy, Server, options, start, until};
use waypost_rocketmq_registrar::{
    Drill, FarewellOutcome, Form, IdentityError, Phase, Quorum, Registrar, Role, StartError, Topic,
};
use waypost_rocketmq_wire::body::DataVersion;
use waypost_rocketmq_wire::code::request;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_is_on_every_servers_routes_and_leaves_them_at_the_end() -> Outcome {
    let servers = [Server::start(), Server::start(), Server::start()];
    let registrar = start(&servers.each_ref().map(|server| server.address));
    let states = registrar.wait_registered(Quorum::All, LONG).await?;
    assert_eq!(states.len(), 3);
    for state in &states {
        let accepted = state.accepted.expect("it accepted");
        // Its own two topics and the first one.
        assert_eq!((accepted.version, accepted.topics), (registrar.data_version(), 3));
    }
    for server in &servers {
        let client = server.client().await;
        let route = client.route("first").await.expect("a route");
        assert_eq!(route.broker_datas[0].broker_addrs.get(&0).map(String::as_str), Some(BROKER));
        assert!(client.route("TestCluster").await.is_some() && client.route("broker-a").await.is_some());
    }
    let farewells = registrar.close(LONG).await;
    assert_eq!(farewells.len(), 3);
    assert!(
        farewells.iter().all(|farewell| farewell.outcome == FarewellOutcome::Unregistered),
        "{farewells:?}"
    );
    for server in &servers {
        let client = server.client().await;
        until("the route is gone", async || client.route("first").await.is_none()).await;
    }
    assert!(registrar.close(LONG).await.is_empty(), "a second time there is nobody to tell");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_delays_neither_the_caller_nor_the_others() -> Outcome {
    let (one, other, hung) = (Server::start(), Server::start(), Hung::start().await);
    let registrar = start(&[hung.address, one.address, other.address]);
    let clients = [one.client().await, other.client().await];
    for client in &clients {
        client.wait_for_route("first").await;
    }
    // Once the registrar knows that it hangs, and while a challenger waits.
    let is_silent = || registrar.servers().iter().any(|state| state.phase == Phase::Silent);
    until("the hung server is found silent", async || is_silent()).await;
    let mut best = (LONG, LONG);
    // On a busy machine a single measurement may be off.
    for attempt in 0..5 {
        let topic = format!("created-{attempt}");
        let started = Instant::now();
        registrar.set_topic(Topic::new(&topic, 8))?;
        let returned = started.elapsed();
        for client in &clients {
            client.wait_for_route(&topic).await;
        }
        best = best.min((started.elapsed(), returned));
    }
    let (known, returned) = best;
    println!("the call returned after {returned:?}, the other servers knew the topic after {known:?}");
    assert!(returned <= Duration::from_millis(50), "the call took {returned:?}");
    assert!(known <= Duration::from_millis(200), "the other servers knew after {known:?}");

    let started = Instant::now();
    let farewells = registrar.close(Duration::from_secs(1)).await;
    assert!(started.elapsed() < Duration::from_secs(5), "the goodbye took {:?}", started.elapsed());
    let of =
        |address| &farewells.iter().find(|farewell| farewell.server.address == address).expect("one").outcome;
    assert_eq!(*of(one.address), FarewellOutcome::Unregistered);
    assert_eq!(*of(other.address), FarewellOutcome::Unregistered);
    assert_eq!(*of(hung.address), FarewellOutcome::NoAnswer);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_is_complete_within_a_second() -> Outcome {
    let (mut server, other) = (Server::start(), Server::start());
    let registrar = start(&[server.address, other.address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    let mut best = LONG;
    for _ in 0..3 {
        server.stop().await;
        let left = |states: &[_]| {
            states
                .iter()
                .any(|state: &waypost_rocketmq_registrar::ServerState| state.phase == Phase::Connecting)
        };
        until("the end of the connection is seen", async || left(&registrar.servers())).await;
        // Long enough for the pauses between attempts to have grown to what they can.
        until("attempts fail", async || registrar.servers().iter().any(|state| state.failures > 5)).await;
        registrar.set_topic(Topic::new("meanwhile", 2))?;
        server.start_again();
        let client = server.client().await;
        let started = Instant::now();
        client.wait_for_route("meanwhile").await;
        client.wait_for_route("first").await;
        best = best.min(started.elapsed());
    }
    println!("complete {best:?} after the server was back");
    assert!(best <= Duration::from_secs(1), "complete after {best:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgot_the_broker_gets_everything_again() -> Outcome {
    let server = Server::start();
    let registrar = start(&[server.address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    let client = server.client().await;
    let names = [
        ("clusterName", "TestCluster"),
        ("brokerName", "broker-a"),
        ("brokerAddr", BROKER),
        ("brokerId", "0"),
    ];
    assert!(client.ask(request::UNREGISTER_BROKER, &names).await.is_success());
    let gone = until("the route is gone", async || client.route("first").await.is_none()).await;
    let back = until("the route is back", async || client.route("first").await.is_some()).await;
    println!("gone after {gone:?}, back after {back:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_added_get_everything_and_removed_ones_a_goodbye() -> Outcome {
    let servers = [Server::start(), Server::start(), Server::start()];
    let list = |servers: &[&Server]| {
        let texts: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
        waypost_rocketmq_remoting::list::read(&texts.join(";")).servers
    };
    let registrar = start(&[servers[0].address, servers[1].address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    let third = servers[2].client().await;
    let started = Instant::now();
    registrar.replace_servers(list(&[&servers[0], &servers[1], &servers[2]]))?;
    third.wait_for_route("first").await;
    println!("a server that was added is complete after {:?}", started.elapsed());
    registrar.replace_servers(list(&[&servers[2], &servers[1]]))?;
    let first = servers[0].client().await;
    until("the removed server forgets the broker", async || first.route("first").await.is_none()).await;
    until("it is no longer listed", async || registrar.servers().len() == 2).await;
    assert!(servers[1].client().await.route("first").await.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_connection_is_replaced_without_leaving_the_routes() -> Outcome {
    let server = Server::start();
    let proxy = Proxy::start(server.address).await;
    let registrar = start(&[proxy.address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    let client = server.client().await;
    proxy.deaden();
    registrar.set_topic(Topic::new("after", 1))?;
    until("the topic arrives over another connection", async || {
        assert!(client.route("first").await.is_some(), "the broker left the routes");
        client.route("after").await.is_some()
    })
    .await;
    assert!(proxy.accepted() >= 2);
    registrar.wait_registered(Quorum::All, LONG).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_for_seconds_keeps_the_broker_on_its_first_connection() -> Outcome {
    let server = Server::start();
    let proxy = Proxy::start(server.address).await;
    let registrar = start(&[proxy.address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    let client = server.client().await;
    proxy.hold(true);
    registrar.set_topic(Topic::new("after", 1))?;
    until("it is found silent", async || {
        assert!(client.route("first").await.is_some(), "the broker left the routes");
        registrar.servers()[0].phase == Phase::Silent
    })
    .await;
    proxy.hold(false);
    until("the topic arrives", async || {
        assert!(client.route("first").await.is_some(), "the broker left the routes");
        client.route("after").await.is_some()
    })
    .await;
    registrar.wait_registered(Quorum::All, LONG).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_registered_before_the_role_is_known() -> Outcome {
    let server = Server::start();
    let mut undecided = options(&[server.address]);
    undecided.role = Role::Undecided;
    let registrar = Registrar::start(undecided)?;
    let client = server.client().await;
    until("the lease stands by", async || {
        registrar.servers().first().is_some_and(|state| state.phase == Phase::Absent)
    })
    .await;
    assert!(client.route("first").await.is_none());
    registrar.set_role(Role::Master)?;
    registrar.wait_registered(Quorum::All, LONG).await?;
    assert!(client.route("first").await.is_some());
    registrar.set_role(Role::Undecided)?;
    until("the role is given up", async || client.route("first").await.is_none()).await;
    registrar.set_role(Role::Slave(1))?;
    registrar.wait_registered(Quorum::All, LONG).await?;
    let group = client.ask(request::GET_BROKER_CLUSTER_INFO, &[]).await;
    let text = String::from_utf8_lossy(&group.body).into_owned();
    assert!(text.contains(&format!("{{1:\"{BROKER}\"}}")), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_learns_the_master_and_a_server_without_it_does_not_override() -> Outcome {
    let (knows, other) = (Server::start(), Server::start());
    let master = start(&[knows.address]);
    master.wait_registered(Quorum::All, LONG).await?;
    let mut slave = options(&[knows.address, other.address]);
    slave.identity.address = "127.0.0.1:20911".parse()?;
    slave.role = Role::Slave(1);
    let slave = Registrar::start(slave)?;
    let mut watch = slave.watch_master();
    let states = slave.wait_registered(Quorum::All, LONG).await?;
    until("the master is known", async || watch.current().is_some()).await;
    let found = slave.master().expect("a master");
    assert_eq!((found.address.as_str(), found.ha_address.as_deref()), (BROKER, Some("127.0.0.1:10912")));
    assert_eq!(states.iter().filter(|state| state.master.is_some()).count(), 1, "only one server knows it");
    assert!(master.master().is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_of_registration_gives_the_same_routes() -> Outcome {
    let forms = [
        Form { split: Some(2), ..Form::default() },
        Form { compressed: true, ..Form::default() },
        Form { split: Some(3), compressed: true, incremental: false, ..Form::default() },
        Form { single_topic: true, own_topics: false, ..Form::default() },
    ];
    for form in forms {
        let server = Server::start();
        let mut options = options(&[server.address]);
        options.form = form;
        options.topics = (0..7).map(|index| Topic::new(&format!("t{index}"), 3)).collect();
        let registrar = Registrar::start(options)?;
        registrar.wait_registered(Quorum::All, LONG).await?;
        registrar.set_topic(Topic::new("later", 5))?;
        let client = server.client().await;
        let route = client.wait_for_route("later").await;
        assert_eq!(route.queue_datas[0].write_queue_nums, 5, "{form:?}");
        for index in 0..7 {
            assert!(client.route(&format!("t{index}")).await.is_some(), "t{index} with {form:?}");
        }
        registrar.wait_registered(Quorum::All, LONG).await?;
        let failures: Vec<_> = registrar.servers().into_iter().filter_map(|state| state.failure).collect();
        assert!(failures.is_empty(), "{failures:?} with {form:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_a_single_topic_is_taken_by_a_server_that_does_not_know_it() -> Outcome {
    let server = Server::start();
    let mut options = options(&[server.address]);
    options.form.own_topics = false;
    let registrar = Registrar::start(options)?;
    let states = registrar.wait_registered(Quorum::All, LONG).await?;
    assert!(states[0].failure.is_none(), "{states:?}");
    assert!(server.client().await.route("first").await.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_configuration_is_returned_and_marks_the_topic() -> Outcome {
    let server = Server::start();
    let client = server.client().await;
    let pair = [("namespace", "ORDER_TOPIC_CONFIG"), ("key", "first"), ("value", "broker-a:4")];
    assert!(client.ask(request::PUT_KV_CONFIG, &pair).await.is_success());
    let registrar = start(&[server.address]);
    until("the topic is marked", async || {
        registrar.topics().iter().any(|topic| topic.name == "first" && topic.order)
    })
    .await;
    assert_eq!(registrar.order_topics().get("first").map(String::as_str), Some("broker-a:4"));
    registrar.wait_registered(Quorum::All, LONG).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_registrar_is_silent_and_complete_again_after_it_resumes() -> Outcome {
    // A lease that a paused broker loses within seconds.
    let server = Server::with(&[("brokerExpireMillis", "3000"), ("scanNotActiveBrokerInterval", "200")]);
    let mut options = options(&[server.address]);
    options.timing.check = Duration::from_millis(500);
    let registrar = Registrar::start(options)?;
    registrar.wait_registered(Quorum::All, LONG).await?;
    let client = server.client().await;
    registrar.pause();
    until("the lease expires", async || client.route("first").await.is_none()).await;
    registrar.resume();
    let back = until("the route is back", async || client.route("first").await.is_some()).await;
    println!("complete {back:?} after resuming");
    // Far below a period of registration.
    assert!(back <= Duration::from_secs(5), "{back:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lossy_and_slow_registrar_is_registered_in_the_end() -> Outcome {
    let server = Server::start();
    let mut options = options(&[server.address]);
    options.seed = Some(7);
    let registrar = Registrar::start(options)?;
    registrar.set_drill(Drill { loss: 0.3, delay: Duration::from_millis(100), ..Drill::default() });
    registrar.set_topic(Topic::new("through", 1))?;
    server.client().await.wait_for_route("through").await;
    registrar.set_drill(Drill::default());
    registrar.wait_registered(Quorum::All, LONG).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_registrar_closes_its_connections() -> Outcome {
    let server = Server::start();
    let registrar = start(&[server.address]);
    registrar.wait_registered(Quorum::All, LONG).await?;
    drop(registrar);
    let client = server.client().await;
    until("the server saw the end of the connection", async || client.route("first").await.is_none()).await;
    Ok(())
}

#[tokio::test]
async fn waiting_ends_at_its_limit_and_says_how_the_servers_stand() {
    let hung = Hung::start().await;
    let registrar = start(&[hung.address]);
    let error =
        registrar.wait_registered(Quorum::One, Duration::from_millis(200)).await.expect_err("it hangs");
    let text = error.to_string();
    assert!(text.contains(&hung.address.to_string()) && text.contains("registering"), "{text}");
}

#[tokio::test]
async fn a_hung_server_is_not_flooded_with_connections() {
    let hung = Hung::start().await;
    let registrar = start(&[hung.address]);
    until("it is found silent", async || {
        registrar.servers().first().is_some_and(|state| state.phase == Phase::Silent)
    })
    .await;
    until("a challenger comes", async || hung.accepted.load(std::sync::atomic::Ordering::Relaxed) == 2).await;
    let text = registrar.servers()[0].to_string();
    assert!(text.contains("has not answered a registration for 3s"), "{text}");
}

#[test]
fn an_address_that_nobody_else_can_reach_is_refused_unless_it_is_allowed() {
    let remote = std::net::SocketAddr::from(([192, 0, 2, 1], 9876));
    let refused = Registrar::start(options(&[remote])).expect_err("it is refused");
    assert!(matches!(refused, StartError::Identity(IdentityError::Unreachable { .. })), "{refused}");
    let allowed = waypost_rocketmq_registrar::Options { allow_unreachable: true, ..options(&[remote]) };
    assert!(Registrar::start(allowed).is_ok());
    let local = start(&[std::net::SocketAddr::from(([127, 0, 0, 1], 1))]);
    let list = waypost_rocketmq_remoting::list::read("192.0.2.1:9876").servers;
    assert!(local.replace_servers(list).is_err());
    assert_ne!(local.data_version(), DataVersion::default());
}
