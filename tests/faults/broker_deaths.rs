//! Brokers that die, freeze or leave, and how soon they are off the route.

use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, ChildBroker, Client, Machine, SOON, Server, Settings, Signal, poll_until};

/// How long until `topic` has no route any more, asked again and again over one connection, and how much of that
/// may be the machine's fault.
fn time_until_gone(client: &mut Client, topic: &str) -> (Duration, Duration) {
    let (start, machine) = (Instant::now(), Machine::watch());
    let gone = poll_until(SOON, || (!client.has_route(topic)).then(|| start.elapsed()));
    let took = gone.unwrap_or_else(|| panic!("{topic} still has a route after {SOON:?}"));
    (took, machine.allowance())
}

/// Asserts that `topic` has no route any more within this time.
fn assert_gone_within(client: &mut Client, topic: &str, limit: Duration) {
    let (took, machine) = time_until_gone(client, topic);
    assert!(took <= limit + machine, "{topic} was gone after {took:?}; the machine excuses {machine:?}");
}

/// Asserts that `topic` keeps its route for `duration`.
fn assert_stays(client: &mut Client, topic: &str, duration: Duration) {
    let lost = poll_until(duration, || (!client.has_route(topic)).then_some(()));
    assert!(lost.is_none(), "{topic} lost its route");
}

#[test]
fn a_killed_broker_is_off_the_route_within_a_second() {
    ChildBroker::take_over_if_child();
    const TEST: &str = "broker_deaths::a_killed_broker_is_off_the_route_within_a_second";
    let server = Server::with_defaults();
    let _other = server.register(&Broker::new("broker-b", "10.9.0.2:10911", &["TopicB"]));
    let mut client = server.client();
    for _ in 0..3 {
        let broker = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]);
        let mut child = ChildBroker::start(TEST, server.address(), &broker, &[]);
        assert!(client.has_route("TopicA"));
        child.kill();
        assert_gone_within(&mut client, "TopicA", Duration::from_secs(1));
        assert!(client.has_route("TopicB") && client.has_route("TBW102"));
    }
    server.expect_count("broker_removals_total", "cause=\"connection_closed\"", 3);
}

#[test]
fn a_broker_whose_connection_is_reset_is_off_the_route_within_a_second() {
    let server = Server::with_defaults();
    let mut client = server.client();
    let connection = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    assert!(client.has_route("TopicA"));
    connection.reset();
    assert_gone_within(&mut client, "TopicA", Duration::from_secs(1));
}

#[test]
fn a_stopped_broker_is_gone_at_its_own_timeout_and_one_scan() {
    ChildBroker::take_over_if_child();
    const TEST: &str = "broker_deaths::a_stopped_broker_is_gone_at_its_own_timeout_and_one_scan";
    let server = Server::start(&Settings::new().with("scanNotActiveBrokerInterval", 500));
    let broker = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]).timeout_ms(4_000);
    let mut child = ChildBroker::start(TEST, server.address(), &broker, &[]);
    let mut client = server.client();
    // Its heartbeats keep it longer than its timeout.
    assert_stays(&mut client, "TopicA", Duration::from_secs(6));
    child.send(Signal::Stop);
    let (took, machine) = time_until_gone(&mut client, "TopicA");
    // The last heartbeat was up to 0.3 s earlier; then 4 s, a scan of 0.5 s, and the table's own tick of 0.5 s.
    let expected = Duration::from_millis(3_500)..=Duration::from_millis(6_500) + machine;
    assert!(expected.contains(&took), "gone after {took:?}");
    server.expect_count("broker_removals_total", "cause=\"expired\"", 1);
    // Its connection is closed, too: a broker that goes on must notice and register anew.
    server.expect_count("connections_ended_total", "reason=\"broker_expired\"", 1);
    child.send(Signal::Continue);
}

#[test]
fn a_later_connection_takes_the_broker_over_and_the_end_of_the_older_one_means_nothing() {
    let server = Server::with_defaults();
    let broker = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]);
    let mut client = server.client();
    let older = server.register(&broker);
    let newer = server.register(&broker);
    drop(older);
    assert_stays(&mut client, "TopicA", Duration::from_secs(2));
    let newest = server.register(&broker);
    newer.reset();
    assert_stays(&mut client, "TopicA", Duration::from_secs(2));
    drop(newest);
    assert_gone_within(&mut client, "TopicA", Duration::from_secs(1));
}

#[test]
fn all_brokers_of_one_connection_go_with_it() {
    let server = Server::with_defaults();
    let mut connection = server.client();
    for (name, address, topic) in [("broker-a", "10.9.0.1:1", "TopicA"), ("broker-b", "10.9.0.2:1", "TopicB")]
    {
        Broker::new(name, address, &[topic]).register(&mut connection);
    }
    let mut client = server.client();
    assert!(client.has_route("TopicA") && client.has_route("TopicB"));
    drop(connection);
    assert_gone_within(&mut client, "TopicA", Duration::from_secs(1));
    assert_gone_within(&mut client, "TopicB", Duration::from_millis(500));
    server.expect_count("broker_removals_total", "cause=\"connection_closed\"", 2);
}

#[test]
fn the_default_timeout_can_be_changed_while_brokers_are_registered() {
    let server = Server::with_defaults();
    let mut client = server.client();
    let _silent = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let own = Broker::new("broker-b", "10.9.0.2:10911", &["TopicB"]).timeout_ms(60_000);
    let _patient = server.register(&own);
    assert_stays(&mut client, "TopicA", Duration::from_secs(2));

    let start = Instant::now();
    let body = b"brokerExpireMillis=2500\nscanNotActiveBrokerInterval=100\n";
    let answer = client.call(&Request { body, ..Request::new(318) });
    assert_eq!(answer.code, 0, "{answer:?}");
    let settings = client.call(&Request::new(319)).text();
    assert!(settings.contains("brokerExpireMillis=2500"), "in force before the answer: {settings}");
    let (_, machine) = time_until_gone(&mut client, "TopicA");
    assert!(start.elapsed() < Duration::from_secs(8) + machine, "gone after {:?}", start.elapsed());
    let warned = poll_until(SOON, || {
        server.log_lines("WARN").iter().any(|line| line.contains("brokerExpireMillis")).then_some(())
    });
    assert!(warned.is_some(), "no warning: {:#?}", server.log_lines("WARN"));

    // A new one gets the new timeout, not less of it.
    let broker = Broker::new("broker-c", "10.9.0.3:10911", &["TopicC"]);
    let _new = server.register(&broker);
    let (took, machine) = time_until_gone(&mut client, "TopicC");
    let expected = Duration::from_millis(2_400)..=Duration::from_millis(5_500) + machine;
    assert!(expected.contains(&took), "gone after {took:?}");
    assert!(client.has_route("TopicB"), "its own timeout counts");
    server.expect_count("broker_removals_total", "cause=\"expired\"", 2);
}
