//! The NameServer's tables as the specification tells them (section 2, decisions 1 to 9), as plainly as
//! possible: flat maps, full scans, nothing kept that can be worked out, no digests.
//!
//! Registrations always come with their body here; that the table under test may skip a known body
//! must not be visible in anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_registry::{
    Announcement, BrokerIdentity, Command, ConflictKind, ConnectionEnd, ConnectionId, Event,
    MEMBER_GROUP_TOPIC_PREFIX, Member, MinBrokerNotice, Outcome, Policy, Registration, RegistrationRefusal,
    RemovalCause, Sign, TableLimits, Unregistration,
};
use waypost_rocketmq_wire::body::{
    BrokerData, BrokerMemberGroup, ClusterInfo, DataVersion, QueueData, RegisterBrokerBody, TopicList,
    TopicQueueMapping, TopicRouteData,
};

const WRITE: i32 = 2;
/// A 104 over one of that many connections that a broker had before is recognised as late.
const OLDER_CONNECTIONS: usize = 16;

/// What the model says a command does, without the routes.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) outcome: Outcome,
    pub(crate) notices: Vec<MinBrokerNotice>,
    pub(crate) close: Vec<ConnectionId>,
    /// All but [`Event::TopicsChanged`], in any order.
    pub(crate) events: Vec<Event>,
}

/// A registered broker process.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) cluster: String,
    pub(crate) broker: String,
    pub(crate) id: i64,
    pub(crate) ha_address: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) acting_master: Option<bool>,
    pub(crate) data_version: DataVersion,
    pub(crate) connection: ConnectionId,
    older_connections: BTreeSet<ConnectionId>,
    pub(crate) registered_at: Duration,
    pub(crate) last_sign: Duration,
    pub(crate) generation: u64,
    pub(crate) suspected_until: Option<Duration>,
    filter_servers: Vec<String>,
    registers_in_parts: bool,
}

