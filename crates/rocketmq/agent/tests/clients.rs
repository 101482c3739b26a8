//! Clients of an agent among real name servers, some of which hang or are gone.
#![allow(clippy::disallowed_methods, reason = "tests measure how long calls take")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_net::watchdog::{Watchdog, WatchdogOptions};
use waypost_rocketmq_access::access::AccessPolicy;
use waypost_rocketmq_agent::agent::{Agent, Options};
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};
use waypost_rocketmq_registrar::{Identity, Options as RegistrarOptions, Quorum, Registrar, Role, Topic};
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::message::Request;
use waypost_rocketmq_wire::version::{V4_9_4, V5_5_0};

/// Far more than anything here takes, on a machine that is busy with other tests.
const LONG: Duration = Duration::from_secs(20);

static NUMBER: AtomicU64 = AtomicU64::new(0);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("waypost-agent-clients-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the way of nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server(folder: &Folder) -> NameServer {
    let flags =
        vec![("listenPort".to_owned(), "0".to_owned()), ("bindAddress".to_owned(), "127.0.0.1".to_owned())];
    let home = folder.0.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir_all(&home).expect("a folder");
    let environment = [("HOME".to_owned(), home.display().to_string())];
    let configuration = Configuration::load(Inputs { file: None, flags, environment }).expect("settings");
    let options = StartOptions { kv_from_backup: false, on_stall: Box::new(|_| {}) };
    NameServer::start(configuration, options).expect("a server")
}

fn watchdog() -> Watchdog {
    Watchdog::start(WatchdogOptions::default(), |_| {}).expect("a thread")
}

fn source(servers: &[SocketAddr]) -> Source {
    Source::List(servers.iter().map(|server| (*server).into()).collect())
}

fn agent(servers: &[SocketAddr], folder: &Folder) -> Agent {
    let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let state = Some(folder.0.join("state"));
    Agent::start(Options {
        listen,
        servers: source(servers),
        dialer: Dialer::default(),
        access: AccessPolicy::of_agent(),
        state,
        watchdog: watchdog(),
    })
    .expect("an agent")
}

async fn broker(servers: &[SocketAddr], name: &str, zone: &str, topics: &[&str]) -> Registrar {
    let address = format!("127.0.0.1:{}", 20_000 + NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut identity = Identity::new("c", name, address.parse().expect("an address"));
    identity.zone = Some(zone.to_owned());
    let registrar = Registrar::start(RegistrarOptions {
        role: Role::Master,
        topics: topics.iter().map(|topic| Topic::new(topic, 4)).collect(),
        ..RegistrarOptions::new(identity, source(servers))
    })
    .expect("a broker");
    registrar.wait_registered(Quorum::All, LONG).await.expect("registered");
    registrar
}

async fn ask(address: SocketAddr, request: &Request<'_>) -> Answer {
    let endpoint = Endpoint::from(address);
    let connection =
        Connection::open(&Dialer::default(), &endpoint, LONG, &Tasks::new()).await.expect("open");
    connection.call(request, LONG).await.expect("an answer")
}

fn route<'a>(ext: &'a [(&'a str, &'a str)], version: i32) -> Request<'a> {
    Request { ext, version, ..Request::new(request::GET_ROUTEINFO_BY_TOPIC) }
}

