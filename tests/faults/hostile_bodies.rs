//! Bodies of registrations that want to cost more than they weigh, or are no bodies: code 1, and nothing changes.

use std::io::Write as _;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Answer, BEARABLE, Beside, Broker, Client, Random, Server};

const EXT: [(&str, &str); 6] = [
    ("brokerAddr", "10.9.0.66:10911"),
    ("brokerId", "0"),
    ("brokerName", "broker-hostile"),
    ("clusterName", "C"),
    ("haServerAddr", "10.9.0.66:10912"),
    ("compressed", "true"),
];

fn registration(body: &[u8]) -> Request<'_> {
    Request { ext: &EXT, body, ..Request::new(103) }
}

/// One zlib stream of all that `write` writes.
fn deflated(write: impl FnOnce(&mut ZlibEncoder<Vec<u8>>)) -> Vec<u8> {
    let mut stream = ZlibEncoder::new(Vec::new(), Compression::fast());
    write(&mut stream);
    stream.finish().expect("writing to memory does not fail")
}

/// The beginning of the layout that is deflated: a data version and the number of topics.
fn head(stream: &mut ZlibEncoder<Vec<u8>>, topics: u32) {
    let version = br#"{"counter":1,"stateVersion":0,"timestamp":1}"#;
    put(stream, &(version.len() as u32).to_be_bytes());
    put(stream, version);
    put(stream, &topics.to_be_bytes());
}

fn put(stream: &mut ZlibEncoder<Vec<u8>>, bytes: &[u8]) {
    stream.write_all(bytes).expect("writing to memory does not fail");
}

fn assert_refused(answer: &Answer, what: &str) {
    assert_eq!(answer.code, 1, "{what}: {answer:?}");
    assert!(answer.remark().contains("Failed to decode RegisterBrokerBody"), "{what}: {answer:?}");
}

/// A server with one broker, which must not notice anything.
fn server_with_broker() -> (Server, Client, Vec<Answer>) {
    let server = Server::with_defaults();
    let connection = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA"]);
    (server, connection, before)
}

#[test]
fn a_body_that_inflates_past_its_limit_is_refused_without_taking_the_memory() {
    let (mut server, _broker, before) = server_with_broker();
    let zeros = vec![0; 1 << 20];
    let bomb = deflated(|stream| (0..300).for_each(|_| put(stream, &zeros)));
    assert!(bomb.len() < 2 << 20, "{} bytes", bomb.len());
    let resident = server.memory().now;
    server.forget_peak();

    let beside = Beside::start(&server, "TopicA");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (address, bomb) = (server.address(), &bomb);
            scope.spawn(move || {
                let answer = Client::to(address).call(&registration(bomb));
                assert_refused(&answer, "bomb");
                assert!(answer.remark().contains("inflatedBodyMax"), "it names the setting: {answer:?}");
            });
        }
    });
    beside.finish();

    let grown = server.memory().peak.saturating_sub(resident);
    assert!(grown < 96 << 20, "four bombs took {grown} bytes");
    assert_eq!(server.table(&["TopicA"]), before);
    server.expect_count("registrations_total", "outcome=\"malformed\"", 4);
    server.assert_alive();
}

/// 200 MiB of topics of 13 bytes each, of which a frame holds a few hundred kilobytes: read into a table they
/// would take gigabytes, and applying them longer than the watchdog's patience.
#[test]
fn a_body_with_more_topics_than_a_registration_may_have_is_refused_before_they_are_read() {
    let (mut server, _broker, before) = server_with_broker();
    let count: u32 = 16_000_000;
    let piece = b"\0\0\0\x09a 1 1 6 S".repeat(100_000);
    let bomb = deflated(|stream| {
        head(stream, count);
        (0..160).for_each(|_| put(stream, &piece));
        put(stream, b"\0\0\0\x02[]\0\0\0\0");
    });
    assert!(bomb.len() < 4 << 20, "{} bytes", bomb.len());
    let mapping = br#"{}"#;
    let piece = [&(mapping.len() as u32).to_be_bytes()[..], mapping].concat().repeat(100_000);
    let mappings = deflated(|stream| {
        head(stream, 0);
        put(stream, b"\0\0\0\x02[]");
        put(stream, &16_000_000_u32.to_be_bytes());
        (0..160).for_each(|_| put(stream, &piece));
    });

    let beside = Beside::start(&server, "TopicA");
    for (what, bomb) in [("topics", bomb), ("mappings", mappings)] {
        let resident = server.memory().now;
        server.forget_peak();
        let answer = server.client().call(&registration(&bomb));
        assert_eq!(answer.code, 1, "{what}: {answer:?}");
        assert!(
            answer.remark().contains("registrationTopicsMax"),
            "{what}: it names the setting: {answer:?}"
        );
        let grown = server.memory().peak.saturating_sub(resident);
        assert!(grown < 400 << 20, "{what} took {grown} bytes");
    }
    beside.finish();
    assert_eq!(server.table(&["TopicA"]), before);
    server.assert_alive();
}

