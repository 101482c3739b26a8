//! Real servers, and peers that misbehave.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_nameserver::config::{Configuration, Inputs};
use waypost_rocketmq_nameserver::{NameServer, StartOptions};
use waypost_rocketmq_registrar::{Identity, Options, Registrar, Role, Topic};
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::source::Source;
use waypost_rocketmq_wire::body::{BodyLimits, TopicRouteData};
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

/// Far more than anything here takes, on a machine that is busy with other tests.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const BROKER: &str = "127.0.0.1:10911";

/// A Waypost NameServer in this process.
pub(crate) struct Server {
    server: Option<NameServer>,
    pub(crate) address: SocketAddr,
    home: PathBuf,
    settings: Vec<(String, String)>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("waypost-registrar-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&home).expect("a folder");
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut this = Self { server: None, address: SocketAddr::from(([127, 0, 0, 1], 0)), home, settings };
        this.start_again();
        this
    }

    /// Starts it, empty, on the port that it had.
    pub(crate) fn start_again(&mut self) {
        let mut flags = vec![
            ("listenPort".to_owned(), self.address.port().to_string()),
            ("bindAddress".to_owned(), "127.0.0.1".to_owned()),
        ];
        flags.extend(self.settings.clone());
        let environment = [("HOME".to_owned(), self.home.display().to_string())];
        let configuration = Configuration::load(Inputs { file: None, flags, environment }).expect("settings");
        let options = StartOptions { kv_from_backup: false, on_stall: Box::new(|_| {}) };
        let server = NameServer::start(configuration, options).expect("a server");
        self.address = server.addresses()[0];
        self.server = Some(server);
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// A client of one server.
pub(crate) struct Client {
    connection: Connection,
    _tasks: Tasks,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let tasks = Tasks::new();
        let endpoint = Endpoint::from(address);
        let connection =
            Connection::open(&Dialer::default(), &endpoint, LONG, &tasks).await.expect("a connection");
        Self { connection, _tasks: tasks }
    }

    pub(crate) async fn ask(
        &self,
        code: i32,
        ext: &[(&str, &str)],
    ) -> waypost_rocketmq_remoting::answer::Answer {
        self.connection.call(&Request { ext, ..Request::new(code) }, LONG).await.expect("an answer")
    }

    /// The route of a topic, if there is one.
    pub(crate) async fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let answer = self.ask(request::GET_ROUTEINFO_BY_TOPIC, &[("topic", topic)]).await;
        answer
            .is_success()
            .then(|| TopicRouteData::decode(&answer.body, &BodyLimits::default()).expect("a route"))
    }

    pub(crate) async fn wait_for_route(&self, topic: &str) -> TopicRouteData {
        let mut found = None;
        until(topic, async || {
            found = self.route(topic).await;
            found.is_some()
        })
        .await;
        found.expect("until saw it")
    }
}

/// Polls until `condition` holds; returns how long that took.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < LONG, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    started.elapsed()
}

pub(crate) fn options(servers: &[SocketAddr]) -> Options {
    let list: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let identity = Identity::new("TestCluster", "broker-a", BROKER.parse().expect("an address"));
    let mut options = Options::new(identity, Source::parse(&list.join(";")).expect("a list"));
    options.role = Role::Master;
    options.topics = vec![Topic::new("first", 4)];
    options
}

pub(crate) fn start(servers: &[SocketAddr]) -> Registrar {
    Registrar::start(options(servers)).expect("a registrar")
}

/// A listener that accepts and never reads: what a stopped process looks like.
pub(crate) struct Hung {
    pub(crate) address: SocketAddr,
    _task: AbortOnDrop,
    pub(crate) accepted: Arc<AtomicUsize>,
}

impl Hung {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                held.push(listener.accept().await);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { address, _task: AbortOnDrop(task), accepted }
    }
}

/// Carries bytes to a server and back; what it carries can be held up.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Connections that exist when this is set carry nothing more, and what they carry is lost.
    dead_before: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    /// Nothing is carried, on any connection, while this is set; it comes later.
    held: Arc<AtomicBool>,
    _task: AbortOnDrop,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (dead_before, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let held = Arc::new(AtomicBool::new(false));
        let (dead, count, holding) = (Arc::clone(&dead_before), Arc::clone(&accepted), Arc::clone(&held));
        let task = tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { return };
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (dead, holding) = (Arc::clone(&dead), Arc::clone(&holding));
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(server).await else { return };
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    let carries = move || number >= dead.load(Ordering::SeqCst);
                    let held = move || holding.load(Ordering::SeqCst);
                    tokio::join!(
                        carry(near_read, far_write, carries.clone(), held.clone()),
                        carry(far_read, near_write, carries, held)
                    );
                });
            }
        });
        Self { address, dead_before, accepted, held, _task: AbortOnDrop(task) }
    }

    /// The connections of now carry nothing from now on, but stay open.
    pub(crate) fn deaden(&self) {
        self.dead_before.store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    carries: impl Fn() -> bool,
    held: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 65_536];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        while held() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if carries() && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

pub(crate) struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
