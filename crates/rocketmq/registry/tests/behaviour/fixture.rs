//! A table with its index and a clock that the test sets, brokers that say what they are told to, and
//! short texts for what comes out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_registry::{
    Announcement, BodyDigest, BrokerIdentity, BrokerRow, Command, ConflictKind, ConnectionEnd, ConnectionId,
    Effects, Event, Outcome, Policy, Registration, RemovalCause, Route, RouteIndex, RouteTable, Sign,
    TableLimits, Unregistration,
};
use waypost_rocketmq_wire::body::{
    DataVersion, QueueData, RegisterBrokerBody, TopicConfig, TopicQueueMapping, TopicRouteData,
};

pub(crate) struct World {
    pub(crate) table: RouteTable,
    pub(crate) index: RouteIndex,
    pub(crate) now: Duration,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy);
        Self::limited(policy, TableLimits::default())
    }

    pub(crate) fn limited(policy: Policy, limits: TableLimits) -> Self {
        Self { table: RouteTable::new(policy, limits), index: RouteIndex::new(), now: Duration::ZERO }
    }

    pub(crate) fn apply(&mut self, command: Command<'_>) -> Effects {
        let effects = self.table.apply(command, self.now);
        self.index.publish(&effects.changed);
        effects
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    pub(crate) fn register(&mut self, broker: &Broker) -> Effects {
        let body = broker.body();
        self.apply(broker.register(Announcement::Full(&body, Some(broker.digest()))))
    }

    /// Says only the digest of the body.
    pub(crate) fn renew(&mut self, broker: &Broker) -> Effects {
        self.apply(broker.register(Announcement::Digest(broker.digest())))
    }

    pub(crate) fn unregister(&mut self, broker: &Broker) -> Effects {
        let (name, address) = (&*broker.name, &*broker.address);
        let connection = ConnectionId(broker.connection);
        let id = Some(broker.id);
        self.apply(Command::Unregister(Unregistration { broker: name, address, id, connection }))
    }

    pub(crate) fn heartbeat(&mut self, broker: &Broker) -> Effects {
        self.apply(Command::Heartbeat(broker.sign()))
    }

    /// 322 with the broker's version: whether it should register again.
    pub(crate) fn asks(&mut self, broker: &Broker) -> bool {
        let version = Some(broker.version);
        match self.apply(Command::QueryDataVersion { sign: broker.sign(), version }).outcome {
            Outcome::DataVersion { changed, .. } => changed,
            other => panic!("322 was answered {other:?}"),
        }
    }

    pub(crate) fn lose(&mut self, connection: u64, how: ConnectionEnd) -> Effects {
        self.apply(Command::ConnectionLost { connection: ConnectionId(connection), how })
    }

    pub(crate) fn close(&mut self, connection: u64) -> Effects {
        self.lose(connection, ConnectionEnd::Closed)
    }

    /// Says that nothing came over a connection for long.
    pub(crate) fn idle(&mut self, connection: u64) -> Effects {
        self.apply(Command::ConnectionIdle { connection: ConnectionId(connection) })
    }

    pub(crate) fn tick(&mut self) -> Effects {
        self.apply(Command::Tick)
    }

    /// Ticks every second for a while; everything that was removed meanwhile, with the cause.
    pub(crate) fn run(&mut self, seconds: u64) -> Vec<(String, RemovalCause)> {
        let mut gone = removed(&self.tick());
        for _ in 0..seconds {
            self.wait(1_000);
            gone.extend(removed(&self.tick()));
        }
        gone
    }

    pub(crate) fn set_policy(&mut self, change: impl FnOnce(&mut Policy)) -> Effects {
        let mut policy = *self.table.policy();
        change(&mut policy);
        self.apply(Command::SetPolicy(policy))
    }

    pub(crate) fn wipe(&mut self, broker: &str) -> Outcome {
        self.apply(Command::WipeWritePermission { broker }).outcome
    }

    pub(crate) fn add(&mut self, broker: &str) -> Outcome {
        self.apply(Command::AddWritePermission { broker }).outcome
    }

    pub(crate) fn register_topic(&mut self, topic: &str, queues: &[QueueData]) -> Effects {
        self.apply(Command::RegisterTopic { topic, queues })
    }

    pub(crate) fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) -> Effects {
        self.apply(Command::DeleteTopic { topic, cluster })
    }

    pub(crate) fn published(&self, topic: &str) -> Option<Arc<Route>> {
        self.index.route(topic)
    }

    /// The route of a topic as a short text, `none` if it has none.
    pub(crate) fn route(&self, topic: &str) -> String {
        self.published(topic).map_or_else(|| "none".to_owned(), |route| text(&route.data()))
    }

    /// The permission that readers see of a topic on its only broker.
    pub(crate) fn perm(&self, topic: &str) -> i32 {
        let data = self.published(topic).expect("the topic has a route").data();
        assert_eq!(data.queue_datas.len(), 1, "{}", text(&data));
        data.queue_datas[0].perm
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.table.all_topics().topic_list
    }

    pub(crate) fn row(&self, address: &str) -> Option<BrokerRow> {
        self.table.brokers().into_iter().find(|row| &*row.address == address)
    }

    /// Everybody, as `cluster/name id address`.
    pub(crate) fn members(&self) -> Vec<String> {
        let rows = self.table.brokers();
        rows.iter().map(|row| format!("{}/{} {} {}", row.cluster, row.broker, row.id, row.address)).collect()
    }
}