/// What the last registrant of a broker name said for the whole group.
#[derive(Clone, Debug)]
struct Flags {
    cluster: String,
    zone: Option<String>,
    acting_master: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Queues {
    read: i32,
    write: i32,
    perm: i32,
    sys_flag: i32,
    /// A permission that stands instead of the announced one (decision 2).
    overlay: Option<i32>,
}

impl Queues {
    fn effective_perm(&self) -> i32 {
        self.overlay.unwrap_or(self.perm)
    }
}

pub(crate) struct Model {
    pub(crate) policy: Policy,
    limits: TableLimits,
    /// By address.
    pub(crate) live: BTreeMap<String, Live>,
    /// By broker name.
    flags: BTreeMap<String, Flags>,
    /// By topic and broker name.
    queues: BTreeMap<(String, String), Queues>,
    /// By topic and the broker name in the mapping: who announced it, and what.
    mappings: BTreeMap<(String, String), (String, TopicQueueMapping)>,
    order: BTreeMap<String, String>,
    wiped: BTreeSet<String>,
    reported: BTreeSet<(ConflictKind, String, String)>,
    registrations: u64,
    next_scan: Option<Duration>,
    expected: Expected,
    /// Broker name to the smallest id that left during the command, and its address.
    min_left: BTreeMap<String, (i64, String)>,
}

impl Model {
    pub(crate) fn new(policy: Policy, limits: TableLimits) -> Self {
        Self {
            policy,
            limits,
            live: BTreeMap::new(),
            flags: BTreeMap::new(),
            queues: BTreeMap::new(),
            mappings: BTreeMap::new(),
            order: BTreeMap::new(),
            wiped: BTreeSet::new(),
            reported: BTreeSet::new(),
            registrations: 0,
            next_scan: None,
            expected: Expected::default(),
            min_left: BTreeMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, command: &Command<'_>, now: Duration) -> Expected {
        self.expected = Expected::default();
        self.min_left.clear();
        let outcome = match command {
            Command::Register(registration) => self.register(registration, now),
            Command::Unregister(request) => self.unregister(request),
            Command::Heartbeat(sign) => match self.sign(sign, now) {
                Some(_) => Outcome::Done,
                None => Outcome::Ignored,
            },
            Command::QueryDataVersion { sign, version } => {
                let stored = self.sign(sign, now);
                Outcome::DataVersion { changed: stored.is_none() || *version != stored, stored }
            }
            Command::ConnectionLost { connection, how } => self.lose(*connection, *how, now),
            Command::ConnectionIdle { connection } => self.idle(*connection, now),
            Command::Tick => self.tick(now),
            Command::RegisterTopic { topic, queues } => self.register_topic(topic, queues),
            Command::DeleteTopic { topic, cluster } => self.delete_topic(topic, *cluster),
            Command::WipeWritePermission { broker } => self.wipe(broker),
            Command::AddWritePermission { broker } => self.add(broker),
            Command::SetOrder { topic, configuration } => {
                match configuration {
                    Some(text) => self.order.insert((*topic).to_owned(), (*text).to_owned()),
                    None => self.order.remove(*topic),
                };
                Outcome::Done
            }
            Command::SetPolicy(policy) => {
                if policy.scan_interval != self.policy.scan_interval {
                    self.next_scan = Some(now + policy.scan_interval);
                }
                self.policy = *policy;
                Outcome::Done
            }
        };
        self.expected.outcome = outcome;
        if self.policy.notify_min_broker_change {
            for (broker, (_, address)) in std::mem::take(&mut self.min_left) {
                if self.flags.get(&broker).is_some_and(|flags| flags.acting_master) {
                    self.notify(&broker, Some(address), None);
                }
            }
        }
        std::mem::take(&mut self.expected)
    }

    // Who is there.

    /// The members of a broker name, by id.
    fn members(&self, broker: &str) -> BTreeMap<i64, String> {
        let members = self.live.iter().filter(|(_, live)| live.broker == broker);
        members.map(|(address, live)| (live.id, address.clone())).collect()
    }

    fn member(&self, address: &str) -> Member {
        let live = &self.live[address];
        Member {
            cluster: live.cluster.as_str().into(),
            broker: live.broker.as_str().into(),
            id: live.id,
            address: address.into(),
        }
    }

    fn brokers_of_cluster(&self, cluster: &str) -> BTreeSet<String> {
        let members = self.live.values().filter(|live| live.cluster == cluster);
        members.map(|live| live.broker.clone()).collect()
    }

    /// Topics that have queues or mappings.
    fn known_topics(&self) -> BTreeSet<String> {
        self.queues.keys().chain(self.mappings.keys()).map(|(topic, _)| topic.clone()).collect()
    }

    /// Topics in which a group has queues, or mappings that it announced.
    pub(crate) fn topics_of(&self, broker: &str) -> BTreeSet<String> {
        let queues = self.queues.keys().filter(|(_, of)| of == broker).map(|(topic, _)| topic);
        let mappings = self.mappings.iter().filter(|(_, (owner, _))| owner == broker);
        queues.chain(mappings.map(|((topic, _), _)| topic)).cloned().collect()
    }

    pub(crate) fn zone_of(&self, broker: &str) -> Option<&str> {
        self.flags[broker].zone.as_deref()
    }

    // 103, section 2.4.

    fn register(&mut self, registration: &Registration<'_>, now: Duration) -> Outcome {
        let identity = &registration.identity;
        let Announcement::Full(body, _) = registration.body else { panic!("the model takes whole bodies") };
        let (broker, address) = (identity.broker, identity.address);

        // Refusals leave nothing behind (decision 9).
        if let Err(refusal) = self.admit(identity, body) {
            return Outcome::Refused(refusal);
        }
        let holder = self.members(broker).get(&identity.id).filter(|holder| *holder != address).cloned();
        if let Some(holder) = &holder
            && self.live[holder].cluster == identity.cluster
            && self.live[holder].data_version.state_version > body.data_version.state_version
        {
            self.conflict(ConflictKind::OlderStateVersion, identity, holder);
            return Outcome::Superseded;
        }

        // The newest registration wins; what it leaves behind is removed (decision 4).
        let min_before = self.members(broker).keys().next().copied().unwrap_or(0);
        let mut stored_version = None;
        if let Some(before) = self.live.get(address).cloned() {
            if before.broker != broker {
                self.conflict(ConflictKind::AddressMoved, identity, &before.broker);
                self.remove(address, RemovalCause::Moved, None);
            } else if before.cluster != identity.cluster {
                self.conflict(ConflictKind::AddressMoved, identity, &before.cluster);
            } else {
                stored_version = Some(before.data_version);
            }
        }
        let mut id_was_free = !self.members(broker).contains_key(&identity.id);
        if let Some(holder) = &holder {
            if self.live[holder].suspected_until.is_none() {
                self.conflict(ConflictKind::AddressChanged, identity, holder);
            }
            if self.live[holder].cluster == identity.cluster {
                let member = self.member(holder);
                self.live.remove(holder);
                self.expected.events.push(Event::BrokerRemoved { member, cause: RemovalCause::Replaced });
            } else {
                self.remove(holder, RemovalCause::Replaced, None);
                id_was_free = true;
            }
        }

        self.enter(registration, body, now);
        self.flags.insert(
            broker.to_owned(),
            Flags {
                cluster: self.flags.get(broker).map_or(identity.cluster, |flags| &flags.cluster).to_owned(),
                zone: identity.zone.map(str::to_owned),
                acting_master: identity.acting_master == Some(true),
            },
        );
        self.settle_cluster(broker);

        // Section 2.2.
        let is_min = self.members(broker).keys().next() == Some(&identity.id);
        if identity.id == 0 || (identity.acting_master.is_some() && is_min) {
            self.take_topics(identity, body, id_was_free, stored_version);
        }
        if let Some(servers) = &body.filter_servers {
            self.live.get_mut(address).expect("just registered").filter_servers.clone_from(servers);
        }
        if self.policy.notify_min_broker_change && identity.id < min_before {
            self.notify(broker, None, identity.ha_address);
        }

        let master = self.members(broker).get(&0).filter(|_| identity.id != 0).cloned();
        let master = master.filter(|address| self.live[address].cluster == identity.cluster);
        Outcome::Registered {
            ha_address: master
                .as_ref()
                .and_then(|address| self.live[address].ha_address.as_deref().map(Arc::from)),
            master_address: master.map(Arc::from),
        }
    }

    fn admit(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
    ) -> Result<(), RegistrationRefusal> {
        let members = self.members(identity.broker);
        let holder = members.get(&identity.id);
        if holder.is_none()
            && !self.live.contains_key(identity.address)
            && self.live.len() >= self.limits.brokers
        {
            let (what, setting) = ("brokers", "brokersMax");
            return Err(RegistrationRefusal::LimitReached { what, limit: self.limits.brokers, setting });
        }
        let mut topics = self.known_topics();
        let known = topics.len();
        let mut others = members.iter().filter(|(_, address)| *address != identity.address);
        let is_min = others.all(|(id, _)| *id >= identity.id);
        if identity.id == 0 || (identity.acting_master.is_some() && is_min) {
            let names = body.topics.iter().filter_map(|topic| topic.topic_name.as_deref());
            topics.extend(names.map(str::to_owned));
            topics.extend(body.mappings.iter().map(|(topic, _)| topic.to_string()));
        }
        if topics.len() > self.limits.topics && topics.len() > known {
            let (what, setting) = ("topics", "topicsMax");
            return Err(RegistrationRefusal::LimitReached { what, limit: self.limits.topics, setting });
        }
        let keys: BTreeSet<&str> = body.topics.iter().map(|topic| &*topic.key).collect();
        if holder.is_none() && keys.len() == 1 {
            return Err(RegistrationRefusal::SingleTopic);
        }

        let elsewhere = members
            .values()
            .filter(|address| *address != identity.address)
            .map(|address| self.live[address].cluster.clone())
            .find(|cluster| cluster != identity.cluster);
        if let Some(live_cluster) = elsewhere {
            self.conflict(ConflictKind::NameInOtherCluster, identity, &live_cluster);
            let had_it = self.live.get(identity.address).is_some_and(|live| {
                (live.cluster.as_str(), live.broker.as_str()) == (identity.cluster, identity.broker)
            });
            if self.policy.refuse_name_in_other_cluster && !had_it {
                return Err(RegistrationRefusal::NameInOtherCluster {
                    broker: identity.broker.to_owned(),
                    cluster: identity.cluster.to_owned(),
                    live_cluster,
                });
            }
        }
        if let Some(holder) = holder
            && holder != identity.address
            && identity.id == 0
            && self.policy.refuse_master_address_change
            && self.live[holder].suspected_until.is_none()
        {
            self.conflict(ConflictKind::AddressChanged, identity, holder);
            return Err(RegistrationRefusal::MasterAddressChange {
                broker: identity.broker.to_owned(),
                address: identity.address.to_owned(),
                live_address: holder.clone(),
            });
        }
        Ok(())
    }

    /// Steps 8, 11, 12: the live entry.
    fn enter(&mut self, registration: &Registration<'_>, body: &RegisterBrokerBody<'_>, now: Duration) {
        let identity = &registration.identity;
        let before = self.live.get(identity.address).cloned();
        self.registrations += 1;
        let mut live = Live {
            cluster: identity.cluster.to_owned(),
            broker: identity.broker.to_owned(),
            id: identity.id,
            ha_address: identity.ha_address.map(str::to_owned),
            timeout: identity.timeout,
            acting_master: identity.acting_master,
            data_version: body.data_version,
            connection: registration.connection,
            older_connections: BTreeSet::new(),
            registered_at: now,
            last_sign: now,
            generation: self.registrations,
            suspected_until: None,
            filter_servers: Vec::new(),
            registers_in_parts: false,
        };
        let is_new = before.is_none();
        if let Some(before) = before {
            live.connection = before.connection;
            live.older_connections = before.older_connections;
            live.registered_at = before.registered_at;
            live.suspected_until = before.suspected_until;
            live.filter_servers = before.filter_servers;
            live.registers_in_parts = before.registers_in_parts;
        }
        self.live.insert(identity.address.to_owned(), live);
        if is_new {
            let (member, ha_address) = (self.member(identity.address), identity.ha_address.map(Arc::from));
            self.expected.events.push(Event::BrokerRegistered { member, ha_address });
        }
        self.hear(identity.address, registration.connection, now);
    }

    /// Steps 9 and 10, with decisions 1 and 2 and section 2.6.
    fn take_topics(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        id_was_free: bool,
        stored_version: Option<DataVersion>,
    ) {
        let broker = identity.broker;
        let keys = body.topics.iter().map(|topic| &*topic.key);
        let names = body.topics.iter().filter_map(|topic| topic.topic_name.as_deref());
        let listed: BTreeSet<&str> = keys.chain(names).collect();
        let known = self.topics_of(broker);
        let omitted: Vec<String> = known.into_iter().filter(|topic| !listed.contains(&**topic)).collect();
        let adds = body.topics.iter().any(|topic| {
            let name = topic.topic_name.as_deref().expect("real entries have names");
            !self.queues.contains_key(&(name.to_owned(), broker.to_owned()))
        });
        let same_version = stored_version == Some(body.data_version);
        let live = self.live.get_mut(identity.address).expect("just registered");
        live.registers_in_parts |= same_version && adds && !omitted.is_empty();
        if self.policy.delete_unlisted_topics && !live.registers_in_parts && body.mappings.is_empty() {
            for topic in omitted {
                self.forget(&topic, broker);
            }
        }
        for config in &body.topics {
            let name = config.topic_name.as_deref().expect("real entries have names");
            let key = (name.to_owned(), broker.to_owned());
            let read_only = identity.id != 0 && identity.acting_master == Some(true);
            let kept = self.queues.get(&key).filter(|_| same_version && !id_was_free);
            let announced = Queues {
                read: config.read_queue_nums,
                write: config.write_queue_nums,
                perm: if read_only { config.perm & !WRITE } else { config.perm },
                sys_flag: config.topic_sys_flag,
                overlay: kept.and_then(|kept| kept.overlay),
            };
            self.queues.insert(key, announced);
        }
        for (topic, mapping) in &body.mappings {
            let of = mapping.bname.clone().unwrap_or_else(|| broker.to_owned());
            self.mappings.insert((topic.to_string(), of), (broker.to_owned(), mapping.clone()));
        }
    }

    /// Everything that a group has in a topic goes (2.10, 2.14, D4).
    fn forget(&mut self, topic: &str, broker: &str) {
        self.queues.remove(&(topic.to_owned(), broker.to_owned()));
        self.mappings.retain(|(of, _), (owner, _)| of != topic || owner != broker);
    }

    /// The group keeps its cluster while a member is in it (decision 4).
    fn settle_cluster(&mut self, broker: &str) {
        let members = self.members(broker);
        let clusters: Vec<&String> = members.values().map(|address| &self.live[address].cluster).collect();
        let flags = self.flags.get_mut(broker).expect("a group with members has flags");
        if !clusters.contains(&&flags.cluster) {
            flags.cluster = clusters[0].clone();
        }
    }

    fn conflict(&mut self, kind: ConflictKind, identity: &BrokerIdentity<'_>, other: &str) {
        let of = (kind, identity.broker.to_owned(), identity.address.to_owned());
        let first = self.reported.insert(of);
        let member = Member {
            cluster: identity.cluster.into(),
            broker: identity.broker.into(),
            id: identity.id,
            address: identity.address.into(),
        };
        self.expected.events.push(Event::Conflict { kind, member, other: other.into(), first });
    }

    /// Section 2.8.
    fn notify(&mut self, broker: &str, offline_address: Option<String>, ha_address: Option<&str>) {
        let members = self.members(broker);
        let Some((min_id, min_address)) = members.first_key_value() else { return };
        let everybody = offline_address.is_some() || members.len() == 1;
        self.expected.notices.push(MinBrokerNotice {
            broker: broker.into(),
            min_id: *min_id,
            min_address: min_address.as_str().into(),
            offline_address: offline_address.map(Arc::from),
            ha_address: ha_address.map(Arc::from),
            recipients: members
                .iter()
                .filter(|(id, _)| everybody || *id != min_id)
                .map(|(_, address)| address.as_str().into())
                .collect(),
        });
    }

    // Leaving, sections 2.10 to 2.12.

    fn remove(&mut self, address: &str, cause: RemovalCause, reported_id: Option<i64>) {
        let member = self.member(address);
        let broker = member.broker.to_string();
        let min_left = self.members(&broker).keys().next().copied() == reported_id.or(Some(member.id));
        self.expected.events.push(Event::BrokerRemoved { member: member.clone(), cause });
        self.live.remove(address);

        let members = self.members(&broker);
        if members.is_empty() {
            self.flags.remove(&broker);
            for topic in self.topics_of(&broker) {
                self.forget(&topic, &broker);
            }
            return;
        }
        if self.flags[&broker].acting_master && !members.contains_key(&0) {
            for ((_, of), queues) in &mut self.queues {
                if *of == broker && queues.effective_perm() & WRITE != 0 {
                    queues.overlay = Some(queues.effective_perm() & !WRITE);
                }
            }
        }
        self.settle_cluster(&broker);
        if min_left {
            let left = self.min_left.get(&broker).map_or(i64::MAX, |(id, _)| *id);
            if member.id < left {
                self.min_left.insert(broker, (member.id, address.to_owned()));
            }
        }
    }

    fn unregister(&mut self, request: &Unregistration<'_>) -> Outcome {
        let Some(live) = self.live.get(request.address) else { return Outcome::Ignored };
        if live.broker != request.broker || live.older_connections.contains(&request.connection) {
            return Outcome::Ignored;
        }
        self.remove(request.address, RemovalCause::Unregistered, request.id);
        Outcome::Done
    }

    /// 904 and 322; the stored version of a broker that is known.
    fn sign(&mut self, sign: &Sign<'_>, now: Duration) -> Option<DataVersion> {
        let live = self.live.get_mut(sign.address).filter(|live| live.cluster == sign.cluster)?;
        live.last_sign = now;
        let (version, suspected) = (live.data_version, live.suspected_until.is_some());
        if suspected {
            self.hear(sign.address, sign.connection, now);
        }
        Some(version)
    }

    /// The broker is alive on this connection. Another one than the lost one clears a suspicion (decision 5).
    fn hear(&mut self, address: &str, connection: ConnectionId, now: Duration) {
        let live = self.live.get_mut(address).expect("known");
        live.last_sign = now;
        if live.connection == connection {
            return;
        }
        if live.older_connections.len() >= OLDER_CONNECTIONS {
            live.older_connections.pop_first();
        }
        live.older_connections.insert(live.connection);
        live.older_connections.remove(&connection);
        live.connection = connection;
        if live.suspected_until.take().is_some() {
            let member = self.member(address);
            self.expected.events.push(Event::BrokerTrusted { member });
        }
    }

    fn lose(&mut self, connection: ConnectionId, how: ConnectionEnd, now: Duration) -> Outcome {
        let bound = self.live.iter().filter(|(_, live)| live.connection == connection);
        let bound: Vec<String> = bound.map(|(address, _)| address.clone()).collect();
        for address in bound {
            if how == ConnectionEnd::Closed {
                self.remove(&address, RemovalCause::ConnectionClosed, None);
                continue;
            }
            let until = now + self.policy.suspect_grace;
            let live = self.live.get_mut(&address).expect("known");
            if live.suspected_until.is_none() {
                live.suspected_until = Some(until);
                let member = self.member(&address);
                self.expected.events.push(Event::BrokerSuspected { member, until });
            }
        }
        Outcome::Done
    }

    fn idle(&mut self, connection: ConnectionId, now: Duration) -> Outcome {
        let bound: Vec<(String, Live)> = self
            .live
            .iter()
            .filter(|(_, live)| live.connection == connection)
            .map(|(address, live)| (address.clone(), live.clone()))
            .collect();
        let mut silent = 0;
        for (address, live) in &bound {
            if live.last_sign + live.timeout.unwrap_or(self.policy.broker_expire) < now {
                self.remove(address, RemovalCause::Expired, None);
                silent += 1;
            }
        }
        if silent > 0 && silent == bound.len() {
            self.expected.close.push(connection);
        }
        Outcome::Done
    }

    fn tick(&mut self, now: Duration) -> Outcome {
        let scan_at = *self.next_scan.get_or_insert(now + self.policy.scan_interval);
        let scanning = scan_at <= now;
        if scanning {
            self.next_scan = Some((scan_at + self.policy.scan_interval).max(now));
        }
        for (address, live) in self.live.clone() {
            let timeout = live.timeout.unwrap_or(self.policy.broker_expire);
            if live.suspected_until.is_some_and(|until| until <= now) {
                self.remove(&address, RemovalCause::ConnectionTimedOut, None);
            } else if scanning && live.last_sign + timeout < now {
                self.remove(&address, RemovalCause::Expired, None);
                if self.live.values().all(|other| other.connection != live.connection) {
                    self.expected.close.push(live.connection);
                }
            }
        }
        Outcome::Done
    }

    // Topics, sections 2.13 and 2.14.

    fn register_topic(&mut self, topic: &str, queues: &[QueueData]) -> Outcome {
        let known = self.known_topics();
        let full = !known.contains(topic) && known.len() >= self.limits.topics;
        let unknown = queues.iter().any(|queues| self.members(&queues.broker_name).is_empty());
        if full || unknown || queues.is_empty() {
            return Outcome::Ignored;
        }
        for data in queues {
            let announced = Queues {
                read: data.read_queue_nums,
                write: data.write_queue_nums,
                perm: data.perm,
                sys_flag: data.topic_sys_flag,
                overlay: None,
            };
            self.queues.insert((topic.to_owned(), data.broker_name.clone()), announced);
        }
        Outcome::Done
    }

    fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) -> Outcome {
        if !self.known_topics().contains(topic) {
            return Outcome::Ignored;
        }
        let brokers: BTreeSet<String> = match cluster {
            Some(cluster) => self.brokers_of_cluster(cluster),
            None => self.flags.keys().cloned().collect(),
        };
        for broker in brokers {
            self.forget(topic, &broker);
        }
        Outcome::Done
    }

