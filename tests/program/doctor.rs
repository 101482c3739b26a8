//! `waypost doctor`: why a cluster cannot be seen.

use std::net::TcpListener;

use crate::harness::{DeadPort, Server, ask};

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
