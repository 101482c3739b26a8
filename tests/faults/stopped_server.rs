//! The server's process stands still for a while, as a paused or starved machine makes it, and goes on.

use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, ChildBroker, Client, Server, Settings, Signal, poll_until, route_query};

/// Longer than clients wait for an answer, shorter than they keep a connection.
const STANDSTILL: Duration = Duration::from_millis(4_500);

/// The first answer to a query for `topic`, over new connections as long as they are closed.
fn first_answer(server: &Server, topic: &str, limit: Duration) -> Option<i32> {
    poll_until(limit, || {
        let mut client = Client::try_to(server.address()).ok()?;
        client.route(topic).map(|answer| answer.code)
    })
}

#[test]
fn queries_that_waited_too_long_are_dropped_and_newer_ones_answered() {
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let mut waiting: Vec<Client> = (0..5).map(|_| server.client()).collect();
    let mut idle = server.client();
    for client in waiting.iter_mut().chain([&mut idle]) {
        assert!(client.has_route("TopicA"));
    }

    server.stand_still();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&route_query("TopicA", 100).repeat(number + 1));
    }
    std::thread::sleep(STANDSTILL);
    server.send(Signal::Continue);
    let continued = Instant::now();

    // Their callers gave up long ago: an answer would only hold up those that still wait.
    for client in &mut waiting {
        assert_eq!(client.next(), None, "a query that waited for {STANDSTILL:?} was answered");
    }
    server.expect_count("stale_queries_total", "", 5);
    server.expect_count("standstills_total", "", 1);
    server.expect_count("standstill_seconds_total", "", 4);
    let [line] = &server.log_lines("the process stood still")[..] else {
        panic!("not one line about the standstill:\n{}", server.log());
    };
    let milliseconds = line.rsplit("milliseconds=").next().and_then(|text| text.trim().parse::<u128>().ok());
    assert!(milliseconds.is_some_and(|length| length >= STANDSTILL.as_millis() - 200), "{line}");
    server.expect_count("connections_ended_total", "reason=\"stale_query\"", 5);
    assert_eq!(first_answer(&server, "TopicA", Duration::from_secs(3)), Some(0));
    assert!(continued.elapsed() < Duration::from_secs(4), "it came after {:?}", continued.elapsed());

    // The watchdog did not take the standstill for a hang; it would have bitten within this time.
    let mut client = server.client();
    let asked = poll_until(Duration::from_secs(7), || {
        let answer = client.route("TopicA");
        if answer.is_none() {
            client = server.client();
        }
        std::thread::sleep(Duration::from_millis(50));
        None::<()>
    });
    assert_eq!(asked, None);
    assert!(idle.has_route("TopicA"), "a connection that was idle is served as before");
    server.assert_alive();
    assert_eq!(client.call(&Request::new(106)).code, 0);
}

/// A 5.x broker with acting master sends a heartbeat every second and a timeout of ten: a standstill of the
/// server that is longer must not cost the whole cluster its routes while the heartbeats wait in the sockets.
#[test]
fn brokers_that_reported_during_a_standstill_keep_their_lease() {
    ChildBroker::take_over_if_child();
    const TEST: &str = "stopped_server::brokers_that_reported_during_a_standstill_keep_their_lease";
    let mut server = Server::start(&Settings::new().with("scanNotActiveBrokerInterval", 100));
    let alive = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]).timeout_ms(2_000);
    let dead = Broker::new("broker-b", "10.9.0.2:10911", &["TopicB"]).timeout_ms(2_000);
    let _alive = ChildBroker::start(TEST, server.address(), &alive, &[]);
    let mut stopped = ChildBroker::start(TEST, server.address(), &dead, &[]);
    assert!(server.client().has_route("TopicA"));

    server.stand_still();
    stopped.send(Signal::Stop);
    std::thread::sleep(STANDSTILL);
    server.send(Signal::Continue);
    let continued = Instant::now();

    // The one that reported stays all the time, the one that did not goes as soon as that is sure.
    let gone = poll_until(Duration::from_secs(15), || {
        assert_eq!(
            first_answer(&server, "TopicA", Duration::from_secs(3)),
            Some(0),
            "a live broker was removed"
        );
        (first_answer(&server, "TopicB", Duration::from_secs(3)) == Some(17)).then_some(())
    });
    assert!(gone.is_some(), "a broker that is stopped keeps its lease for good");
    eprintln!("the stopped broker was removed {:?} after the standstill", continued.elapsed());
    server.assert_alive();
    stopped.send(Signal::Continue);
}