/// A broker and what it says.
#[derive(Clone)]
pub(crate) struct Broker {
    pub(crate) cluster: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) id: i64,
    pub(crate) ha_address: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) acting_master: Option<bool>,
    pub(crate) connection: u64,
    pub(crate) version: DataVersion,
    pub(crate) topics: Vec<TopicConfig<'static>>,
    pub(crate) mappings: Vec<(String, TopicQueueMapping)>,
    pub(crate) filter_servers: Option<Vec<String>>,
}

/// A 5.x broker of cluster `c1` without acting master and without topics, on connection 1.
pub(crate) fn broker(name: &str, id: i64, address: &str) -> Broker {
    Broker {
        cluster: "c1".to_owned(),
        name: name.to_owned(),
        address: address.to_owned(),
        id,
        ha_address: Some(format!("{address}-ha")),
        zone: None,
        timeout: None,
        acting_master: Some(false),
        connection: 1,
        version: version(1),
        topics: Vec::new(),
        mappings: Vec::new(),
        filter_servers: Some(Vec::new()),
    }
}

/// A master with topics.
pub(crate) fn master(name: &str, address: &str, topics: &[&str]) -> Broker {
    broker(name, 0, address).topics(topics)
}

pub(crate) fn version(counter: i64) -> DataVersion {
    DataVersion { state_version: 0, timestamp: 9, counter }
}

/// A topic with 8 queues.
pub(crate) fn topic(name: &str, perm: i32) -> TopicConfig<'static> {
    TopicConfig {
        topic_name: Some(Cow::Owned(name.to_owned())),
        read_queue_nums: 8,
        write_queue_nums: 8,
        perm,
        ..TopicConfig::empty(Cow::Owned(name.to_owned()))
    }
}

pub(crate) fn queues(broker: &str, perm: i32) -> QueueData {
    QueueData {
        broker_name: broker.to_owned(),
        read_queue_nums: 8,
        write_queue_nums: 8,
        perm,
        topic_sys_flag: 0,
    }
}

pub(crate) fn mapping(topic: &str, broker: &str, epoch: i64) -> (String, TopicQueueMapping) {
    let mapping = TopicQueueMapping {
        bname: Some(broker.to_owned()),
        topic: Some(topic.to_owned()),
        scope: Some("__global__".to_owned()),
        total_queues: 2,
        epoch,
        dirty: false,
        curr_id_map: BTreeMap::from([(0, 0), (1, 1)]),
    };
    (topic.to_owned(), mapping)
}

impl Broker {
    /// Topics with 8 queues and permission 6, in place of those that it had.
    pub(crate) fn topics(mut self, names: &[&str]) -> Self {
        self.topics = names.iter().map(|name| topic(name, 6)).collect();
        self
    }

    pub(crate) fn topic(mut self, name: &str, perm: i32) -> Self {
        self.topics.push(topic(name, perm));
        self
    }

    /// Changes the permission of one of its topics.
    pub(crate) fn perm(mut self, name: &str, perm: i32) -> Self {
        let topic = self.topics.iter_mut().find(|topic| topic.key == name);
        topic.expect("the broker has the topic").perm = perm;
        self
    }

    pub(crate) fn mapping(mut self, topic: &str, broker: &str, epoch: i64) -> Self {
        self.mappings.push(mapping(topic, broker, epoch));
        self
    }

    pub(crate) fn version(mut self, counter: i64) -> Self {
        self.version = version(counter);
        self
    }

    pub(crate) fn state(mut self, state_version: i64) -> Self {
        self.version.state_version = state_version;
        self
    }

    pub(crate) fn on(mut self, connection: u64) -> Self {
        self.connection = connection;
        self
    }

