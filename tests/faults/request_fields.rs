//! Requests without their fields, or with fields that are something else: each gets the answer of the protocol,
//! which names what is wrong where that is an error, in the form of header that it came in.

use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Answer, Broker, Client, Server};

/// What is sent and what must come back.
struct Case {
    code: i32,
    ext: Vec<(&'static str, &'static str)>,
    body: &'static [u8],
    expected: i32,
    /// What the remark must contain; empty: there must be none.
    remark: &'static str,
}

fn case(code: i32, ext: &[(&'static str, &'static str)], expected: i32, remark: &'static str) -> Case {
    Case { code, ext: ext.to_vec(), body: b"", expected, remark }
}

fn with_body(body: &'static [u8], case: Case) -> Case {
    Case { body, ..case }
}

const BROKER: [(&str, &str); 5] = [
    ("brokerAddr", "10.9.0.7:10911"),
    ("brokerId", "0"),
    ("brokerName", "broker-x"),
    ("clusterName", "C"),
    ("haServerAddr", "10.9.0.7:10912"),
];

const TOPICS: &[u8] = br#"{"topicConfigSerializeWrapper":{"topicConfigTable":{"TopicX":{"topicName":"TopicX"},"TopicY":{"topicName":"TopicY"}}}}"#;

/// The fields of a broker without `left_out`, or with another value for it.
fn broker(left_out: &'static str, instead: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let others = BROKER.into_iter().filter(|(name, _)| *name != left_out);
    others.chain(instead.map(|value| (left_out, value))).collect()
}

fn registrations() -> Vec<Case> {
    let mut cases = vec![with_body(TOPICS, case(103, &[], 1, "clusterName"))];
    for field in ["clusterName", "brokerName", "brokerAddr", "brokerId"] {
        for instead in [None, Some("")] {
            cases.push(with_body(TOPICS, case(103, &broker(field, instead), 1, field)));
        }
    }
    for number in ["zero", "0x1", " 7", "1.5", "9223372036854775808", "-9223372036854775809"] {
        cases.push(with_body(TOPICS, case(103, &broker("brokerId", Some(number)), 1, "brokerId")));
    }
    cases
}

fn brokers_signs() -> Vec<Case> {
    let mut cases = Vec::new();
    for code in [322, 904] {
        cases.push(case(code, &[], 1, "clusterName"));
        cases.push(case(code, &broker("clusterName", None), 1, "clusterName"));
        cases.push(case(code, &broker("brokerAddr", None), 1, "brokerAddr"));
        // Nobody is known by this address: no effect.
        cases.push(case(code, &broker("brokerId", Some("x")), 0, ""));
    }
    for field in ["brokerName", "brokerAddr", "clusterName"] {
        cases.push(case(104, &broker(field, None), 1, field));
    }
    cases.push(case(104, &broker("brokerId", Some("x")), 0, ""));
    cases.push(with_body(b"no JSON", case(322, &BROKER, 1, "DataVersion")));
    cases.push(with_body(b"{\"counter\":\"x\"}", case(322, &BROKER, 1, "DataVersion")));
    cases.push(with_body(b"\xff\xff", case(322, &BROKER, 1, "DataVersion")));
    cases
}

