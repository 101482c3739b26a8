//! `register`.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::peers::{Scratch, poll_until};

use crate::harness::{DEADLINE, Ongoing, Server, ask, exchange};

/// A file, and the folder that it lies in.
fn file(text: &str) -> (Scratch, String) {
    let folder = Scratch::new("brokers");
    let path = folder.path().join("brokers.toml");
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (folder, path)
}

/// One broker, and lines that follow its own.
fn one(more: &str) -> (Scratch, String) {
    file(&format!("[[broker]]\nname = \"broker-a\"\ntopics = [{{ name = \"orders\", queues = 4 }}]\n{more}"))
}

fn address(server: &Server) -> String {
    let brokers = server.ask("brokers -o json").json();
    brokers["brokers"][0]["address"].as_str().expect("an address").to_owned()
}

#[test]
fn simulated_brokers_are_seen_and_leave_in_order() {
    let server = Server::start(&[]);
    let (_folder, path) = file(
        "[[broker]]\ncluster = \"C\"\nname = \"broker-a\"\ntopics = [{ name = \"orders\", queues = 4 }]\n\
         [[broker]]\ncluster = \"C\"\nname = \"broker-a\"\nid = 1\ntopics = [{ name = \"orders\", queues = 4 }]\n",
    );
    let mut brokers = Ongoing::start(&format!("register --from {path} -n {}", server.address));
    let registered = format!("broker-a at {}: registered", server.address);
    let both = poll_until(DEADLINE, || (brokers.out().matches(&registered).count() == 2).then_some(()));
    assert!(both.is_some(), "{}{}", brokers.out(), brokers.err());

    let route = server.ask("route orders").out;
    assert!(route.contains("broker-a  C        4     4      RW-"), "{route}");
    let members = server.ask("brokers -o json").json();
    let ids: Vec<_> =
        members["brokers"].as_array().expect("a list").iter().map(|it| it["id"].as_i64()).collect();
    assert_eq!(ids, [Some(0), Some(1)]);
    assert_eq!(server.ask("doctor").code, 0, "its addresses can be connected to");

    brokers.send(Signal::INT);
    assert_eq!(brokers.wait(DEADLINE).code(), Some(0), "{}", brokers.err());
    assert_eq!(brokers.out().matches("took the broker off its routes").count(), 2, "{}", brokers.out());
    assert_eq!(server.ask("brokers -o json").json()["brokers"], serde_json::json!([]));
}

#[test]
fn a_simulated_broker_satisfies_clients_and_probes() {
    let server = Server::start(&[]);
    let (_folder, path) = one("");
    let mut brokers = Ongoing::start(&format!("register --from {path} -n {}", server.address));
    brokers.wait_for(": registered");
    let mut stream = TcpStream::connect(address(&server)).expect("a connection");
    assert_eq!(exchange(&mut stream, Request::new(request::HEART_BEAT)).0, 0);
    assert_eq!(exchange(&mut stream, Request::new(request::GET_MAX_OFFSET)).0, 0);
    let ext = [("a", "group"), ("b", "orders"), ("e", "3")];
    for code in [request::SEND_MESSAGE, request::SEND_MESSAGE_V2] {
        assert_eq!(exchange(&mut stream, Request { ext: &ext, ..Request::new(code) }).0, 0);
    }
    let (code, remark, _) = exchange(&mut stream, Request::new(request::PULL_MESSAGE));
    assert_eq!(code, 1);
    assert!(remark.contains("stores no messages"), "{remark}");
    brokers.send(Signal::TERM);
    assert_eq!(brokers.wait(DEADLINE).code(), Some(0));
    assert!(brokers.out().contains("clients sent 2 messages to it"), "{}", brokers.out());
}

#[test]
fn a_paused_broker_keeps_its_connections_and_answers_nobody_until_it_goes_on() {
    let server = Server::start(&["--set", "scanNotActiveBrokerInterval=100"]);
    let fault = "heartbeat = \"100ms\"\ntimeout = \"1s\"\n\
                 [[broker.fault]]\nat = \"5s\"\nfor = \"10s\"\nkind = \"pause\"\n";
    let (_folder, path) = one(fault);
    let brokers = Ongoing::start(&format!("register --from {path} -n {}", server.address));
    brokers.wait_for(": registered");
    let mut stream = TcpStream::connect(address(&server)).expect("a connection");
    assert_eq!(exchange(&mut stream, Request::new(request::HEART_BEAT)).0, 0);

    brokers.wait_for("broker-a stands still like a stopped process");
    let mut bytes = Vec::new();
    let question = Request::new(request::HEART_BEAT);
    question.write(waypost_rocketmq_wire::frame::HeaderEncoding::Json, &mut bytes);
    std::io::Write::write_all(&mut stream, &bytes).expect("the connection is open");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a live socket");
    let silence = stream.read(&mut [0; 1]).expect_err("no answer and no end");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    let gone = poll_until(DEADLINE, || (server.ask("route orders").code == 1).then_some(()));
    assert!(gone.is_some(), "a server notices that it sends nothing");

    brokers.wait_for("broker-a is over with this");
    stream.set_read_timeout(Some(DEADLINE)).expect("a live socket");
    assert!(stream.read(&mut [0; 1_024]).expect("the answer comes at last") > 0);
    let back = poll_until(DEADLINE, || (server.ask("route orders").code == 0).then_some(()));
    assert!(back.is_some(), "{}", brokers.out());
}

#[test]
fn a_flapping_broker_goes_and_comes() {
    let server = Server::start(&[]);
    let (_folder, path) =
        one("[[broker.fault]]\nat = \"0s\"\nfor = \"3s\"\nkind = \"flapping\"\nevery = \"500ms\"\n");
    let command = format!("register --from {path} --for 8s -o json -n {}", server.address);
    let told = ask(&command);
    assert_eq!(told.code, 0, "{}", told.err);
    let phases: Vec<String> = told
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"))
        .filter(|event| event["event"] == "registration")
        .map(|event| event["phase"].as_str().expect("a phase").to_owned())
        .collect();
    let count = |phase: &str| phases.iter().filter(|it| *it == phase).count();
    assert!(count("absent") >= 2 && count("registered") >= 2, "{phases:?}");
    assert_eq!(phases.last().map(String::as_str), Some("registered"), "{phases:?}");
}

#[test]
fn a_file_is_checked_without_running_it() {
    let (_folder, path) = one("");
    let told = ask(&format!("register --from {path} --check"));
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert_eq!(told.out, format!("{path} is good: 1 broker, 0 faults\n"));

    let (_folder, path) = one("perriod = \"30s\"\n");
    for options in ["--check", ""] {
        let told = ask(&format!("register --from {path} {options}"));
        assert_eq!(told.code, 2);
        let expected = format!("error: {path}:4: unknown key \"perriod\": did you mean \"period\"?");
        assert_eq!(told.sentence(), expected);
    }
}

#[test]
fn the_example_of_a_drill_is_good() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/brokers.example.toml");
    let told = ask(&format!("register --check --from {}", example.display()));
    assert_eq!(told.code, 0, "{}", told.err);
}
