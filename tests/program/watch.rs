//! `watch`.

use rustix::process::Signal;

use crate::harness::{DEADLINE, DeadPort, Ongoing, Server, ask};

#[test]
fn changes_are_told_as_they_happen_until_ctrl_c() {
    let server = Server::start(&[]);
    let mut watch = Ongoing::start(&format!("watch T1 --every 100ms -n {}", server.address));
    watch.wait_for("T1 does not exist: no broker has registered it; waiting for it");
    let broker = server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"]);
    watch.wait_for("T1 is on broker-a: 16 queues, RW-, master at 127.0.0.1:10911");
    let _other = server.register("broker-b", "127.0.0.1:10921", &["T1", "T2"]);
    watch.wait_for("T1 is on broker-b");
    assert_eq!(server.ask("wipe-write broker-b").code, 0);
    watch.wait_for("T1 has the permission R-- on broker-b, not RW-");
    drop(broker);
    watch.wait_for("T1 is not on broker-a any more");
    watch.send(Signal::INT);
    assert_eq!(watch.wait(DEADLINE).code(), Some(0), "{}", watch.err());
}

#[test]
fn an_outage_and_its_end_are_told_for_the_route_and_the_server() {
    let server = Server::start(&[]);
    let _broker = server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"]);
    let dead = DeadPort::new();
    let list = format!("{};{}", server.address, dead.address());
    let watch = Ongoing::start(&format!("watch T1 --every 100ms -n {list}"));
    watch.wait_for("T1 is on broker-a");
    watch.wait_for(&format!("name server {} cannot be connected to", dead.address()));
    server.send(Signal::STOP);
    watch.wait_for(&format!("name server {} takes questions and sends no answer", server.address));
    watch.wait_for("T1 is stale: no server confirms its route, clients keep the last one");
    server.send(Signal::CONT);
    watch.wait_for("T1 is confirmed by a server again");
}

#[test]
fn programs_get_one_object_a_line_and_the_time_ends_it() {
    let server = Server::start(&[]);
    let _broker = server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"]);
    let told = server.ask("watch T1 --for 5s -o json");
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
    let events: Vec<serde_json::Value> =
        told.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let of_kind = |kind| events.iter().find(|event| event["event"] == kind);
    let change = of_kind("route_changed").unwrap_or_else(|| panic!("no change: {}", told.out));
    assert_eq!((&change["change"], &change["broker"]), (&"broker_came".into(), &"broker-a".into()));
    assert_eq!(change["addresses"], serde_json::json!({"0": "127.0.0.1:10911"}));
    assert!(change["at_ms"].as_u64().is_some_and(|at| at > 1_700_000_000_000), "{change}");
    assert_eq!(of_kind("server_answers").expect("it answers")["server"], server.address.to_string());
}

#[test]
fn a_list_on_which_nobody_answers_ends_with_3() {
    let dead = DeadPort::new();
    let told = ask(&format!("watch T1 --for 2s -n {}", dead.address()));
    assert_eq!(told.code, 3, "{}{}", told.out, told.err);
    assert!(told.sentence().contains("no server of"), "{}", told.err);
}
