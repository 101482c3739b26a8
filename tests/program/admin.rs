//! The admin side of the real server.

use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Server, exchange};

#[test]
fn ten_route_queries_are_ten_in_the_metrics() {
    let server = Server::start(&[]);
    let mut stream = std::net::TcpStream::connect(server.address).expect("a connection");
    let ext = [("topic", "T")];
    for _ in 0..10 {
        let question = Request { ext: &ext, ..Request::new(request::GET_ROUTEINFO_BY_TOPIC) };
        assert_eq!(exchange(&mut stream, question).0, 17);
    }
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200);
    let counted = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("waypost_nameserver_requests_total{")
                .filter(|rest| rest.contains("code=\"105\""))?
                .rsplit(' ')
                .next()
        })
        .unwrap_or_else(|| panic!("no counter of 105 in {text}"));
    assert_eq!(counted, "10");
}

#[test]
fn the_table_lists_brokers_and_filters_topics() {
    let server = Server::start(&[]);
    let _a = server.register("a", "127.0.0.1:10911", &["T1", "T2", "T3"]);
    let _b = server.register("b", "127.0.0.1:10921", &["T3", "T4"]);
    let table = |query: &str| {
        let (status, body) = server.get(&format!("/v1/table{query}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<serde_json::Value>(&body).expect("JSON")
    };
    let names = |value: &serde_json::Value, list: &str, member: &str| -> Vec<String> {
        let rows = value[list].as_array().expect("a list");
        rows.iter().map(|row| row[member].as_str().expect("text").to_owned()).collect()
    };
    let all = table("");
    assert_eq!(names(&all, "brokers", "broker"), ["a", "b"]);
    assert_eq!((&all["counts"]["topics"], &all["topics"]), (&4.into(), &serde_json::json!([])));
    assert!(all["brokers"][0]["peer"].is_string(), "{all}");
    assert_eq!(names(&table("?topics=true"), "topics", "topic"), ["T1", "T2", "T3", "T4"]);
    assert_eq!(names(&table("?topic=T3"), "topics", "topic"), ["T3"]);
    let of_b = table("?broker=b&topics=true");
    assert_eq!(
        (names(&of_b, "brokers", "broker"), names(&of_b, "topics", "topic")),
        (vec!["b".into()], vec!["T3".into(), "T4".into()])
    );
    assert_eq!(names(&table("?cluster=Other"), "brokers", "broker"), Vec::<String>::new());
    let cut = table("?topics=true&limit=2");
    assert_eq!((names(&cut, "topics", "topic").len(), &cut["truncated"]), (2, &true.into()));
}

#[test]
fn an_admin_side_that_is_asked_for_in_vain_is_a_note_beside_the_answer() {
    let server = Server::start(&[]);
    let _broker = server.register("a", "127.0.0.1:10911", &["T1", "T2"]);
    let dead = crate::harness::DeadPort::new();
    let told = server.ask(&format!("route T1 --admin http://{}", dead.address()));
    assert_eq!(told.code, 0);
    assert!(told.out.contains("127.0.0.1:10911"), "{}", told.out);
    assert!(told.err.starts_with("note: no details: cannot connect"), "{}", told.err);
}