/// Takes connections and answers nothing.
async fn hung() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    (listener.local_addr().expect("bound"), listener)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_operators_from_elsewhere_are_refused_and_reach_no_server() {
    let folder = Folder::new();
    let name_server = server(&folder);
    let servers = [name_server.addresses()[0]];
    let options = |access| Options {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        servers: source(&servers),
        dialer: Dialer::default(),
        access,
        state: None,
        watchdog: watchdog(),
    };
    let kv = [("namespace", "n"), ("key", "k"), ("value", "v")];
    let put = Request { ext: &kv, ..Request::new(request::PUT_KV_CONFIG) };
    let get = Request { ext: &kv[..2], ..Request::new(request::GET_KV_CONFIG) };
    // Every caller of this test is a loopback one: the list has to leave it out.
    let elsewhere = "10.0.0.0/8".parse().expect("networks");
    let closed =
        Agent::start(options(AccessPolicy { admin: elsewhere, ..AccessPolicy::of_agent() })).expect("one");
    for code in [100, 102, 205, 216, 318, 327] {
        let answer = ask(closed.addresses()[0], &Request { ext: &kv, ..Request::new(code) }).await;
        assert_eq!(answer.code, response::NO_PERMISSION, "{code}: {answer:?}");
    }
    let remark = ask(closed.addresses()[0], &put).await.remark.expect("a reason");
    assert!(remark.contains("from 127.0.0.1 is not allowed"), "{remark}");
    assert!(remark.ends_with("--access-admin of the agent"), "{remark}");
    assert_eq!(ask(servers[0], &get).await.code, response::QUERY_NOT_FOUND);
    assert!(closed.metrics_text().await.contains("waypost_agent_refused_requests_total 7"));
    let open = Agent::start(options(AccessPolicy::of_agent())).expect("one");
    assert_eq!(ask(open.addresses()[0], &put).await.code, response::SUCCESS);
    assert_eq!(ask(servers[0], &get).await.code, response::SUCCESS);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_servers_own_to_the_byte() {
    let folder = Folder::new();
    let name_server = server(&folder);
    let servers = [name_server.addresses()[0]];
    let _a = broker(&servers, "a", "zone-1", &["T"]).await;
    let _b = broker(&servers, "b", "zone-2", &["T"]).await;
    let agent = agent(&servers, &folder);
    let zone = [("topic", "T"), ("__ZONE_MODE", "true"), ("__ZONE_NAME", "zone-1")];
    let questions = [
        route(&[("topic", "T")], V5_5_0),
        route(&[("topic", "T")], V4_9_4 - 1),
        route(&zone, V5_5_0),
        route(&zone, V4_9_4 - 1),
        route(&[("topic", "a")], V5_5_0),
        route(&[("topic", "nope")], V5_5_0),
        Request::new(request::GET_BROKER_CLUSTER_INFO),
        Request::new(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        Request {
            ext: &[("clusterName", "c"), ("brokerName", "a")],
            ..Request::new(request::GET_BROKER_MEMBER_GROUP)
        },
    ];
    for question in questions {
        // The second answer comes from what the agent holds ready.
        for _ in 0..2 {
            let (mine, theirs) =
                tokio::join!(ask(agent.addresses()[0], &question), ask(servers[0], &question));
            assert_eq!(mine, theirs, "{question:?}");
        }
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_waits_for_a_hung_server() {
    let folder = Folder::new();
    let live = [server(&folder), server(&folder)];
    let lived = [live[0].addresses()[0], live[1].addresses()[0]];
    let (hung, _listener) = hung().await;
    let _broker = broker(&lived, "a", "", &["T", "U"]).await;
    let agent = agent(&[lived[0], hung, lived[1]], &folder);
    for topic in ["T", "nope", "U", "never", "T", "nowhere"] {
        let began = Instant::now();
        let answer = ask(agent.addresses()[0], &route(&[("topic", topic)], V5_5_0)).await;
        let expected = if topic.starts_with('n') { response::TOPIC_NOT_EXIST } else { response::SUCCESS };
        assert_eq!(answer.code, expected, "{topic}: {answer:?}");
        // A hung server has 3 s.
        assert!(began.elapsed() < Duration::from_millis(2_500), "{topic}: {:?}", began.elapsed());
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_found_as_soon_as_a_server_has_it_whatever_was_answered_before() {
    let folder = Folder::new();
    let name_server = server(&folder);
    let servers = [name_server.addresses()[0]];
    let agent = agent(&servers, &folder);
    for number in 0..3 {
        let (name, topic) = (format!("b{number}"), format!("T{number}"));
        let question = [("topic", topic.as_str())];
        let absent = ask(agent.addresses()[0], &route(&question, V5_5_0)).await;
        assert_eq!(absent.code, response::TOPIC_NOT_EXIST, "{absent:?}");
        let _broker = broker(&servers, &name, "", &[&topic]).await;
        let found = ask(agent.addresses()[0], &route(&question, V5_5_0)).await;
        assert!(found.is_success(), "{found:?}");
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_unknown_topic_too_many_is_told_instead_of_asked_for() {
    const ASKED: usize = 260;
    let folder = Folder::new();
    let (hung, _listener) = hung().await;
    let agent = agent(&[hung], &folder);
    let mut connections = Vec::new();
    for _ in 0..ASKED {
        let endpoint = Endpoint::from(agent.addresses()[0]);
        connections
            .push(Connection::open(&Dialer::default(), &endpoint, LONG, &Tasks::new()).await.expect("open"));
    }
    let mut calls = tokio::task::JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        calls.spawn(async move {
            let topic = format!("T{number}");
            connection.call(&route(&[("topic", &topic)], V5_5_0), LONG).await.expect("an answer")
        });
    }
    let answers = calls.join_all().await;
    let refused: Vec<&Answer> =
        answers.iter().filter(|answer| answer.code == response::SYSTEM_BUSY).collect();
    assert_eq!(refused.len(), ASKED - 256, "{refused:?}");
    let remark = refused[0].remark.as_deref().expect("a reason");
    assert!(remark.contains("256 unknown topics"), "{remark}");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn known_routes_survive_all_servers_and_the_agent() {
    let folder = Folder::new();
    let name_server = server(&folder);
    let servers = [name_server.addresses()[0]];
    let broker = broker(&servers, "a", "", &["T"]).await;
    let question = route(&[("topic", "T")], V5_5_0);
    let first = agent(&servers, &folder);
    let before = ask(first.addresses()[0], &question).await;
    assert!(before.is_success());
    broker.close(LONG).await;
    name_server.shutdown().await;
    first.shutdown().await;
    // Damage beside what is whole does not stop the start.
    let saved = folder.0.join("state/routes.tsv");
    let mut routes = std::fs::read(&saved).expect("saved routes");
    routes.extend_from_slice(b"U\xff\t1\t{}\n");
    std::fs::write(&saved, routes).expect("written");
    std::fs::write(folder.0.join("state/brokers"), "no folder").expect("written");
    // Its whole world is down when it starts.
    let second = agent(&servers, &folder);
    let began = Instant::now();
    let after = ask(second.addresses()[0], &question).await;
    assert_eq!(after.body, before.body);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    let status = second.status().await;
    assert_eq!((status.routes, status.stale_routes), (1, 1));
    let unknown = ask(second.addresses()[0], &route(&[("topic", "nope")], V5_5_0)).await;
    assert_eq!(unknown.code, response::SYSTEM_ERROR);
    let remark = unknown.remark.expect("a reason");
    assert!(remark.contains("no name server answered"), "{remark}");
    // Its name, and its last word, which names it again.
    assert!(remark.matches(&servers[0].to_string()).count() <= 2, "{remark}");
    assert!(remark.len() <= 500, "{remark}");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_to_every_server_or_name_those_that_have_them_not() {
    let folder = Folder::new();
    let live = [server(&folder), server(&folder)];
    let servers = [live[0].addresses()[0], live[1].addresses()[0]];
    let agent = agent(&servers, &folder);
    let fields = [("namespace", "N"), ("key", "k"), ("value", "v")];
    let put = Request { ext: &fields, ..Request::new(request::PUT_KV_CONFIG) };
    assert!(ask(agent.addresses()[0], &put).await.is_success());
    let get = Request { ext: &fields[..2], ..Request::new(request::GET_KV_CONFIG) };
    for server in servers {
        assert_eq!(ask(server, &get).await.field("value"), Some("v"), "{server}");
    }
    live[1].shutdown().await;
    let refused = ask(agent.addresses()[0], &put).await;
    assert_eq!(refused.code, response::SYSTEM_ERROR);
    let remark = refused.remark.expect("a reason");
    assert!(
        remark.starts_with("1 of 2 name servers") && remark.contains(&servers[1].to_string()),
        "{remark}"
    );

    let update = Request { body: b"a=b", ..Request::new(request::UPDATE_NAMESRV_CONFIG) };
    assert_eq!(ask(agent.addresses()[0], &update).await.code, response::NO_PERMISSION);
    assert_eq!(
        ask(agent.addresses()[0], &Request::new(999)).await.code,
        response::REQUEST_CODE_NOT_SUPPORTED
    );
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_seen_within_five_seconds_and_the_list_can_be_replaced() {
    let folder = Folder::new();
    let (first, second) = (server(&folder), server(&folder));
    let servers = [first.addresses()[0]];
    let broker = broker(&servers, "a", "", &["T"]).await;
    let agent = agent(&servers, &folder);
    let question = route(&[("topic", "T")], V5_5_0);
    let before = ask(agent.addresses()[0], &question).await;
    broker.set_topic(Topic::new("T", 8)).expect("a topic");
    let began = Instant::now();
    while ask(agent.addresses()[0], &question).await.body == before.body {
        assert!(began.elapsed() < Duration::from_secs(8), "the change was not seen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let list = [second.addresses()[0]].iter().map(|address| (*address).into()).collect();
    agent.replace_servers(list);
    let replaced = async || {
        let status = agent.status().await;
        status.servers.len() == 1 && status.servers[0].server == second.addresses()[0].to_string()
    };
    let began = Instant::now();
    while !replaced().await {
        assert!(began.elapsed() < LONG, "the list was not replaced");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_in_its_own_list_under_a_name_does_not_ask_itself() {
    let folder = Folder::new();
    let name_server = server(&folder);
    let servers = [name_server.addresses()[0]];
    let _broker = broker(&servers, "a", "", &["T"]).await;
    let agent = agent(&servers, &folder);
    let own = agent.addresses()[0];
    let list = format!("localhost:{};localhost:{}", own.port(), servers[0].port());
    agent.replace_servers(waypost_rocketmq_remoting::list::read(&list).servers);
    let began = Instant::now();
    while agent.status().await.servers.iter().all(|server| !server.server.starts_with("localhost")) {
        assert!(began.elapsed() < LONG, "the list was not replaced");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = ask(own, &route(&[("topic", "T")], V5_5_0)).await;
    assert!(answer.is_success(), "{answer:?}");
    let itself = format!("localhost:{} ({own})", own.port());
    let status = agent.status().await;
    assert!(status.servers.iter().all(|server| server.server != itself), "{:?}", status.servers);
    agent.shutdown().await;
}