    fn wipe(&mut self, broker: &str) -> Outcome {
        if self.policy.wipe_survives_registration && self.flags.contains_key(broker) {
            self.wiped.insert(broker.to_owned());
        }
        self.lay_over(broker, |queues| Some(queues.effective_perm() & !WRITE))
    }

    fn add(&mut self, broker: &str) -> Outcome {
        self.wiped.remove(broker);
        let restores = self.policy.add_restores_announced;
        self.lay_over(broker, |_| if restores { None } else { Some(6) })
    }

    fn lay_over(&mut self, broker: &str, overlay: impl Fn(&Queues) -> Option<i32>) -> Outcome {
        let mut visited = 0;
        for ((_, of), queues) in &mut self.queues {
            if of == broker {
                queues.overlay = overlay(queues);
                visited += 1;
            }
        }
        Outcome::Topics(visited)
    }

    // What readers see, sections 2.9, 2.14 and 3.5.

    fn shown_perm(&self, broker: &str, queues: &Queues) -> i32 {
        let sticky = self.policy.wipe_survives_registration && self.wiped.contains(broker);
        if sticky { queues.effective_perm() & !WRITE } else { queues.effective_perm() }
    }

    fn queues_of(&self, topic: &str) -> impl Iterator<Item = (&String, &Queues)> {
        self.queues
            .iter()
            .filter(move |((of, _), _)| of == topic)
            .map(|((_, broker), queues)| (broker, queues))
    }

