//! The admin side of a real NameServer, asked over TCP.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};

use super::*;

struct Running {
    server: NameServer,
    admin: Admin,
    tasks: Tasks,
    home: std::path::PathBuf,
}

impl Running {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::named("", settings)
    }

    /// As [`Running::start`]; `hosts` are names of this machine.
    fn named(hosts: &str, settings: &[(&str, &str)]) -> Self {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("waypost-admin-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a folder");
        let mut flags = vec![("listenPort", "0"), ("bindAddress", "127.0.0.1")];
        flags.extend(settings);
        let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let environment = [("HOME".to_owned(), home.display().to_string())];
        let configuration =
            Configuration::load(Inputs { file: None, flags, environment }).expect("a configuration");
        let options = StartOptions { kv_from_backup: false, on_stall: Box::new(|_| {}) };
        let server = NameServer::start(configuration, options).expect("a server");
        let tasks = Tasks::new();
        let site = bind("127.0.0.1:0".parse().expect("an address"), "adminListen").expect("a port");
        let admin = Admin::start(
            site.named(hosts.parse().expect("names")),
            server.view(),
            server.addresses(),
            &tasks,
        );
        Self { server, admin, tasks, home }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.0\r\n\r\n")).await
    }

    async fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin.address()).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body");
        (status, body)
    }

    async fn end(self) {
        self.server.shutdown().await;
        self.tasks.cancel();
        assert_eq!(self.tasks.drain(Duration::from_secs(20)).await, 0, "the admin side goes on");
        std::fs::remove_dir_all(&self.home).expect("removed");
    }
}

