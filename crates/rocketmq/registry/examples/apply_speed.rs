//! Prints what registrations and removals of a broker with many topics cost, and what the table weighs.
//!
//! `cargo run --release -p waypost-rocketmq-registry --example apply_speed [TOPICS]`
//!
//! Times are CPU time of the thread; the best and the median of the rounds.

// Measuring is what this program is for.
#![allow(clippy::disallowed_methods)]

use std::borrow::Cow;
use std::time::{Duration, Instant};

use waypost_rocketmq_registry::{
    Announcement, BodyDigest, BrokerIdentity, Command, ConnectionEnd, ConnectionId, Effects, Outcome, Policy,
    Registration, RouteIndex, RouteTable, TableLimits,
};
use waypost_rocketmq_wire::body::{DataVersion, RegisterBrokerBody, TopicConfig};

const BROKERS: usize = 4;
const ROUNDS: usize = 9;

fn main() {
    let topics = std::env::args().nth(1).map_or(50_000, |count| count.parse().expect("a number of topics"));
    println!("{topics} topics, {BROKERS} brokers");
    let body = body(topics);
    let started_with = resident_kib();
    let mut server = Server::new();

    let cost = [server.register(0, &body, None)];
    show("first broker registers", &cost);
    let before = server.changed;
    show("the same body again", &server.rounds(|server, _| server.register(0, &body, None)));
    show("the same body under another version", &{
        let mut body = body.clone();
        server.rounds(|server, round| {
            body.data_version.counter = i64::try_from(round).expect("few rounds");
            server.register(0, &body, None)
        })
    });
    assert_eq!(server.changed, before, "nothing changed");
    show("one topic changed", &{
        let mut body = body.clone();
        server.rounds(|server, round| {
            body.topics[round].perm = 4;
            server.register(0, &body, None)
        })
    });
    assert_eq!(server.changed, before + ROUNDS, "one topic each time");
    server.register(0, &body, Some(BodyDigest(1)));
    show("the same digest again", &server.rounds(|server, _| server.renew(0, BodyDigest(1))));

    let others: Vec<_> = (1..BROKERS).map(|broker| server.register(broker, &body, None)).collect();
    show("other brokers register", &others);
    println!("{:42} {:8.1} MiB", "resident for the table and the index", mib(resident_kib() - started_with));
    show("a broker is lost, with its publication", &{
        server.rounds(|server, _| {
            let cost = server.lose(1);
            server.register(1, &body, None);
            cost
        })
    });
    println!("{:42} {:8.1} MiB", "resident after that", mib(resident_kib() - started_with));
    for broker in 0..BROKERS {
        server.lose(broker);
    }
    assert!(server.index.is_empty());
}

struct Server {
    table: RouteTable,
    index: RouteIndex,
    changed: usize,
}

impl Server {
    fn new() -> Self {
        let table = RouteTable::new(Policy::default(), TableLimits::default());
        Self { table, index: RouteIndex::new(), changed: 0 }
    }

    fn rounds(&mut self, mut once: impl FnMut(&mut Self, usize) -> Duration) -> Vec<Duration> {
        (0..ROUNDS).map(|round| once(self, round)).collect()
    }

    fn register(
        &mut self,
        broker: usize,
        body: &RegisterBrokerBody<'_>,
        digest: Option<BodyDigest>,
    ) -> Duration {
        self.announce(broker, Announcement::Full(body, digest))
    }

    fn renew(&mut self, broker: usize, digest: BodyDigest) -> Duration {
        self.announce(broker, Announcement::Digest(digest))
    }

    fn announce(&mut self, broker: usize, body: Announcement<'_>) -> Duration {
        let (name, address) = (format!("broker-{broker}"), format!("10.0.0.{broker}:10911"));
        let identity = BrokerIdentity {
            cluster: "cluster",
            broker: &name,
            address: &address,
            id: 0,
            ha_address: None,
            zone: None,
            timeout: None,
            acting_master: Some(false),
        };
        let connection = connection(broker);
        let (effects, cost) = self.apply(Command::Register(Registration { identity, body, connection }));
        assert!(matches!(effects.outcome, Outcome::Registered { .. }), "{:?}", effects.outcome);
        cost
    }

    fn lose(&mut self, broker: usize) -> Duration {
        let (connection, how) = (connection(broker), ConnectionEnd::Closed);
        self.apply(Command::ConnectionLost { connection, how }).1
    }

    /// Applies a command and publishes what follows.
    fn apply(&mut self, command: Command<'_>) -> (Effects, Duration) {
        let start = cpu_time();
        let effects = self.table.apply(command, Duration::ZERO);
        self.index.publish(&effects.changed);
        let cost = cpu_time() - start;
        self.changed += effects.changed.len();
        (effects, cost)
    }
}

fn connection(broker: usize) -> ConnectionId {
    ConnectionId(u64::try_from(broker).expect("few brokers"))
}

fn body(topics: usize) -> RegisterBrokerBody<'static> {
    let topics = (0..topics).map(|number| {
        let name = format!("orders-of-region-{number:06}");
        TopicConfig {
            topic_name: Some(Cow::Owned(name.clone())),
            read_queue_nums: 8,
            write_queue_nums: 8,
            ..TopicConfig::empty(Cow::Owned(name))
        }
    });
    RegisterBrokerBody {
        data_version: DataVersion { state_version: 0, timestamp: 1, counter: 1_000 },
        topics: topics.collect(),
        ..RegisterBrokerBody::default()
    }
}

fn show(what: &str, costs: &[Duration]) {
    let mut costs = costs.to_vec();
    costs.sort_unstable();
    let millis = |cost: Duration| cost.as_secs_f64() * 1e3;
    println!("{what:42} {:8.3} ms best, {:8.3} ms median", millis(costs[0]), millis(costs[costs.len() / 2]));
}

fn mib(kib: usize) -> f64 {
    f64::from(u32::try_from(kib).expect("less than 4 TiB")) / 1024.0
}

/// CPU time of this thread where the system tells it, else the time that passed.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(
        || {
            static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            START.get_or_init(Instant::now).elapsed()
        },
        Duration::from_nanos,
    )
}

/// Resident memory of the process; 0 where the system does not tell it.
fn resident_kib() -> usize {
    let told = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