#[test]
fn counts_that_lie_are_refused_at_once() {
    let (mut server, _broker, before) = server_with_broker();
    let bodies = [
        ("2^31-1 topics", deflated(|stream| head(stream, i32::MAX as u32))),
        ("-1 topics", deflated(|stream| head(stream, u32::MAX))),
        (
            "a topic of 2^31-1 bytes",
            deflated(|stream| {
                head(stream, 1);
                put(stream, &[0x7f, 0xff, 0xff, 0xff]);
            }),
        ),
        (
            "a topic of three words",
            deflated(|stream| {
                head(stream, 1);
                put(stream, b"\0\0\0\x05a 1 1");
            }),
        ),
        ("a negative data version", deflated(|stream| put(stream, &[0xff; 4]))),
        ("no stream", b"\x78\xdathis is no zlib stream".to_vec()),
        ("nothing but the first two bytes", vec![0x78, 0xda]),
    ];
    let mut client = server.client();
    for (what, body) in bodies {
        let start = Instant::now();
        assert_refused(&client.call(&registration(&body)), what);
        assert!(start.elapsed() < BEARABLE * 3, "{what} took {:?}", start.elapsed());
    }
    assert_eq!(server.table(&["TopicA"]), before);
    server.assert_alive();
}

#[test]
fn json_that_is_no_registration_is_refused_at_once() {
    let (mut server, _broker, before) = server_with_broker();
    let wrap =
        |table: &str| format!(r#"{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{"T":{table}}}}}}}"#);
    let bodies = [
        ("array", "[]".to_owned()),
        ("text", "\"x\"".to_owned()),
        ("no JSON", "hello".to_owned()),
        ("cut off", wrap("{").replace("}}}}", "")),
        ("65 levels under an unknown member", format!(r#"{{"x":{}{}}}"#, "[".repeat(65), "]".repeat(65))),
        ("a million levels", "[".repeat(1_000_000)),
        ("a million levels of objects", r#"{"a":"#.repeat(1_000_000)),
        ("topic that is an array", wrap("[1]")),
        ("queues that are text", wrap(r#"{"topicName":"T","readQueueNums":"many"}"#)),
        ("a number of a million digits", wrap(&format!(r#"{{"perm":{}}}"#, "9".repeat(1_000_000)))),
        ("a text that does not end", format!(r#"{{"x":"{}"#, "a".repeat(1_000_000))),
    ];
    let mut client = server.client();
    let plain = &EXT[..5];
    for (what, body) in bodies {
        let start = Instant::now();
        let answer = client.call(&Request { ext: plain, body: body.as_bytes(), ..Request::new(103) });
        assert_refused(&answer, what);
        assert!(answer.remark().len() < 1_000, "{what}: the remark repeats the body");
        assert!(start.elapsed() < BEARABLE * 3, "{what} took {:?}", start.elapsed());
    }
    assert_eq!(server.table(&["TopicA"]), before);
    server.assert_alive();
}

#[test]
fn a_body_that_is_not_what_its_checksum_says_is_refused() {
    let (mut server, _broker, before) = server_with_broker();
    let body = Broker::new("broker-hostile", "10.9.0.66:10911", &["TopicA"]).body();
    let ext = [&EXT[..5], &[("bodyCrc32", "123")]].concat();
    for body in [&body[..], b""] {
        let answer = server.client().call(&Request { ext: &ext, body, ..Request::new(103) });
        assert_eq!((answer.code, answer.remark()), (1, "crc32 not match"));
    }
    assert_eq!(server.table(&["TopicA"]), before);
    server.assert_alive();
}

#[test]
fn a_deflated_body_that_is_cut_off_anywhere_is_refused() {
    let (mut server, _broker, before) = server_with_broker();
    let mut random = Random::new(7);
    let whole = deflated(|stream| {
        head(stream, 40);
        for number in 0..40 {
            let topic = format!("Topic{}-{number} 8 8 6 SINGLE_TAG {{}}", random.next());
            put(stream, &(topic.len() as u32).to_be_bytes());
            put(stream, topic.as_bytes());
        }
        put(stream, b"\0\0\0\x02[]\0\0\0\0");
    });
    let mut client = server.client();
    for end in 1..whole.len() - 4 {
        let answer = client.call(&registration(&whole[..end]));
        assert_eq!(answer.code, 1, "{end} of {} bytes: {answer:?}", whole.len());
    }
    assert_eq!(server.table(&["TopicA"]), before);
    // The same bytes, whole, are a registration.
    assert_eq!(client.call(&registration(&whole)).code, 0);
    server.assert_alive();
}
