//! Real name servers and agents, and brokers whose every frame the test chooses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_net::watchdog::{Watchdog, WatchdogOptions};
use waypost_rocketmq_access::access::AccessPolicy;
use waypost_rocketmq_agent::agent::{Agent, Options};
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::body::{BodyLimits, DataVersion, RegisterBrokerBody, TopicConfig, TopicRouteData};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Request;

/// Far more than anything here takes, on a machine that is busy with other tests.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const CLUSTER: &str = "c";

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What the servers and agents of one test have on disk.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("waypost-agent-relay-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A name server of its own in this process.
    pub(crate) fn server(&self) -> NameServer {
        self.server_with(&[])
    }

    /// The same with further settings.
    pub(crate) fn server_with(&self, settings: &[(&str, &str)]) -> NameServer {
        let flags = [("listenPort", "0"), ("bindAddress", "127.0.0.1")].iter().chain(settings);
        let flags = flags.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let home = self.0.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir_all(&home).expect("a folder");
        let environment = [("HOME".to_owned(), home.display().to_string())];
        let configuration = Configuration::load(Inputs { file: None, flags, environment }).expect("settings");
        let options = StartOptions { kv_from_backup: false, on_stall: Box::new(|_| {}) };
        NameServer::start(configuration, options).expect("a server")
    }

    /// An agent; those of one folder share their state.
    pub(crate) fn agent(&self, servers: &[SocketAddr]) -> Agent {
        self.agent_with(servers, AccessPolicy::of_agent())
    }

    /// The same with this access.
    pub(crate) fn agent_with(&self, servers: &[SocketAddr], access: AccessPolicy) -> Agent {
        let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let servers = Source::List(servers.iter().map(|server| (*server).into()).collect());
        let state = Some(self.0.join("state"));
        Agent::start(Options {
            listen,
            servers,
            dialer: Dialer::default(),
            access,
            state,
            watchdog: Watchdog::start(WatchdogOptions::default(), |_| {}).expect("a thread"),
        })
        .expect("an agent")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the way of nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes connections and answers nothing.
pub(crate) async fn hung() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    (listener.local_addr().expect("bound"), listener)
}

pub(crate) async fn open(address: SocketAddr) -> Connection {
    Connection::open(&Dialer::default(), &Endpoint::from(address), LONG, &Tasks::new()).await.expect("open")
}

pub(crate) async fn ask(address: SocketAddr, request: &Request<'_>) -> Answer {
    open(address).await.call(request, LONG).await.expect("an answer")
}

/// The route of a topic as a server has it.
pub(crate) async fn route(server: SocketAddr, topic: &str) -> Option<TopicRouteData> {
    let ext = [("topic", topic)];
    let answer = ask(server, &Request { ext: &ext, ..Request::new(request::GET_ROUTEINFO_BY_TOPIC) }).await;
    if answer.code == response::TOPIC_NOT_EXIST {
        return None;
    }
    assert!(answer.is_success(), "{answer:?}");
    Some(TopicRouteData::decode(&answer.body, &BodyLimits::default()).expect("a route"))
}

/// The names of the brokers on a route.
pub(crate) async fn brokers_of(server: SocketAddr, topic: &str) -> Vec<String> {
    let route = route(server, topic).await;
    route.map_or_else(Vec::new, |route| route.broker_datas.into_iter().map(|data| data.broker_name).collect())
}

/// Asks until the answer is yes; how long that took.
pub(crate) async fn until(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

/// Waits until every server has exactly these brokers on the route of a topic.
pub(crate) async fn all_have(
    servers: &[SocketAddr],
    topic: &str,
    brokers: &[&str],
    limit: Duration,
) -> Duration {
    let what = format!("{topic} at {brokers:?} on all of {servers:?}");
    until(&what, limit, async || {
        for server in servers {
            if brokers_of(*server, topic).await != brokers {
                return false;
            }
        }
        true
    })
    .await
}

/// A broker of the agent's machine: a port that accepts, and a connection to the agent.
pub(crate) struct Broker {
    pub(crate) name: &'static str,
    id: &'static str,
    pub(crate) address: String,
    port: Option<TcpListener>,
    agent: SocketAddr,
    connection: Option<Connection>,
    /// Further fields of its registrations.
    pub(crate) fields: Vec<(&'static str, &'static str)>,
}

impl Broker {
    pub(crate) async fn start(name: &'static str, id: &'static str, agent: SocketAddr) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = port.local_addr().expect("bound").to_string();
        let connection = Some(open(agent).await);
        Self { name, id, address, port: Some(port), agent, connection, fields: Vec::new() }
    }

    /// Its connection ends; its port still accepts.
    pub(crate) fn disconnect(&mut self) {
        self.connection.take().expect("connected").close();
    }

    /// Its connection, which stays open, for the caller.
    pub(crate) fn take_connection(&mut self) -> Connection {
        self.connection.take().expect("connected")
    }

    /// A new connection to this agent.
    pub(crate) async fn connect(&mut self, agent: SocketAddr) {
        self.agent = agent;
        self.connection = Some(open(agent).await);
    }

    /// Its process dies: the port refuses, the connection ends.
    pub(crate) fn die(&mut self) {
        self.port = None;
        self.disconnect();
    }

    /// How often its port is dialled within this time, with what waited before.
    pub(crate) async fn dialled(&self, time: Duration) -> usize {
        let port = self.port.as_ref().expect("it lives");
        let mut count = 0;
        let accepting = async {
            while port.accept().await.is_ok() {
                count += 1;
            }
        };
        // It accepts until the time is over.
        let _ = tokio::time::timeout(time, accepting).await;
        count
    }

    /// Sends a frame with its own names over its connection.
    pub(crate) async fn call(&self, code: i32, more: &[(&str, &str)], body: &[u8]) -> Answer {
        let ext = self.ext(more);
        let request = Request { ext: &ext, body, ..Request::new(code) };
        self.connection().call(&request, LONG).await.expect("an answer")
    }

    /// Registers these topics.
    pub(crate) async fn register(&self, topics: &[&str], counter: i64) -> Answer {
        let body = table(topics, counter);
        let crc = body_crc32(&body).to_string();
        let more = [&[("bodyCrc32", crc.as_str())], &self.fields[..]].concat();
        self.call(request::REGISTER_BROKER, &more, &body).await
    }

    /// Asks whether it is known with this version.
    pub(crate) async fn query(&self, counter: i64) -> Answer {
        let mut body = Vec::new();
        version(counter).encode(&mut body);
        self.call(request::QUERY_DATA_VERSION, &[], &body).await
    }

    pub(crate) async fn unregister(&self) -> Answer {
        self.call(request::UNREGISTER_BROKER, &[], &[]).await
    }

    /// Registers with a frame as no code of ours would write it; its bytes.
    pub(crate) async fn register_oddly(&self, topics: &[&str], counter: i64, opaque: i32) -> Bytes {
        let body = table(topics, counter);
        let ext = self.ext(&[("somethingNew", "1 ✓"), ("brokerId2", "")]);
        let request = Request {
            ext: &ext,
            body: &body,
            opaque,
            version: 471,
            remark: Some("said by a broker"),
            ..Request::new(request::REGISTER_BROKER)
        };
        let mut bytes = Vec::new();
        request.write(HeaderEncoding::Binary, &mut bytes);
        let bytes = Bytes::from(bytes);
        let answer = self.connection().exchange(bytes.clone(), opaque, LONG).await.expect("an answer");
        assert!(answer.is_success(), "{answer:?}");
        bytes
    }

    /// A sign of life that wants no answer.
    pub(crate) fn beat(&self) {
        let ext = self.ext(&[]);
        let beat = Request { ext: &ext, oneway: true, ..Request::new(request::BROKER_HEARTBEAT) };
        self.connection().send(&beat).expect("room");
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("connected")
    }

    fn ext<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [
            ("clusterName", CLUSTER),
            ("brokerName", self.name),
            ("brokerAddr", &self.address),
            ("brokerId", self.id),
            ("haServerAddr", "127.0.0.1:1"),
        ];
        own.into_iter().chain(more.iter().copied()).collect()
    }
}

fn version(counter: i64) -> DataVersion {
    DataVersion { state_version: 0, timestamp: 1, counter }
}

pub(crate) fn table(topics: &[&str], counter: i64) -> Vec<u8> {
    let topic = |name: &&str| TopicConfig {
        topic_name: Some((*name).to_owned().into()),
        ..TopicConfig::empty((*name).to_owned().into())
    };
    let body = RegisterBrokerBody {
        data_version: version(counter),
        topics: topics.iter().map(topic).collect(),
        filter_servers: Some(Vec::new()),
        ..RegisterBrokerBody::default()
    };
    let mut bytes = Vec::new();
    body.encode_json(&mut bytes);
    bytes
}