fn others() -> Vec<Case> {
    let mut cases = vec![
        case(100, &[], 1, "namespace or key is null"),
        case(100, &[("namespace", "N"), ("value", "v")], 1, "namespace or key is null"),
        case(100, &[("key", "K"), ("value", "v")], 1, "namespace or key is null"),
        case(101, &[], 22, "No config item, Namespace: null Key: null"),
        case(101, &[("namespace", "N")], 22, "No config item, Namespace: N Key: null"),
        case(102, &[], 0, ""),
        case(102, &[("namespace", "N")], 0, ""),
        case(105, &[], 17, "No topic route info in name server for the topic: null"),
        case(105, &[("topics", "TopicA")], 17, "for the topic: null"),
        case(205, &[], 0, ""),
        case(205, &[("brokerName", "nobody")], 0, ""),
        case(327, &[], 0, ""),
        case(327, &[("brokerName", "nobody")], 0, ""),
        case(216, &[], 1, "topic"),
        case(216, &[("clusterName", "C")], 1, "topic"),
        case(216, &[("topic", "nothing")], 0, ""),
        case(217, &[], 1, "topic"),
        case(217, &[("topic", "TopicX")], 0, ""),
        with_body(b"[]", case(217, &[("topic", "TopicX")], 1, "TopicX")),
        with_body(b"{\"queueDatas\":7}", case(217, &[("topic", "TopicX")], 1, "TopicX")),
        with_body(b"{}", case(217, &[("topic", "TopicX")], 0, "")),
        case(219, &[], 22, "No config item, Namespace: null"),
        case(224, &[], 0, "is not registered here"),
        case(901, &[], 0, "not set any response code"),
        case(318, &[], 0, ""),
        with_body(b"noSuchKey=1", case(318, &[], 1, "noSuchKey")),
        with_body(b"listenPort=1", case(318, &[], 16, "listenPort")),
        with_body(b"kvConfigPath=/tmp/x", case(318, &[], 16, "black list")),
        with_body(b"brokerExpireMillis=soon", case(318, &[], 1, "brokerExpireMillis")),
        with_body(b"brokerExpireMillis=-1", case(318, &[], 1, "brokerExpireMillis")),
        with_body(
            b"enableTopicList=false\nscanNotActiveBrokerInterval=x",
            case(318, &[], 1, "scanNotActiveBrokerInterval"),
        ),
        with_body(b"enableTopicList=\\u12", case(318, &[], 1, "string2Properties error")),
        with_body(b"\xff\xfe\xfd", case(318, &[], 1, "")),
    ];
    // Requests without fields do not mind any, nor a body.
    for code in [106, 206, 304, 311, 312, 313, 319] {
        let odd = [("brokerId", "x"), ("topic", ""), ("", "empty name"), ("compressed", "maybe")];
        cases.push(with_body(b"\0not a body", case(code, &odd, 0, "")));
    }
    cases
}

#[test]
fn missing_and_malformed_fields_get_the_right_answer_and_change_nothing() {
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA", "TopicX"]);
    let mut client = server.client();
    let settings = client.call(&Request::new(319)).body;

    let cases = registrations().into_iter().chain(brokers_signs()).chain(others());
    for Case { code, ext, body, expected, remark } in cases {
        let request = Request { ext: &ext, body, ..Request::new(code) };
        for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
            let answer = send(&mut client, &request, encoding);
            let what = format!("{code} {ext:?} {:?}", String::from_utf8_lossy(body));
            assert_eq!(answer.encoding, encoding, "{what}");
            assert_eq!(answer.code, expected, "{what}: {answer:?}");
            if expected == 0 && remark.is_empty() {
                assert_eq!(answer.remark, None, "{what}");
            }
            assert!(answer.remark().contains(remark), "{what}: {answer:?}");
        }
    }

    assert_eq!(server.table(&["TopicA", "TopicX"]), before);
    assert_eq!(client.call(&Request::new(319)).body, settings, "one bad key refuses the whole request");
    let nothing = client.call(&Request { ext: &[("namespace", "N")], ..Request::new(219) });
    assert_eq!(nothing.code, 22, "no refused put left a namespace: {nothing:?}");
    server.expect_count("registrations_total", "outcome=\"malformed\"", 20);
    server.assert_alive();
}

/// Sends `request` in a form and reads its answer.
fn send(client: &mut Client, request: &Request<'_>, encoding: HeaderEncoding) -> Answer {
    let mut frame = Vec::new();
    let opaque = -request.code;
    Request { opaque, ..*request }.write(encoding, &mut frame);
    client.send(&frame);
    let answer = client.next().unwrap_or_else(|| panic!("closed instead of an answer to {request:?}"));
    assert_eq!(answer.opaque, opaque, "{answer:?}");
    answer
}

#[test]
fn names_longer_than_the_limit_are_refused_by_name_and_leave_nothing() {
    let mut server = Server::with_defaults();
    let long: String = "n".repeat(1_025);
    let before = server.table(&[]);
    let mut client = server.client();
    for field in ["clusterName", "brokerName", "brokerAddr"] {
        let ext: Vec<(&str, &str)> = BROKER
            .into_iter()
            .map(|(name, value)| (name, if name == field { &long } else { value }))
            .collect();
        let answer = client.call(&Request { ext: &ext, body: TOPICS, ..Request::new(103) });
        assert_eq!(answer.code, 1, "{field}: {answer:?}");
        assert!(answer.remark().contains(field) && answer.remark().contains("1024"), "{field}: {answer:?}");
    }
    let ext = [("namespace", "N"), ("key", long.as_str()), ("value", "v")];
    let answer = client.call(&Request { ext: &ext, ..Request::new(100) });
    assert_eq!(answer.code, 1, "{answer:?}");
    // A question about such a name is only a question.
    let answer = client.route(&"t".repeat(500_000)).expect("an answer");
    assert_eq!(answer.code, 17);
    assert_eq!(server.table(&[]), before);
    server.assert_alive();
}
