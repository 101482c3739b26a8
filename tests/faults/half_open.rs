//! Peers that begin and do not go on: each is closed after the idle time, whatever it had begun, and those that
//! work are not.

use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Client, Server, Settings, envelope, poll_until, route_query};

/// The idle time of these tests, in seconds.
const IDLE: u64 = 3;

/// The sweep looks once a second, and the machine is busy.
const SLACK: Duration = Duration::from_secs(5);

fn begun() -> Vec<(&'static str, Vec<u8>)> {
    let query = route_query("TopicA", 1);
    let large = envelope(0, br#"{"code":103}"#, &vec![b' '; 4_000_000]);
    vec![
        ("nothing", Vec::new()),
        ("one byte", query[..1].to_vec()),
        ("the length", query[..4].to_vec()),
        ("half a frame", query[..query.len() / 2].to_vec()),
        ("all but one byte", query[..query.len() - 1].to_vec()),
        ("half a large frame", large[..2_000_000].to_vec()),
        ("half a PROXY line", b"PROXY TCP4 10.0.0.1".to_vec()),
        ("a PROXY line and nothing", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n".to_vec()),
        ("a request and half of the next", [query.clone(), query[..20].to_vec()].concat()),
    ]
}

#[test]
fn connections_that_do_not_go_on_are_closed_after_the_idle_time() {
    let mut server = Server::start(&Settings::new().with("serverChannelMaxIdleTimeSeconds", IDLE));
    let start = Instant::now();
    let mut waiting: Vec<(&str, Client)> = Vec::new();
    for (name, bytes) in begun() {
        let mut client = server.client();
        client.send(&bytes);
        if name.starts_with("a request") {
            assert_eq!(client.next().map(|answer| answer.code), Some(17));
        }
        waiting.push((name, client));
    }
    // One byte at a time is no complete frame: it does not keep the connection.
    let frame = route_query("TopicA", 1);
    let mut trickling = server.client();
    let mut working = server.client();
    for byte in &frame {
        trickling.send(&[*byte]);
        assert_eq!(working.call(&Request::new(106)).code, 0);
        if trickling.is_closed_within(Duration::from_millis(200)) {
            break;
        }
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(IDLE), "closed after only {took:?}");
    assert!(took < Duration::from_secs(IDLE) + SLACK, "a byte now and then kept the connection for {took:?}");

    let preamble_limit = Duration::from_secs(10) + SLACK;
    for (name, client) in &mut waiting {
        let limit = if name.contains("PROXY") { preamble_limit } else { Duration::from_secs(IDLE) + SLACK };
        let left = limit.saturating_sub(start.elapsed()).max(Duration::from_secs(1));
        let closed = poll_until(left, || {
            assert_eq!(working.call(&Request::new(106)).code, 0);
            client.is_closed_within(Duration::from_millis(100)).then_some(())
        });
        assert!(closed.is_some(), "{name}: still open after {:?}", start.elapsed());
    }
    server.expect_count("connections_ended_total", "reason=\"idle\"", 6);
    assert_eq!(working.call(&Request::new(106)).code, 0, "a connection that works stays");
    let metrics = server.metrics();
    assert_eq!(metrics.sum("unfinished_frame_bytes", ""), 0.0);
    assert_eq!(metrics.sum("connections", " "), 1.0, "only the working one is open");
    server.assert_alive();
}

#[test]
fn a_peer_that_stops_sending_still_gets_its_answers() {
    let server = Server::with_defaults();
    let mut client = server.client();
    client.send(&[route_query("a", 1), route_query("b", 2), route_query("c", 3)].concat());
    client.finish_sending();
    let opaques: Vec<i32> = std::iter::from_fn(|| client.next()).map(|answer| answer.opaque).collect();
    assert_eq!(opaques, [1, 2, 3]);
}