    pub(crate) fn route(&self, topic: &str) -> Option<TopicRouteData> {
        let mut route = TopicRouteData::default();
        for (broker, queues) in self.queues_of(topic) {
            let flags = &self.flags[broker];
            let perm = self.shown_perm(broker, queues);
            let mut addresses = self.members(broker);
            for address in addresses.values() {
                let servers = &self.live[address].filter_servers;
                if !servers.is_empty() {
                    route.filter_server_table.insert(address.clone(), servers.clone());
                }
            }
            if self.policy.support_acting_master
                && !topic.starts_with(MEMBER_GROUP_TOPIC_PREFIX)
                && flags.acting_master
                && !addresses.contains_key(&0)
                && perm & WRITE == 0
            {
                let (_, smallest) = addresses.pop_first().expect("a group has members");
                addresses.insert(0, smallest);
            }
            route.queue_datas.push(QueueData {
                broker_name: broker.clone(),
                read_queue_nums: queues.read,
                write_queue_nums: queues.write,
                perm,
                topic_sys_flag: queues.sys_flag,
            });
            route.broker_datas.push(BrokerData {
                cluster: flags.cluster.clone(),
                broker_name: broker.clone(),
                broker_addrs: addresses,
                zone_name: flags.zone.clone(),
                enable_acting_master: flags.acting_master,
            });
        }
        if route.queue_datas.is_empty() {
            return None;
        }
        route.order_topic_conf = self.order.get(topic).filter(|_| self.policy.order_message).cloned();
        let mappings = self.mappings.iter().filter(|((of, _), _)| of == topic);
        let mappings: BTreeMap<_, _> =
            mappings.map(|((_, name), (_, mapping))| (name.clone(), mapping.clone())).collect();
        route.topic_queue_mapping_by_broker = Some(mappings).filter(|mappings| !mappings.is_empty());
        Some(route)
    }

