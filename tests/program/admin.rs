//! The admin side of the real server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{DEADLINE, Ongoing, Server, ask, exchange, get};

#[test]
fn ten_route_queries_are_ten_in_the_metrics() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(server.address).expect("a connection");
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

/// The status of a GET by a name for this machine.
fn status_by(admin: &str, path: &str, name: &str) -> u16 {
    let address = admin.strip_prefix("http://").expect("an admin side");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a live socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn the_live_table_is_told_by_listed_names_only() {
    let server = Server::start(&["--set", "adminHosts=ns1.example.com"]);
    for (name, table) in [("127.0.0.1", 200), ("ns1.example.com:9880", 200), ("evil.example", 403)] {
        assert_eq!(status_by(&server.admin, "/v1/table", name), table, "{name}");
        assert_eq!(status_by(&server.admin, "/healthz", name), 200, "{name}");
        assert_eq!(status_by(&server.admin, "/metrics", name), 200, "{name}");
    }
    let wrong = ask("serve --listen-port 0 --set adminHosts=ns1:9880");
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.contains("adminHosts") && wrong.err.contains("without port"), "{}", wrong.err);
    // Commands need no name: they ask by the address.
    let by_name = server.admin.replace("127.0.0.1", "localhost");
    assert_eq!(ask(&format!("brokers -n {} --admin {by_name} -o json", server.address)).code, 0);
}

/// Opens connections that ask for nothing, or never end what they began, in place of those that were closed.
fn be_slow(admin: &str, ended: &AtomicBool) {
    let address = admin.strip_prefix("http://").expect("an admin side");
    let mut held: Vec<TcpStream> = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        held.retain_mut(|stream| stream.write_all(b"x").is_ok());
        while held.len() < 70 {
            let Ok(mut stream) = TcpStream::connect(address) else { break };
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
            held.push(stream);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Thirteen looks of a probe at a process that seventy slow connections attack.
fn probe_under_attack(admin: &str, paths: &[&str]) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| be_slow(admin, &ended));
        let probes: Vec<_> = (0..13)
            .flat_map(|_| {
                std::thread::sleep(Duration::from_millis(100));
                paths.iter().map(|path| get(admin, path).0)
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        assert!(probes.iter().all(|status| *status == 200), "{probes:?}");
    });
}

#[test]
fn probes_get_through_seventy_slow_connections() {
    let server = Server::start(&[]);
    probe_under_attack(&server.admin, &["/healthz", "/readyz", "/metrics"]);
    let agent = Ongoing::start(&format!(
        "agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 -n {} --admin-hosts agent.example",
        server.address
    ));
    agent.wait_for("(metrics, status)\n");
    let out = agent.out();
    let admin = out.lines().find_map(|line| line.strip_prefix("admin: ")?.split("/ ").next());
    let admin = admin.unwrap_or_else(|| panic!("no admin side in {out}"));
    probe_under_attack(admin, &["/healthz", "/metrics"]);
    for (name, status) in [("127.0.0.1", 200), ("agent.example", 200), ("evil.example", 403)] {
        assert_eq!(status_by(admin, "/v1/agent", name), status, "{name}");
        assert_eq!(status_by(admin, "/healthz", name), 200, "{name}");
    }
}
