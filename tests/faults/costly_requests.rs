//! Requests that are within all limits and as costly as they can be made: one of them must not hold up heartbeats,
//! lists or routes, nor take memory far beyond its own.

use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Beside, Broker, Client, Server};

const LARGE: usize = 15 << 20;

/// What it is called, code, fields, body, and the code of its answer.
type Costly<'a> = (&'a str, i32, &'a [(&'a str, &'a str)], Vec<u8>, i32);

/// As many of `entry` as have [`LARGE`] bytes, between two pieces of JSON.
fn many(before: &str, entry: &str, after: &str) -> Vec<u8> {
    let entries = vec![entry; LARGE / (entry.len() + 1)].join(",");
    format!("{before}{entries}{after}").into_bytes()
}

#[test]
fn the_costliest_requests_hold_up_nobody() {
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA", "T"]);
    let topic = [("topic", "T")];
    let broker = [("brokerAddr", "10.9.0.9:1"), ("brokerId", "0"), ("brokerName", "b"), ("clusterName", "C")];
    let fields: Vec<String> = (0..55_000).map(|number| format!("field-{number}")).collect();
    let fields: Vec<(&str, &str)> = fields.iter().map(|name| (name.as_str(), "")).collect();
    let requests: [Costly<'_>; 8] = [
        ("217 with queues", 217, &topic, many(r#"{"queueDatas":["#, "{}", "]}"), 1),
        ("217 with brokers", 217, &topic, many(r#"{"brokerDatas":["#, "{}", "]}"), 1),
        ("322 with unknown members", 322, &broker, many(r#"{"x":["#, "{}", "]}"), 0),
        (
            "103 with empty entries",
            103,
            &broker,
            many(r#"{"topicConfigSerializeWrapper":{"topicConfigTable":{"#, r#""":{}"#, "}}}"),
            1,
        ),
        ("318 with lines", 318, &[], b"enableTopicList=true\n".repeat(LARGE / 21), 1),
        ("318 with unknown keys", 318, &[], b"a=1\n".repeat(LARGE / 4), 1),
        ("105 with fields", 105, &fields, Vec::new(), 17),
        ("103 with fields", 103, &fields, Vec::new(), 1),
    ];

    for (name, code, ext, body, expected) in requests {
        let resident = server.memory().now;
        server.forget_peak();
        let beside = Beside::start(&server, "TopicA");
        let mut longest = Duration::ZERO;
        std::thread::scope(|scope| {
            let costly = scope.spawn(|| {
                let mut client = server.client();
                let start = Instant::now();
                let answer = client.call(&Request { ext, body: &body, ..Request::new(code) });
                (answer, start.elapsed())
            });
            let mut other = server.client();
            while !costly.is_finished() {
                for code in [904, 106, 319] {
                    longest = longest.max(time(&mut other, &Request { ext: &broker, ..Request::new(code) }));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let (answer, took) = costly.join().expect("it is answered");
            eprintln!("{name}: {took:?}; others waited up to {longest:?}");
            assert_eq!(answer.code, expected, "{name}: {answer:?}");
        });
        beside.finish();
        assert!(longest < Duration::from_secs(3), "{name}: others waited for {longest:?}");
        let grown = server.memory().peak.saturating_sub(resident);
        assert!(grown < 256 << 20, "{name} took {grown} bytes");
    }
    assert_eq!(server.table(&["TopicA", "T"]), before);
    server.assert_alive();
}

fn time(client: &mut Client, request: &Request<'_>) -> Duration {
    let start = Instant::now();
    assert_eq!(client.call(request).code, 0);
    start.elapsed()
}