    /// Section 3.5.
    pub(crate) fn in_zone(route: &TopicRouteData, zone: &str) -> TopicRouteData {
        let mut filtered = route.clone();
        filtered.broker_datas.retain(|broker| {
            let own = broker.zone_name.clone().unwrap_or_default();
            !broker.broker_addrs.contains_key(&0) || own.to_lowercase() == zone.to_lowercase()
        });
        let kept: BTreeSet<&String> =
            filtered.broker_datas.iter().map(|broker| &broker.broker_name).collect();
        filtered.queue_datas.retain(|queues| kept.contains(&queues.broker_name));
        let gone = route.broker_datas.iter().filter(|broker| !kept.contains(&broker.broker_name));
        for address in gone.flat_map(|broker| broker.broker_addrs.values()) {
            filtered.filter_server_table.remove(address);
        }
        filtered
    }

    /// 106.
    pub(crate) fn cluster_info(&self) -> ClusterInfo {
        let mut info = ClusterInfo::default();
        for (broker, flags) in &self.flags {
            let data = BrokerData {
                cluster: flags.cluster.clone(),
                broker_name: broker.clone(),
                broker_addrs: self.members(broker),
                zone_name: flags.zone.clone(),
                enable_acting_master: flags.acting_master,
            };
            info.broker_addr_table.insert(broker.clone(), data);
        }
        for live in self.live.values() {
            let brokers = info.cluster_addr_table.entry(live.cluster.clone()).or_default();
            brokers.insert(live.broker.clone());
        }
        info
    }

