//! `serve --demo`.

use std::net::TcpStream;

use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Server, ask, exchange};

fn start() -> Server {
    let mut server = Server::start(&["--demo"]);
    server.wait_until("the demo runs", |server| server.out().contains("next: "));
    server
}

#[test]
fn the_demo_tells_the_command_that_shows_a_route_from_it() {
    let server = start();
    let out = server.out();
    let command = out.lines().find_map(|line| line.strip_prefix("next:   ")).expect("a command");
    let (program, command) = command.split_once(' ').expect("a program and its arguments");
    assert_eq!(program, env!("CARGO_BIN_EXE_waypost"), "as it was called");
    let told = ask(command);
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.contains("broker-a") && told.out.contains("broker-b"), "{}", told.out);
    assert!(told.out.contains("HA ADDRESS"), "a Waypost tells more: {}", told.out);
    assert_eq!(told.err, "");
}

#[test]
fn the_demo_has_two_brokers_of_one_cluster_with_topics() {
    let server = start();
    let brokers = server.ask("brokers -o json").json();
    let names: Vec<&str> = brokers["brokers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["broker"].as_str())
        .collect();
    assert_eq!(names, ["broker-a", "broker-b"]);
    let topics = server.ask("topics --cluster DemoCluster").out;
    for topic in ["TopicTest", "archive", "orders", "payments"] {
        assert!(topics.lines().any(|line| line == topic), "{topic}: {topics}");
    }
    let archive = server.ask("route archive -o json").json();
    assert_eq!(archive["brokers"][0]["permission"], "R--");
    assert_eq!(server.ask("doctor").code, 0, "its addresses can be connected to");
}

#[test]
fn a_client_of_a_demo_broker_is_told_that_it_is_one() {
    let server = start();
    let brokers = server.ask("brokers -o json").json();
    let address = brokers["brokers"][0]["address"].as_str().expect("an address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    assert_eq!(exchange(&mut stream, Request::new(request::HEART_BEAT)).0, 0);
    let (code, remark, _) = exchange(&mut stream, Request::new(request::SEND_MESSAGE_V2));
    assert_eq!(code, 1);
    assert!(remark.contains("stores no messages"), "{remark}");
}