    pub(crate) fn in_cluster(mut self, cluster: &str) -> Self {
        cluster.clone_into(&mut self.cluster);
        self
    }

    pub(crate) fn in_zone(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_owned());
        self
    }

    pub(crate) fn acting(mut self, acting_master: Option<bool>) -> Self {
        self.acting_master = acting_master;
        self
    }

    pub(crate) fn timeout(mut self, millis: u64) -> Self {
        self.timeout = Some(Duration::from_millis(millis));
        self
    }

    pub(crate) fn filter(mut self, servers: Option<&[&str]>) -> Self {
        self.filter_servers =
            servers.map(|servers| servers.iter().map(|&server| server.to_owned()).collect());
        self
    }

    pub(crate) fn with_id(mut self, id: i64) -> Self {
        self.id = id;
        self
    }

    pub(crate) fn body(&self) -> RegisterBrokerBody<'static> {
        let mappings = self.mappings.iter();
        RegisterBrokerBody {
            data_version: self.version,
            topics: self.topics.clone(),
            mappings: mappings.map(|(topic, mapping)| (Cow::Owned(topic.clone()), mapping.clone())).collect(),
            filter_servers: self.filter_servers.clone(),
        }
    }

    /// Of the text of the body: FNV-1a.
    pub(crate) fn digest(&self) -> BodyDigest {
        let mut bytes = Vec::new();
        self.body().encode_json(&mut bytes);
        let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
        BodyDigest(bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step))
    }

    pub(crate) fn register<'a>(&'a self, body: Announcement<'a>) -> Command<'a> {
        let identity = BrokerIdentity {
            cluster: &self.cluster,
            broker: &self.name,
            address: &self.address,
            id: self.id,
            ha_address: self.ha_address.as_deref(),
            zone: self.zone.as_deref(),
            timeout: self.timeout,
            acting_master: self.acting_master,
        };
        Command::Register(Registration { identity, body, connection: ConnectionId(self.connection) })
    }

    pub(crate) fn sign(&self) -> Sign<'_> {
        let connection = ConnectionId(self.connection);
        Sign { cluster: &self.cluster, address: &self.address, connection }
    }
}

/// `name@cluster{id:address,..} read/write perm`, then what is out of the ordinary; groups in order.
pub(crate) fn text(data: &TopicRouteData) -> String {
    assert_eq!(data.queue_datas.len(), data.broker_datas.len(), "{data:?}");
    let groups = data.broker_datas.iter().zip(&data.queue_datas).map(|(broker, queues)| {
        assert_eq!(broker.broker_name, queues.broker_name, "{data:?}");
        let members: Vec<String> =
            broker.broker_addrs.iter().map(|(id, address)| format!("{id}:{address}")).collect();
        let mut text = format!(
            "{}@{}{{{}}} {}/{} {}",
            broker.broker_name,
            broker.cluster,
            members.join(","),
            queues.read_queue_nums,
            queues.write_queue_nums,
            queues.perm
        );
        if queues.topic_sys_flag != 0 {
            text += &format!(" flag={}", queues.topic_sys_flag);
        }
        if let Some(zone) = &broker.zone_name {
            text += &format!(" zone={zone}");
        }
        text
    });
    groups.collect::<Vec<_>>().join("; ")
}

/// The topics whose route a command changed, sorted.
pub(crate) fn changed(effects: &Effects) -> Vec<&str> {
    let mut names: Vec<&str> = effects.changed.iter().map(|change| &*change.topic).collect();
    names.sort_unstable();
    names
}

/// Who was removed, and why.
pub(crate) fn removed(effects: &Effects) -> Vec<(String, RemovalCause)> {
    let removed = effects.events.iter().filter_map(|event| match event {
        Event::BrokerRemoved { member, cause } => Some((member.address.to_string(), *cause)),
        _ => None,
    });
    removed.collect()
}

/// The conflicts that were reported: the kind, the other side, and whether for the first time.
pub(crate) fn conflicts(effects: &Effects) -> Vec<(ConflictKind, String, bool)> {
    let conflicts = effects.events.iter().filter_map(|event| match event {
        Event::Conflict { kind, other, first, .. } => Some((*kind, other.to_string(), *first)),
        _ => None,
    });
    conflicts.collect()
}

/// An accepted registration that says nothing of a master.
pub(crate) fn accepted() -> Outcome {
    Outcome::Registered { master_address: None, ha_address: None }
}

/// An accepted registration of a slave whose master is at an address.
pub(crate) fn accepted_with_master(address: &str) -> Outcome {
    Outcome::Registered {
        master_address: Some(address.into()),
        ha_address: Some(format!("{address}-ha").into()),
    }
}
