//! One port for IPv4 and IPv6.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, Server, Settings, not_run};

#[test]
fn the_default_address_serves_ipv4_and_ipv6_callers_with_their_own_rights() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        not_run("IPv6 callers", "this machine has no IPv6");
        return;
    }
    let settings = Settings::new().with("bindAddress", "0.0.0.0").with("accessAdmin", "127.0.0.0/8");
    let mut server = Server::start(&settings);
    let over_six = SocketAddr::from((Ipv6Addr::LOCALHOST, server.address().port()));
    let mut six = Client::to(over_six);
    Broker::new("broker-a", "[::1]:10911", &["TopicA"]).register(&mut six);
    let mut four = server.client();
    assert!(four.has_route("TopicA"), "one table for both");
    assert!(Client::to(over_six).has_route("TopicA"));

    let wipe = Request { ext: &[("brokerName", "broker-a")], ..Request::new(205) };
    assert_eq!(four.call(&wipe).code, 0, "an IPv4 caller on a dual socket counts as IPv4");
    let refused = six.call(&wipe);
    assert_eq!(refused.code, 16);
    assert!(refused.remark().contains("from ::1"), "{refused:?}");
    server.assert_alive();
}
