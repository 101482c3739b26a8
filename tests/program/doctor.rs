//! `waypost doctor`: why a cluster cannot be seen.

use std::net::TcpListener;

use crate::harness::{DeadPort, Server, ask, one_answer, silent_server};

#[test]
fn a_cluster_in_order_has_no_findings() {
    let server = Server::start(&[]);
    let open = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = open.local_addr().expect("an address").to_string();
    let _broker = server.register("a", &address, &["T1", "T2"]);
    let told = server.ask("doctor");
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert!(told.out.contains(&address), "{}", told.out);
}

#[test]
fn an_advertised_address_that_is_closed_is_listed() {
    let server = Server::start(&[]);
    let closed = DeadPort::new();
    let _broker = server.register("a", &closed.address().to_string(), &["T1", "T2"]);
    let told = server.ask("doctor -o json");
    assert_eq!(told.code, 1);
    let found: serde_json::Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!(found["brokers"][0]["reachable"], false, "{found}");
    let sentence = told.sentence();
    assert!(sentence.contains(&closed.address().to_string()) && sentence.contains("brokerIP1"), "{sentence}");
}

#[test]
fn a_server_that_lacks_a_broker_or_all_of_them_is_named() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let open = TcpListener::bind("127.0.0.1:0").expect("a port");
    let _broker = first.register("a", &open.local_addr().expect("an address").to_string(), &["T1", "T2"]);
    let told = ask(&format!("doctor -n {};{}", first.address, second.address));
    assert_eq!(told.code, 1);
    assert!(
        told.err.contains(&format!("{} answers but no broker is registered", second.address)),
        "{}",
        told.err
    );
    assert!(told.err.contains(&format!("is not registered with {}", second.address)), "{}", told.err);
}

#[test]
fn an_address_that_no_client_can_read_is_told() {
    let server = Server::start(&[]);
    let _broker = server.register("a", "nonsense", &["T1", "T2"]);
    let told = server.ask("doctor");
    assert_eq!(told.code, 1);
    assert!(told.sentence().contains("clients cannot read that address"), "{}", told.err);
}

#[test]
fn a_server_that_refuses_has_answered_but_lacks_no_broker() {
    let server = Server::start(&[]);
    let refusing = Server::start(&["--set", "accessRead=10.0.0.0/8"]);
    let alone = refusing.ask("doctor");
    assert_eq!((alone.code, refusing.ask("check").code), (1, 1), "{}", alone.err);
    assert!(alone.sentence().contains("(code 16)"), "{}", alone.err);

    let open = TcpListener::bind("127.0.0.1:0").expect("a port");
    let _broker = server.register("a", &open.local_addr().expect("an address").to_string(), &["T1", "T2"]);
    let both = ask(&format!("doctor -o json -n {};{}", server.address, refusing.address));
    assert_eq!(both.code, 1);
    let found: serde_json::Value = serde_json::from_str(&both.out).expect("JSON");
    assert_eq!(found["servers"][1]["answers"], true, "{found}");
    assert_eq!(found["problems"].as_array().map(Vec::len), Some(1), "{found}");
    assert!(both.sentence().contains("(code 16)"), "{}", both.err);
}

#[test]
fn what_is_no_name_server_does_not_count_as_answering() {
    let server = Server::start(&[]);
    let admin = server.admin.strip_prefix("http://").expect("an admin side");
    let told = ask(&format!("doctor -o json -n {admin}"));
    assert_eq!(told.code, 1, "something is there: {}", told.err);
    let found: serde_json::Value = serde_json::from_str(&told.out).expect("JSON");
    let row = &found["servers"][0];
    assert_eq!((&row["answers"], &row["state"]), (&false.into(), &"malformed".into()), "{found}");
    assert!(told.sentence().contains("it speaks HTTP"), "{}", told.err);

    let (nonsense, address) = one_answer(b"SSH-2.0-OpenSSH\r\n");
    let dead = DeadPort::new();
    let told = ask(&format!("doctor -n {address};{}", dead.address()));
    nonsense.join().expect("it answers");
    assert_eq!(told.code, 1, "{}", told.err);
    assert!(told.out.contains("  malformed  ") && told.out.contains("  unreachable  "), "{}", told.out);
}

#[test]
fn a_silent_server_and_one_that_is_away_are_told_apart() {
    let (_listener, silent) = silent_server();
    let dead = DeadPort::new();
    let told = ask(&format!("doctor -o json --timeout 300ms -n {silent};{}", dead.address()));
    assert_eq!(told.code, 3, "nothing came back: {}", told.err);
    let found: serde_json::Value = serde_json::from_str(&told.out).expect("JSON");
    let states = [&found["servers"][0]["state"], &found["servers"][1]["state"]];
    assert_eq!(states, ["silent", "unreachable"], "{found}");
}
