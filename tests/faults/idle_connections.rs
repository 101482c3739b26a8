//! Ten thousand connections on which nothing happens.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Beside, Broker, Client, SOON, Server, files_allow, poll_until};

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
