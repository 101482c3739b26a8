//! Connections on which nothing happens: ten thousand of clients, and those of brokers.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Beside, Broker, Client, SOON, Server, Settings, files_allow, poll_until};

const CONNECTIONS: u32 = 10_000;

#[test]
fn ten_thousand_idle_connections_cost_little_and_disturb_nobody() {
    if !files_allow("ten thousand idle connections", u64::from(CONNECTIONS) + 4_000) {
        return;
    }
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA"]);
    let beside = Beside::start(&server, "TopicA");
    let resident = server.memory().now;

    let mut idle: Vec<Client> = Vec::new();
    for number in 0..CONNECTIONS {
        // From many addresses, so that the machine does not run out of ports for them.
        let source = Ipv4Addr::from(0x7f01_0001 + number % 16);
        let mut client = Client::from(IpAddr::V4(source), server.address());
        if number % 2 == 0 {
            // Half of them have asked once: they are past the entrance.
            assert!(client.has_route("TopicA"));
        }
        idle.push(client);
    }
    let accepted = poll_until(SOON, || {
        (server.metrics().sum("connections", " ") >= f64::from(CONNECTIONS)).then_some(())
    });
    assert!(accepted.is_some(), "not all connections are open");
    let grown = server.memory().now.saturating_sub(resident);
    assert!(grown <= 64 << 20, "{CONNECTIONS} idle connections took {grown} bytes");
    assert_eq!(server.table(&["TopicA"]), before);

    // Each of them still works.
    for client in idle.iter_mut().step_by(97) {
        assert_eq!(client.call(&Request::new(106)).code, 0);
    }
    drop(idle);
    let left = poll_until(SOON + Duration::from_secs(20), || {
        (server.metrics().sum("connections", " ") <= 8.0).then_some(())
    });
    assert!(left.is_some(), "closed connections are still counted");
    beside.finish();
    server.assert_alive();
}

/// No scan comes in the time of the test: only the end of an idle connection can remove a broker.
fn server_without_scans() -> Server {
    let settings = Settings::new().with("serverChannelMaxIdleTimeSeconds", 1);
    Server::start(&settings.with("scanNotActiveBrokerInterval", 3_600_000))
}

#[test]
fn a_silent_broker_on_an_idle_connection_goes_as_expired() {
    let server = server_without_scans();
    let broker = Broker::new("broker-a", "127.0.0.1:10911", &["TopicA"]).timeout_ms(1_500);
    let mut silent = server.register(&broker);
    assert!(silent.is_closed_within(SOON), "its connection outlives its lease");
    server.expect_count("broker_removals_total", "cause=\"expired\"", 1);
    server.expect_count("connections_ended_total", "reason=\"broker_expired\"", 1);
    let metrics = server.metrics();
    assert_eq!(metrics.sum("broker_removals_total", "cause=\"connection_closed\""), 0.0);
}

#[test]
fn a_lease_above_the_idle_time_keeps_its_connection_and_can_be_changed() {
    let server = server_without_scans();
    let mut silent = server.register(&Broker::new("broker-a", "127.0.0.1:10911", &["TopicA"]));
    assert_eq!(
        server.client().call(&Request { body: b"brokerExpireMillis=300000", ..Request::new(318) }).code,
        0
    );
    // Clients that came later are closed as idle: the broker's connection was idle for longer by then.
    for _ in 0..3 {
        let mut idle = server.client();
        assert!(idle.has_route("TopicA"));
        assert!(idle.is_closed_within(SOON));
    }
    assert!(silent.has_route("TopicA"), "the connection of a broker with a lease was closed");

    assert_eq!(
        server.client().call(&Request { body: b"brokerExpireMillis=1000", ..Request::new(318) }).code,
        0
    );
    assert!(silent.is_closed_within(SOON));
    server.expect_count("broker_removals_total", "cause=\"expired\"", 1);
}
