//! Limits that are reached: a counter and a clear answer or close, and nobody else notices.

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, SOON, Server, Settings, poll_until};

#[test]
fn connections_over_the_limit_are_closed_at_once_and_places_come_back() {
    let mut server = Server::start(&Settings::new().with("connectionsMax", 20));
    let mut open: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut open {
        assert_eq!(client.call(&Request::new(106)).code, 0);
    }
    for _ in 0..5 {
        let mut refused = server.client();
        assert_eq!(refused.route("TopicA"), None, "served over the limit");
    }
    server.expect_count("connections_over_limit_total", "", 5);
    server.expect_log("connection refused by a limit");
    assert_eq!(server.log_lines("connection refused by a limit").len(), 1, "one line in ten seconds");
    for client in &mut open {
        assert_eq!(client.call(&Request::new(106)).code, 0, "an open connection was cut");
    }
    open.truncate(10);
    let served = poll_until(SOON, || server.client().try_call(&Request::new(106)));
    assert!(served.is_some(), "the places of closed connections do not come back");
    drop(open);
    server.assert_alive();
}

#[test]
fn one_address_gets_its_share_of_connections_and_no_more() {
    let settings = Settings::new().with("bindAddress", "0.0.0.0").with("connectionsPerAddressMax", 3);
    let server = Server::start(&settings);
    let mut greedy: Vec<Client> = (0..3).map(|_| server.client_from([0, 1, 1])).collect();
    for client in &mut greedy {
        assert_eq!(client.call(&Request::new(106)).code, 0);
    }
    assert_eq!(server.client_from([0, 1, 1]).route("TopicA"), None);
    assert_eq!(server.client_from([0, 1, 2]).call(&Request::new(106)).code, 0);
    server.expect_count("connections_over_address_limit_total", "", 1);
}

#[test]
fn a_table_that_is_full_refuses_by_name_and_keeps_what_it_has() {
    let mut server = Server::start(&Settings::new().with("topicsMax", 10).with("brokersMax", 2));
    let _first = server.register(&Broker::with_topics("broker-a", "10.9.0.1:10911", "A", 6));
    let before = server.table(&["A-1"]);
    let mut client = server.client();
    let refuse = |client: &mut Client, broker: &Broker, setting: &str| {
        broker.send_registration(client, &broker.body());
        let answer = client.next().expect("an answer");
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.remark().contains(setting), "{setting} is not in {answer:?}");
    };
    refuse(&mut client, &Broker::with_topics("broker-b", "10.9.0.2:10911", "B", 5), "topicsMax");
    refuse(&mut client, &Broker::with_topics("broker-b", "10.9.0.2:10911", "B", 50), "topicsMax");
    assert_eq!(server.table(&["A-1"]), before);
    let _second = server.register(&Broker::with_topics("broker-b", "10.9.0.2:10911", "A", 4));
    let before = server.table(&["A-1"]);
    refuse(&mut client, &Broker::with_topics("broker-c", "10.9.0.3:10911", "A", 4), "brokersMax");
    assert_eq!(server.table(&["A-1"]), before);
    server.expect_count("registrations_total", "outcome=\"refused\"", 2);
    // Those that are in may come again.
    Broker::with_topics("broker-b", "10.9.0.2:10911", "A", 5).register(&mut client);
    server.assert_alive();
}

#[test]
fn a_full_kv_configuration_refuses_by_name_and_keeps_what_it_has() {
    let settings = Settings::new().with("kvEntriesMax", 3).with("kvValueMax", 64).with("kvTotalMax", 4_096);
    let mut server = Server::start(&settings);
    let mut client = server.client();
    let put = |client: &mut Client, key: &str, value: &str| {
        client.call(&Request {
            ext: &[("namespace", "N"), ("key", key), ("value", value)],
            ..Request::new(100)
        })
    };
    assert_eq!(put(&mut client, "a", "1").code, 0);
    assert_eq!(put(&mut client, "b", "2").code, 0);
    let list = Request { ext: &[("namespace", "N")], ..Request::new(219) };
    let before = client.call(&list).body;
    for (key, value, setting) in [("c", "3", "kvEntriesMax"), ("a", &"v".repeat(65), "kvValueMax")] {
        let answer = put(&mut client, key, value);
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.remark().contains(setting), "{setting} is not in {answer:?}");
    }
    assert_eq!(client.call(&list).body, before);
    assert_eq!(put(&mut client, "a", "changed").code, 0, "what is there may change");
    server.assert_alive();
}

#[test]
fn a_reader_with_more_answers_waiting_than_allowed_is_closed_and_named() {
    let settings = Settings::new().with("readerQueueMax", 65_536).with("serverSocketSndBufSize", 16_384);
    let mut server = Server::start(&settings);
    let _broker = server.register(&Broker::with_topics("broker-a", "10.9.0.1:10911", "Topic", 20_000));
    let mut client = Client::with_small_window(server.address());
    let mut other = server.client();
    client.send_request(&Request::new(206));
    server.expect_count("connections_ended_total", "reason=\"slow_reader\"", 1);
    server.expect_log("readerQueueMax");
    assert!(other.has_route("Topic-1"));
    server.assert_alive();
}

#[test]
fn a_smaller_frame_limit_is_kept_and_named_in_the_log() {
    let server = Server::start(&Settings::new().with("frameMaxLength", 4_096));
    let mut client = server.client();
    assert_eq!(client.call(&Request { body: &[b'x'; 3_900], ..Request::new(106) }).code, 0);
    assert_eq!(client.try_call(&Request { body: &[b'x'; 4_096], ..Request::new(106) }), None);
    server.expect_count("bad_frames_total", "reason=\"frame_too_long\"", 1);
    server.expect_log("over the limit of 4096");
}