    /// 901.
    pub(crate) fn member_group(&self, cluster: &str, broker: &str) -> BrokerMemberGroup {
        BrokerMemberGroup {
            cluster: cluster.to_owned(),
            broker_name: broker.to_owned(),
            broker_addrs: self.members(broker),
        }
    }

    fn list(&self, wanted: impl Fn(&str, &Queues) -> bool) -> TopicList {
        let keys = self.queues.iter().filter(|((_, broker), queues)| wanted(broker, queues));
        let names: BTreeSet<String> = keys.map(|((topic, _), _)| topic.clone()).collect();
        TopicList { broker_addr: None, topic_list: names.into_iter().collect() }
    }

    /// 206.
    pub(crate) fn all_topics(&self) -> TopicList {
        self.list(|_, _| true)
    }

    /// 224.
    pub(crate) fn topics_of_cluster(&self, cluster: &str) -> Option<TopicList> {
        let brokers = self.brokers_of_cluster(cluster);
        (!brokers.is_empty()).then(|| self.list(|broker, _| brokers.contains(broker)))
    }

    /// 304.
    pub(crate) fn system_topics(&self) -> TopicList {
        let brokers = self.live.values().map(|live| live.broker.clone());
        let names: BTreeSet<String> =
            brokers.chain(self.live.values().map(|live| live.cluster.clone())).collect();
        // A live master if there is one (D24); else who is not suspected, by name and id; else a suspect.
        let trusted = |live: &&Live| live.suspected_until.is_none();
        let smallest = |suspects: bool| {
            let those = self.live.iter().filter(|(_, live)| trusted(live) != suspects);
            those.min_by_key(|(_, live)| (live.broker.clone(), live.id))
        };
        let master = self.live.iter().find(|(_, live)| live.id == 0 && trusted(live));
        let best = master.or_else(|| smallest(false)).or_else(|| smallest(true));
        TopicList {
            broker_addr: best.map(|(address, _)| address.clone()),
            topic_list: names.into_iter().collect(),
        }
    }

    /// 311 to 313: by the flag of the first broker by name.
    pub(crate) fn flagged(&self, wanted: impl Fn(i32) -> bool) -> TopicList {
        let topics = self.all_topics().topic_list.into_iter();
        let topic_list = topics.filter(|topic| {
            let (_, first) = self.queues_of(topic).next().expect("listed topics have queues");
            wanted(first.sys_flag)
        });
        TopicList { broker_addr: None, topic_list: topic_list.collect() }
    }

    /// How many topics the table knows.
    pub(crate) fn topic_count(&self) -> usize {
        self.known_topics().len()
    }
}
