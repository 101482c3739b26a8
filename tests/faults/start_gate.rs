//! `needWaitForService`: after a start, clients that ask for routes are sent away until the brokers had time to
//! register (decision 14).

use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Server, Settings, poll_until};

const WAIT: u64 = 4;

#[test]
fn route_clients_are_closed_and_brokers_register_until_the_wait_is_over() {
    let settings = Settings::new().with("needWaitForService", true).with("waitSecondsForService", WAIT);
    let mut server = Server::start(&settings);
    let start = Instant::now();
    // An answer that says "no route" would make clients forget what they know; a close makes them ask another.
    let mut client = server.client();
    assert_eq!(client.route("TopicA"), None);
    let mut broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    assert!(broker.has_route("TopicA"), "a close would remove the broker, so it is answered");
    let mut operator = server.client();
    let topics = operator.call(&Request::new(206));
    assert!(topics.text().contains("TopicA"), "everything but routes is served: {topics:?}");
    if start.elapsed() < Duration::from_secs(WAIT - 1) {
        assert_eq!(server.client().route("TopicA"), None);
        server.expect_count("connections_ended_total", "reason=\"not_ready\"", 2);
    }

    let opened = poll_until(Duration::from_secs(WAIT + 10), || server.client().route("TopicA"));
    assert_eq!(opened.map(|answer| answer.code), Some(0));
    assert!(start.elapsed() >= Duration::from_secs(WAIT - 1), "open after only {:?}", start.elapsed());
    assert_eq!(operator.call(&Request::new(106)).code, 0, "other connections were not closed");
    server.assert_alive();
}
