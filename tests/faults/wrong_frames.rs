//! Bytes that are no request: the connection is closed without a word, counted by reason and logged at most once
//! in ten seconds.

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Server, binary, envelope, json, route_query};

/// One way to be wrong, and what the counter calls it.
struct Wrong {
    name: &'static str,
    bytes: Vec<u8>,
    reason: &'static str,
}

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// The negative vectors of the protocol, and more of their kind.
fn wrong_frames() -> Vec<Wrong> {
    let wrong = |name, bytes, reason| Wrong { name, bytes, reason };
    let vector = |name, digits, reason| wrong(name, hex(digits), reason);
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let header = format!(r#"{{"code":105,"extFields":{{"topic":{open}{close}}}}}"#);
        envelope(0, header.as_bytes(), b"")
    };
    vec![
        vector("N1 longer than 16 MiB", "00fffffd", "frame_too_long"),
        vector("N2 negative length", "ffffffff", "frame_negative"),
        vector("N3 length 0", "00000000 00000000", "frame_too_short"),
        vector("length 3", "00000003 000000", "frame_too_short"),
        vector("N4 header longer than the frame", "00000004 00000001", "header_overrun"),
        vector("N5 header of type 2", "00000006 02000002 7b7d", "header_type"),
        vector("N6 malformed JSON", "00000006 00000002 7b5d", "header_json"),
        vector(
            "N7 remark longer than the header",
            "00000019 01000015 0069 00 01df 00000001 00000000 7fffffff 00000000",
            "header_truncated",
        ),
        vector("N8 JSON null", "0000000c 00000008 6e756c6c20202020", "header_json"),
        vector("length 4 and no header", "00000004 00000000", "header_json"),
        vector("binary header cut short", "00000006 01000002 0069", "header_truncated"),
        vector(
            "negative remark length",
            "00000019 01000015 0069 00 01df 00000001 00000000 ffffffff 00000000",
            "header_negative",
        ),
        vector(
            "bytes behind the ext fields",
            "0000001b 01000017 0069 00 01df 00000001 00000000 00000000 00000000 0000",
            "header_trailing",
        ),
        wrong("JSON array", envelope(0, b"[]", b""), "header_json"),
        wrong("JSON cut off", envelope(0, br#"{"code":105,"extFi"#, b""), "header_json"),
        wrong("code that is no number", envelope(0, br#"{"code":"x"}"#, b""), "header_json"),
        wrong(
            "no UTF-8 in the ext fields",
            envelope(0, b"{\"code\":105,\"extFields\":{\"topic\":\"\xff\xfe", b""),
            "header_json",
        ),
        wrong("65 levels", deep(65), "header_json"),
        wrong("100 thousand levels", deep(100_000), "header_json"),
        wrong("header over 1 MiB", envelope(0, &vec![b' '; 1_048_577], b""), "header_too_long"),
        wrong("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "frame_too_long"),
    ]
}

#[test]
fn each_wrong_frame_closes_its_connection_counts_and_changes_nothing() {
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA", "None"]);

    for Wrong { name, bytes, reason } in wrong_frames() {
        let counted = server.metrics().sum("bad_frames_total", &label(reason));
        // Alone, and behind a request that still gets its answer.
        let mut alone = server.client();
        alone.send(&bytes);
        assert_eq!(alone.next(), None, "{name}");
        let mut behind = server.client();
        behind.send(&[route_query("TopicA", 1), bytes].concat());
        let answer = behind.next();
        assert_eq!(answer.map(|answer| (answer.opaque, answer.code)), Some((1, 0)), "{name}");
        assert_eq!(behind.next(), None, "{name}");
        server.expect_count("bad_frames_total", &label(reason), counted as u64 + 2);
    }

    assert_eq!(server.table(&["TopicA", "None"]), before);
    let complaints = server.log_lines("its bytes are no request");
    assert!((1..=6).contains(&complaints.len()), "one line in ten seconds: {complaints:#?}");
    assert!(complaints[0].contains("reason=\"frame_too_long\""), "{complaints:#?}");
    server.assert_alive();
}

fn label(reason: &str) -> String {
    format!("reason=\"{reason}\"")
}

#[test]
fn a_frame_that_is_cut_off_anywhere_gets_no_answer_and_leaves_no_trace() {
    let mut server = Server::with_defaults();
    let broker = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]);
    let _broker = server.register(&broker);
    let before = server.table(&["TopicA"]);

    let ext = [("brokerName", "broker-a")];
    let query = Request { opaque: 3, ext: &[("topic", "TopicA")], ..Request::new(105) };
    for whole in [json(&query), binary(&query), json(&Request { ext: &ext, ..Request::new(205) })] {
        for end in 0..whole.len() {
            let mut client = server.client();
            client.send(&whole[..end]);
            client.finish_sending();
            assert_eq!(client.next(), None, "{end} of {} bytes", whole.len());
        }
    }
    // A large one has memory promised, which must come back.
    for sent in [70_000, 1_000_000, 5_000_000] {
        let mut client = server.client();
        client.send(&envelope(0, br#"{"code":103}"#, &vec![b' '; 8_000_000])[..sent]);
        client.finish_sending();
        assert_eq!(client.next(), None, "{sent} bytes of 8 MB");
    }

    assert_eq!(server.table(&["TopicA"]), before);
    assert_eq!(server.metrics().sum("unfinished_frame_bytes", ""), 0.0);
    server.assert_alive();
}

#[test]
fn frames_that_want_no_answer_get_none_and_the_next_request_does() {
    let server = Server::with_defaults();
    let mut client = server.client();
    let response = br#"{"code":0,"flag":1,"language":"JAVA","opaque":77,"version":513}"#;
    for code in [0, 105, 106, 999, 103] {
        client.send(&json(&Request { opaque: 5, oneway: true, ..Request::new(code) }));
    }
    client.send(&envelope(0, response, b"body"));
    client.send(&envelope(0, br#"{"code":105,"flag":3,"opaque":78}"#, b""));
    let answer = client.call(&Request::new(106));
    assert_eq!(answer.code, 0);
    server.expect_count("bad_frames_total", &label("unexpected_response"), 2);
}

#[test]
fn unknown_codes_are_answered_with_their_number() {
    let server = Server::with_defaults();
    let mut client = server.client();
    for code in [0, 1, 10, 99, 107, 310, 905, 999, 1_001, 32_767, 200_050, i32::MAX, -1, i32::MIN] {
        let answer = client.call(&Request { body: b"whatever", ..Request::new(code) });
        assert_eq!(
            (answer.code, answer.remark()),
            (3, format!(" request type {code} not supported").as_str())
        );
    }
    // The binary form carries 16 bits.
    client.send(&binary(&Request { opaque: 4, ..Request::new(999) }));
    let answer = client.next().expect("an answer");
    assert_eq!((answer.code, answer.opaque, answer.remark()), (3, 4, " request type 999 not supported"));
    server.expect_count("requests_total", "code=\"other\"", 15);
}
