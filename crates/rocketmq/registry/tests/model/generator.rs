//! Random histories from seeds. The worlds are small, so that names, ids and addresses collide often.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use waypost_rocketmq_registry::{ConnectionEnd, MEMBER_GROUP_TOPIC_PREFIX, Policy, TableLimits};
use waypost_rocketmq_wire::body::{
    DataVersion, QueueData, RegisterBrokerBody, TopicConfig, TopicQueueMapping,
};

use crate::step::{Action, Announce, History, Step};

pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
pub(crate) const BROKERS: [&str; 3] = ["ba", "bb", "bc"];
const ADDRESSES: [&str; 5] =
    ["10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911", "10.0.0.5:10911"];

/// The last one shows real ids also in acting-master mode.
pub(crate) fn topics() -> [String; 6] {
    ["T1", "T2", "T3", "T4", "c1", &format!("{MEMBER_GROUP_TOPIC_PREFIX}ba")].map(str::to_owned)
}

/// SplitMix64: the same numbers from the same seed with every compiler and every version of a library.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("smaller than a usize")
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// The history of a seed.
pub(crate) fn history(seed: u64, steps: usize) -> History {
    let mut generator = Generator::new(seed);
    let limits = generator.limits();
    let policy = generator.policy(Policy::default());
    generator.policy = policy;
    let steps = (0..steps).map(|_| generator.step()).collect();
    History { policy, limits, steps }
}

