//! Who may send what. Addresses of 127.0.0.0/8 stand for other networks.

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, SOON, Server, Settings, poll_until};

const READER: [u8; 3] = [0, 1, 1];
const BROKER: [u8; 3] = [0, 2, 1];
const OPERATOR: [u8; 3] = [0, 3, 1];
const OWNER: [u8; 3] = [0, 4, 1];
const STRANGER: [u8; 3] = [0, 9, 9];

/// The requests of each class, and the setting that rules it.
const CLASSES: [(&str, [u8; 3], &[i32]); 4] = [
    ("accessRead", READER, &[101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319, 901, 999]),
    ("accessBroker", BROKER, &[103, 104, 217, 322, 904]),
    ("accessAdmin", OPERATOR, &[100, 102, 205, 216, 327]),
    ("accessConfig", OWNER, &[318]),
];

#[test]
fn each_class_is_open_to_its_networks_alone_and_refusals_name_the_setting() {
    let settings = Settings::new()
        .with("bindAddress", "0.0.0.0")
        .with("accessRead", "127.0.1.0/24")
        .with("accessBroker", "127.0.2.0/24")
        .with("accessAdmin", "127.0.3.0/24")
        .with("accessConfig", "127.0.4.0/24");
    let mut server = Server::start(&settings);
    let mut broker = server.client_from(BROKER);
    Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]).register(&mut broker);
    let mut reader = server.client_from(READER);
    let before = reader.route("TopicA").expect("an answer").body;

    let mut refusals = 0;
    for (caller_of, caller, _) in CLASSES.into_iter().chain([("nobody", STRANGER, &[][..])]) {
        let mut client = server.client_from(caller);
        for (setting, _, codes) in CLASSES {
            for code in codes {
                let answer = client.call(&harmless(*code));
                if setting == caller_of {
                    assert_ne!(answer.code, 16, "{code} from {caller_of}: {answer:?}");
                    continue;
                }
                refusals += 1;
                let address = format!("127.{}.{}.{}", caller[0], caller[1], caller[2]);
                assert_eq!(answer.code, 16, "{code} from {caller_of}: {answer:?}");
                for part in [setting, &address, &code.to_string()] {
                    assert!(answer.remark().contains(part), "{part} is not in {answer:?}");
                }
            }
        }
        // Being refused does not cost the connection.
        drop(client);
    }
    assert_eq!(reader.route("TopicA").expect("an answer").body, before);
    server.expect_count("refusals_total", "", refusals);
    // A thread of its own writes the log: the line of the last refusal may come after its answer.
    let of_stranger = poll_until(SOON, || {
        let lines = server.log_lines("request refused");
        lines.iter().any(|line| line.contains("127.0.9.9") && line.contains("accessConfig")).then_some(())
    });
    let lines = server.log_lines("request refused");
    assert!(of_stranger.is_some(), "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("audit")), "{lines:#?}");
    let of_readers = lines.iter().filter(|line| line.contains("accessRead")).count();
    assert!((1..=42).contains(&of_readers), "{of_readers} lines for refusals of one class");
    assert!(server.ended().is_none());
}

/// A request that changes nothing where it is allowed.
fn harmless(code: i32) -> Request<'static> {
    let ext: &[(&str, &str)] = match code {
        100 => &[("namespace", "N")],
        102 | 101 | 219 => &[("namespace", "N"), ("key", "K")],
        103 => &[("brokerName", "broker-x")],
        104 | 322 | 904 => &[
            ("brokerAddr", "10.9.9.9:1"),
            ("brokerId", "0"),
            ("brokerName", "broker-x"),
            ("clusterName", "C"),
        ],
        205 | 327 => &[("brokerName", "broker-x")],
        105 | 216 | 217 => &[("topic", "TopicX")],
        _ => &[],
    };
    Request { ext, ..Request::new(code) }
}

#[test]
fn settings_can_be_changed_from_loopback_and_each_change_is_audited() {
    let mut server = Server::with_defaults();
    let mut client: Client = server.client();
    let answer = client.call(&Request { body: b"enableTopicList=false\n", ..Request::new(318) });
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(client.call(&Request::new(224)).remark(), "disable");
    let ext = [("namespace", "N"), ("key", "K\nforged line"), ("value", "v")];
    assert_eq!(client.call(&Request { ext: &ext, ..Request::new(100) }).code, 0);
    assert_eq!(client.call(&Request { ext: &ext[..2], ..Request::new(102) }).code, 0);
    for (code, text) in [(318, "setting changed"), (100, "KV value set"), (102, "KV value deleted")] {
        server.expect_log(text);
        let line = server.log_lines(text).join("\n");
        let peer = format!("peer={}", client.local());
        assert!(line.contains(&peer) && line.contains(&format!("code={code}")), "{line}");
    }
    assert!(
        server.log_lines("forged line").iter().all(|line| line.contains("audit")),
        "a name made a line of its own"
    );
    server.assert_alive();
}
