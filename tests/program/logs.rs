//! What peers choose cannot harm the log or a terminal.

use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::agent::Agent;

use crate::harness::{DEADLINE, Server, exchange, register};
use waypost_testkit::peers::poll_until;

/// Ends the line, clears the screen, moves back, and turns the direction of writing around.
const EVIL: &str = "evil\r\n2026-12-07T00:00:00.000000Z ERROR waypost: forged\u{1b}[2J\u{7f}\u{9b}1A\u{85}\u{202e}\u{2028}\u{61c}";

/// A name in scripts that must stay readable.
const READABLE: &str = "订单-Größe-طلبات-คำสั่ง";

fn is_harmful(character: char) -> bool {
    character.is_control() || "\u{61c}\u{200e}\u{200f}\u{202e}\u{2028}\u{2029}\u{2066}".contains(character)
}

/// Has everything logged or answered that repeats what a peer says.
fn say_evil_things(at: SocketAddr) -> [TcpStream; 2] {
    let brokers = [
        register(at, EVIL, "127.0.0.1:10911", &[EVIL, READABLE]),
        register(at, READABLE, "127.0.0.1:10912", &["T", "U"]),
    ];
    let mut stream = TcpStream::connect(at).expect("a connection");
    let ext = [
        ("brokerName", EVIL),
        ("clusterName", EVIL),
        ("brokerAddr", EVIL),
        ("brokerId", "0"),
        ("topic", EVIL),
        ("namespace", EVIL),
        ("key", EVIL),
        ("value", EVIL),
        ("bodyCrc32", "1"),
    ];
    for code in [
        request::WIPE_WRITE_PERM_OF_BROKER,
        request::PUT_KV_CONFIG,
        request::DELETE_KV_CONFIG,
        request::REGISTER_BROKER,
        request::UNREGISTER_BROKER,
        request::DELETE_TOPIC_IN_NAMESRV,
        request::GET_ROUTEINFO_BY_TOPIC,
    ] {
        exchange(&mut stream, Request { ext: &ext, body: EVIL.as_bytes(), ..Request::new(code) });
    }
    let body = format!("{}=1\n", EVIL.replace("\r\n", "\\n"));
    exchange(&mut stream, Request { body: body.as_bytes(), ..Request::new(request::UPDATE_NAMESRV_CONFIG) });
    brokers
}

#[track_caller]
fn is_harmless(text: &str) {
    for line in text.lines() {
        assert!(!line.contains(is_harmful), "{line:?}");
        assert!(!line.starts_with("2026-12-07T00:00:00.000000Z ERROR"), "{line:?}");
    }
}

#[test]
fn names_cannot_forge_lines_of_a_text_log() {
    let mut server = Server::start(&["--set", "logLevel=debug"]);
    let _brokers = say_evil_things(server.address);
    server.wait_until("what was said is logged", |server| {
        server.err().contains("evil") && server.err().contains(READABLE)
    });
    is_harmless(&server.err());
    assert!(server.err().contains("evil\\r\\n2026"), "{}", server.err());
}

#[test]
fn names_cannot_forge_lines_of_a_json_log() {
    let mut server = Server::start(&["--set", "logLevel=debug", "--set", "logFormat=json"]);
    let _brokers = say_evil_things(server.address);
    server.wait_until("what was said is logged", |server| {
        server.err().contains("evil") && server.err().contains(READABLE)
    });
    let err = server.err();
    is_harmless(&err);
    let lines: Vec<Value> = err.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let named =
        |line: &Value| line.get("broker").and_then(Value::as_str).is_some_and(|name| name.contains(EVIL));
    assert!(lines.iter().any(named), "{err}");
}

#[test]
fn names_cannot_forge_lines_of_an_agents_log() {
    let server = Server::start(&[]);
    let agent = Agent::start(env!("CARGO_BIN_EXE_waypost").as_ref(), &server.address.to_string());
    let _brokers = say_evil_things(agent.address());
    let seen = poll_until(DEADLINE, || server.err().contains("evil").then_some(()));
    assert!(seen.is_some(), "{}", server.err());
    is_harmless(&agent.log());
}

#[test]
fn names_cannot_harm_the_terminal_of_who_asks() {
    let server = Server::start(&[]);
    let _brokers = say_evil_things(server.address);
    for command in ["brokers", "clusters", "topics", "doctor", "route T", "kv list N", "config get"] {
        for form in ["table", "json"] {
            let told = server.ask_both(&format!("{command} -o {form}"));
            is_harmless(&told.out);
            is_harmless(&told.err);
        }
    }
    let brokers = server.ask("brokers -o json").json();
    assert!(brokers.to_string().contains("evil\\r\\n2026"), "{brokers}");
    assert!(server.ask("topics").out.contains(READABLE));
}
