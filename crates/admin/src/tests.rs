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
        let listeners = bind("127.0.0.1:0".parse().expect("an address"), "adminListen").expect("a port");
        let admin = Admin::start(listeners, server.view(), server.addresses(), &tasks);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_the_limit_are_closed_at_once() {
    let running = Running::start(&[]);
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        held.push(TcpStream::connect(running.admin.address()).await.expect("a connection"));
    }
    let mut over = TcpStream::connect(running.admin.address()).await.expect("a connection");
    let ended = tokio::time::timeout(Duration::from_secs(20), over.read(&mut [0; 1])).await;
    // Closed or reset: it was not served.
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    drop(held);
    let deadline = waypost_net::clock::Clock::system().now().after(Duration::from_secs(20));
    loop {
        let mut stream = TcpStream::connect(running.admin.address()).await.expect("a connection");
        let mut answer = Vec::new();
        // A connection over the limit may be reset while it writes.
        let written = stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.is_ok();
        if written && stream.read_to_end(&mut answer).await.is_ok() && answer.starts_with(b"HTTP/1.0 200") {
            break;
        }
        assert!(waypost_net::clock::Clock::system().now() < deadline, "no place is given back");
        tokio::task::yield_now().await;
    }
    running.end().await;
}