struct Generator {
    random: Random,
    policy: Policy,
    topics: [String; 6],
    /// How many of the clusters are in use: mostly few.
    clusters: usize,
    /// How many of the addresses: with two the same few bodies come again and again.
    addresses: usize,
    /// Whether addresses mostly keep to one place in one group, as in real clusters.
    calm: bool,
    /// What each address announced, the last few: mostly it says the same again, or nearly.
    announced: BTreeMap<String, Vec<Announce>>,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clusters = random.pick(&[1, 1, 2, 3]);
        let calm = random.one_in(2);
        let addresses = random.pick(&[5, 5, 2]);
        let (policy, announced) = (Policy::default(), BTreeMap::new());
        Self { random, policy, topics: topics(), clusters, addresses, calm, announced }
    }

    fn limits(&mut self) -> TableLimits {
        let mut limits = TableLimits::default();
        if self.random.one_in(10) {
            limits.topics = 4;
        }
        if self.random.one_in(10) {
            limits.brokers = 3;
        }
        limits
    }

    fn policy(&mut self, before: Policy) -> Policy {
        let random = &mut self.random;
        let mut flip = |on: &mut bool, many| *on ^= random.one_in(many);
        let mut policy = before;
        flip(&mut policy.support_acting_master, 2);
        flip(&mut policy.order_message, 3);
        flip(&mut policy.notify_min_broker_change, 2);
        flip(&mut policy.delete_unlisted_topics, 4);
        flip(&mut policy.refuse_name_in_other_cluster, 6);
        flip(&mut policy.refuse_master_address_change, 6);
        flip(&mut policy.wipe_survives_registration, 5);
        flip(&mut policy.add_restores_announced, 4);
        if random.one_in(4) {
            policy.broker_expire = Duration::from_millis(random.pick(&[10_000, 120_000]));
            policy.scan_interval = Duration::from_millis(random.pick(&[1_000, 5_000]));
            policy.suspect_grace = Duration::from_millis(random.pick(&[0, 30_000]));
        }
        policy
    }

    fn step(&mut self) -> Step {
        let wait = match self.random.below(30) {
            0..=13 => 0,
            14..=21 => 10,
            22..=26 => 1_000,
            27 => 5_000,
            28 => 30_000,
            _ => 125_000,
        };
        let slot = self.random.below(CONNECTIONS);
        let late = self.random.one_in(12);
        let action = match self.random.below(if self.calm { 140 } else { 100 }) {
            0..=49 | 100.. => Action::Register(Box::new(self.announce())),
            50..=55 => Action::Unregister {
                broker: self.likely_broker(),
                address: self.address(),
                id: self.random.pick(&[None, Some(0), Some(0), Some(1), Some(2)]),
            },
            56..=59 => Action::Heartbeat { cluster: self.cluster(), address: self.address() },
            60..=62 => Action::Query {
                cluster: self.cluster(),
                address: self.address(),
                version: Some(self.version()).filter(|_| !self.random.one_in(5)),
            },
            63..=67 => Action::Lose(self.random.pick(&[ConnectionEnd::Closed, ConnectionEnd::TimedOut])),
            68..=74 => Action::Tick,
            75..=77 => Action::Idle,
            78..=81 => Action::RegisterTopic { topic: self.topic(), queues: self.queues() },
            82..=84 => Action::DeleteTopic {
                topic: self.topic(),
                cluster: Some(self.cluster()).filter(|_| self.random.one_in(2)),
            },
            85..=88 => Action::Wipe { broker: self.likely_broker() },
            89..=91 => Action::Add { broker: self.likely_broker() },
            92..=94 => Action::SetOrder {
                topic: self.topic(),
                configuration: self.random.pick(&[None, Some("ba:4".into()), Some("ba:4;bb:4".into())]),
            },
            _ => {
                self.policy = self.policy(self.policy);
                Action::SetPolicy(self.policy)
            }
        };
        Step { wait: Duration::from_millis(wait), slot, late, action }
    }

    fn cluster(&mut self) -> String {
        self.random.pick(&CLUSTERS[..self.clusters]).to_owned()
    }

    fn likely_broker(&mut self) -> String {
        self.random.pick(&["ba", "ba", "ba", "bb", "bb", "bc"]).to_owned()
    }

    fn address(&mut self) -> String {
        self.random.pick(&ADDRESSES[..self.addresses]).to_owned()
    }

    fn topic(&mut self) -> String {
        let topics = self.topics.clone();
        self.random.pick(&topics)
    }

    fn version(&mut self) -> DataVersion {
        DataVersion {
            state_version: self.random.pick(&[0, 0, 0, 0, 1, 2]),
            timestamp: self.random.pick(&[7, 7, 7, 8]),
            counter: self.random.pick(&[1, 2]),
        }
    }

    fn perm(&mut self) -> i32 {
        self.random.pick(&[6, 6, 6, 6, 4, 2, 7, 0])
    }

    fn queues(&mut self) -> Vec<QueueData> {
        (0..self.random.pick(&[0, 1, 1, 1, 2, 2, 3]))
            .map(|_| QueueData {
                broker_name: self.likely_broker(),
                read_queue_nums: self.random.pick(&[4, 8]),
                write_queue_nums: 8,
                perm: self.perm(),
                topic_sys_flag: self.random.pick(&[0, 0, 1, 2, 3]),
            })
            .collect()
    }

    /// Mostly what the address said before, sometimes a variation of it, seldom something else.
    fn announce(&mut self) -> Announce {
        let address = self.address();
        let said = self.announced.get(&address).cloned().unwrap_or_default();
        let mut announce = match said.last() {
            Some(last) if !self.random.one_in(8) => last.clone(),
            _ => self.fresh(address.clone()),
        };
        if !said.is_empty() && self.random.one_in(3) {
            // An earlier body again, under the same header or with its own.
            let earlier = self.random.pick(&said);
            if self.random.one_in(2) {
                announce.body = earlier.body;
            } else {
                announce = earlier;
            }
        }
        if self.random.one_in(if self.calm { 3 } else { 2 }) {
            self.vary(&mut announce);
        }
        announce.digest_first = self.random.one_in(2);
        announce.with_digest = !self.random.one_in(8);
        let said = self.announced.entry(address).or_default();
        said.push(announce.clone());
        if said.len() > 4 {
            said.remove(0);
        }
        announce
    }

    fn fresh(&mut self, address: String) -> Announce {
        let (mut cluster, mut broker, mut id) = (self.cluster(), self.likely_broker(), self.id());
        if self.calm {
            let home = ADDRESSES.iter().position(|known| *known == address).expect("one of the addresses");
            let homes = [("ba", 0), ("ba", 1), ("ba", 2), ("bb", 0), ("bb", 1)];
            cluster = CLUSTERS[0].to_owned();
            (broker, id) = (homes[home].0.to_owned(), homes[home].1);
        }
        Announce {
            cluster,
            broker,
            address,
            id,
            ha_address: self.random.pick(&[None, Some("10.0.0.9:10912".to_owned())]),
            zone: self.zone(),
            timeout: self.timeout(),
            acting_master: self.acting_master(),
            body: self.body(),
            digest_first: false,
            with_digest: true,
        }
    }

    fn id(&mut self) -> i64 {
        self.random.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 2, 2, -1])
    }

    fn zone(&mut self) -> Option<String> {
        self.random.pick(&[None, None, None, Some("z1"), Some("z2"), Some("")]).map(str::to_owned)
    }

    fn timeout(&mut self) -> Option<Duration> {
        self.random
            .pick(&[None, None, None, None, None, None, Some(10_000), Some(0)])
            .map(Duration::from_millis)
    }

    fn acting_master(&mut self) -> Option<bool> {
        self.random.pick(&[Some(true), Some(true), Some(false), None])
    }

    fn vary(&mut self, announce: &mut Announce) {
        let first = if self.calm && !self.random.one_in(8) { 4 } else { 0 };
        match first + self.random.below(16 - first) {
            0 => announce.cluster = self.cluster(),
            1 => announce.broker = self.likely_broker(),
            2 | 3 => announce.id = self.id(),
            4 => announce.zone = self.zone(),
            5 => announce.timeout = self.timeout(),
            6 => announce.acting_master = self.acting_master(),
            7 => announce.ha_address = self.random.pick(&[None, Some("10.0.0.8:10912".to_owned())]),
            8 => announce.body.filter_servers = self.filter_servers(),
            9 => announce.body.mappings = self.mappings(),
            10 | 11 => announce.body.data_version = self.version(),
            // A broker that changed says so by another version, or does not.
            12 => announce.body.topics = self.body().topics,
            13 => announce.body = self.body(),
            _ => {
                let mut topics = std::mem::take(&mut announce.body.topics);
                if topics.len() > 1 && self.random.one_in(3) {
                    topics.remove(self.random.below(topics.len()));
                } else if topics.is_empty() || self.random.one_in(3) {
                    let name = self.topic();
                    topics.push(self.config(name));
                } else {
                    let changed = self.random.below(topics.len());
                    topics[changed].perm = self.perm();
                }
                announce.body.topics = topics;
                if self.random.one_in(2) {
                    announce.body.data_version.counter += 1;
                }
            }
        }
    }

    fn filter_servers(&mut self) -> Option<Vec<String>> {
        let server = self.random.pick(&["10.0.0.7:1", "10.0.0.7:2"]).to_owned();
        self.random.pick(&[None, Some(Vec::new()), Some(Vec::new()), Some(vec![server])])
    }

    fn body(&mut self) -> RegisterBrokerBody<'static> {
        let mut names = self.topics.to_vec();
        names.retain(|_| !self.random.one_in(3));
        if self.random.one_in(8) {
            names.truncate(self.random.below(2));
        }
        RegisterBrokerBody {
            data_version: self.version(),
            topics: names.into_iter().map(|name| self.config(name)).collect(),
            mappings: self.mappings(),
            filter_servers: self.filter_servers(),
        }
    }

    fn config(&mut self, name: String) -> TopicConfig<'static> {
        let key = if self.random.one_in(30) { self.topic() } else { name.clone() };
        TopicConfig {
            topic_name: Some(Cow::Owned(name)),
            read_queue_nums: 8,
            write_queue_nums: self.random.pick(&[4, 8, 8]),
            perm: self.perm(),
            topic_sys_flag: self.random.pick(&[0, 0, 0, 1, 2, 3]),
            ..TopicConfig::empty(Cow::Owned(key))
        }
    }

    fn mappings(&mut self) -> Vec<(Cow<'static, str>, TopicQueueMapping)> {
        if !self.random.one_in(4) {
            return Vec::new();
        }
        (0..1 + self.random.below(2))
            .map(|_| {
                let topic = self.topic();
                let mapping = TopicQueueMapping {
                    bname: self.random.pick(&[None, Some("ba"), Some("ba"), Some("bb")]).map(str::to_owned),
                    topic: Some(topic.clone()),
                    scope: Some("__global__".to_owned()),
                    total_queues: 8,
                    epoch: self.random.pick(&[1, 2]),
                    dirty: false,
                    curr_id_map: BTreeMap::from([(0, 0)]),
                };
                (Cow::Owned(topic), mapping)
            })
            .collect()
    }
}