fn json(body: &str) -> serde_json::Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_server_is_alive_and_ready_and_shows_an_empty_table() {
    let running = Running::start(&[]);
    assert_eq!(running.get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(running.get("/readyz").await, (200, "ready\n".to_owned()));
    let (status, list) = running.get("/").await;
    assert_eq!(status, 200);
    assert!(list.contains("/v1/table"), "{list}");
    let (status, body) = running.get("/v1/table?topics=true").await;
    assert_eq!(status, 200);
    let table = json(&body);
    assert_eq!(table["listening"][0], running.server.addresses()[0].to_string());
    assert_eq!(table["brokers"], serde_json::json!([]));
    assert_eq!(table["counts"]["topics"], 0);
    assert_eq!(table["truncated"], false);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_openmetrics() {
    let running = Running::start(&[]);
    let (status, text) = running.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"), "{text}");
    for name in ["waypost_nameserver_brokers 0", "waypost_nameserver_requests_total{", "uptime_seconds "] {
        assert!(text.contains(name), "{name} is missing in {text}");
    }
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_waits_or_stops_is_not_ready_but_alive() {
    let waiting = Running::start(&[("needWaitForService", "true")]);
    let (status, reason) = waiting.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(reason.contains("needWaitForService"), "{reason}");
    assert_eq!(waiting.get("/healthz").await.0, 200);
    waiting.end().await;

    let stopping = Running::start(&[]);
    stopping.admin.note_stopping();
    assert_eq!(stopping.get("/readyz").await, (503, "the server is stopping\n".to_owned()));
    assert_eq!(stopping.get("/healthz").await.0, 200);
    stopping.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_questions_are_told_what_is_known() {
    let running = Running::start(&[]);
    for path in ["/v1/table?tpoic=a", "/v1/table?limit=-1", "/v1/table?limit=9999999", "/v1/table?topics=7"] {
        let (status, reason) = running.get(path).await;
        assert_eq!(status, 400, "{path}");
        assert!(reason.contains("topics=true, topic=NAME"), "{path}: {reason}");
        assert_eq!(reason.lines().count(), 1, "{path}: {reason}");
    }
    let (status, list) = running.get("/nothing").await;
    assert_eq!(status, 404);
    assert!(list.contains("/metrics"), "{list}");
    assert_eq!(running.ask("DELETE /v1/table HTTP/1.0\r\n\r\n").await.0, 405);
    running.end().await;
}

/// What a slow peer does with its connection.
#[derive(Clone, Copy)]
enum Slow {
    Silent,
    /// Sends its request byte by byte and never ends it.
    Trickling,
    /// Asks and rests.
    Resting,
    /// Sends a request that never ends, to a path that has no body.
    Bodied,
}

/// Holds a connection as long as it may, again and again.
async fn be_slow(admin: SocketAddr, slow: Slow) {
    loop {
        let Ok(mut stream) = TcpStream::connect(admin).await else { continue };
        let mut byte = [0; 1_024];
        match slow {
            Slow::Silent => drop(stream.read(&mut byte).await),
            Slow::Trickling => {
                let begun = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await;
                while begun.is_ok() && stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            Slow::Resting => {
                let asked = stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
                while asked.is_ok() && matches!(stream.read(&mut byte).await, Ok(1..)) {}
            }
            Slow::Bodied => {
                let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
                let asked = stream.write_all(head).await;
                while asked.is_ok() && stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_get_through_seventy_slow_connections() {
    let running = Running::start(&[]);
    let attack = Tasks::new();
    let kinds = [Slow::Silent, Slow::Trickling, Slow::Resting, Slow::Bodied];
    for slow in kinds.iter().cycle().take(70) {
        attack.spawn_until_stopped(be_slow(running.admin.address(), *slow));
    }
    // Each probe comes when all places are taken anew.
    for _ in 0..13 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for path in ["/healthz", "/readyz", "/metrics"] {
            let probe = tokio::time::timeout(Duration::from_secs(5), running.get(path)).await;
            assert!(matches!(probe, Ok((200, _))), "{path}: {probe:?}");
        }
    }
    attack.cancel();
    assert_eq!(attack.drain(Duration::from_secs(20)).await, 0);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_that_is_idle_for_longest_gives_way() {
    let running = Running::start(&[]);
    let mut held = Vec::new();
    for _ in 0..Limits::default().places {
        let mut stream = TcpStream::connect(running.admin.address()).await.expect("a connection");
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("written");
        assert!(stream.read(&mut [0; 1_024]).await.expect("an answer") > 0);
        held.push(stream);
    }
    assert_eq!(running.get("/healthz").await.0, 200);
    let ended = tokio::time::timeout(Duration::from_secs(20), held[0].read(&mut [0; 1_024])).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    // All others are served as before.
    for stream in &mut held[1..] {
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("written");
        assert!(stream.read(&mut [0; 1_024]).await.expect("an answer") > 0);
    }
    drop(held);
    running.end().await;
}

#[tokio::test]
async fn a_request_that_is_long_in_coming_is_closed() {
    let site = bind("127.0.0.1:0".parse().expect("an address"), "adminListen").expect("a port");
    let (address, tasks) = (site.address(), Tasks::new());
    let limits = Limits { head: Duration::from_millis(500), ..Limits::default() };
    site.serve(Router::new().route("/", get(async || "here")), limits, &tasks);
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (earlier, beginning) in [("", ""), ("", "GET / HTTP/1.1\r\nHo"), (request, "G")] {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(earlier.as_bytes()).await.expect("written");
        if !earlier.is_empty() {
            assert!(stream.read(&mut [0; 1_024]).await.expect("an answer") > 0);
        }
        stream.write_all(beginning.as_bytes()).await.expect("written");
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{beginning:?} is waited for");
    }
    tasks.cancel();
    assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_nobody_listed_see_metrics_and_health_only() {
    let running = Running::named("NS1.example.com", &[]);
    let ask = async |path: &str, host: &str| {
        running.ask(&format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n")).await
    };
    for host in [
        "",
        "Host: 127.0.0.1:9880\r\n",
        "Host: [::1]\r\n",
        "Host: localhost\r\n",
        "Host: ns1.example.com:9880\r\n",
    ] {
        for path in ["/", "/v1/table", "/v1/table?topics=true"] {
            assert_eq!(ask(path, host).await.0, 200, "{path} {host}");
        }
        assert_eq!(ask("/nothing", host).await.0, 404, "{host}");
    }
    for host in [
        "Host: evil.example\r\n",
        "Host: evil.example:9880\r\n",
        "Host: ns1.example.com.evil.example\r\n",
        "Host: \r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: \u{e9}.example\r\n",
    ] {
        for path in ["/", "/v1/table", "/v1/table?topics=true", "/v1/nothing", "http://localhost/v1/table"] {
            let (status, reason) = ask(path, host).await;
            assert_eq!(status, 403, "{path} {host}");
            assert!(reason.contains("adminHosts") && !reason.contains("evil"), "{reason}");
        }
        for path in ["/metrics", "/healthz", "/readyz"] {
            assert_eq!(ask(path, host).await.0, 200, "{path} {host}");
        }
    }
    let rebound = ask("http://evil.example/v1/table", "Host: localhost\r\n").await;
    assert_eq!(rebound.0, 403, "the target of the request counts as well");
    running.end().await;
}
