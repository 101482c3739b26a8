//! Plays a history to the table and to the model, and checks after every step that they agree and that
//! the invariants hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use waypost_rocketmq_registry::{
    Announcement, BodyDigest, BrokerIdentity, BrokerRow, Command, ConnectionId, Effects, Event, Outcome,
    Registration, RemovalCause, RouteIndex, RouteTable, Sign, Unregistration,
};
use waypost_rocketmq_wire::body::{BrokerData, Dialect, TopicRouteData};

use crate::generator::{BROKERS, CLUSTERS, CONNECTIONS, topics};
use crate::model::{Expected, Model};
use crate::step::{Action, Announce, History, Step};

/// What was wrong, and after which step.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) step: usize,
    pub(crate) what: String,
}

/// Plays a whole history.
pub(crate) fn replay(history: &History) -> Result<Tally, Failure> {
    let mut world = World::new(history);
    for (number, step) in history.steps.iter().enumerate() {
        world.play(step).map_err(|what| Failure { step: number, what })?;
    }
    Ok(world.tally)
}

/// What a history exercised, so that the tests can tell that it was not nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) registered: usize,
    pub(crate) digests_known: usize,
    pub(crate) refused: usize,
    pub(crate) superseded: usize,
    pub(crate) removed: usize,
    pub(crate) routes_changed: usize,
    pub(crate) notices: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.registered += other.registered;
        self.digests_known += other.digests_known;
        self.refused += other.refused;
        self.superseded += other.superseded;
        self.removed += other.removed;
        self.routes_changed += other.routes_changed;
        self.notices += other.notices;
    }
}

type Routes = BTreeMap<String, TopicRouteData>;

struct World {
    table: RouteTable,
    /// Lives the same life as `table` (invariant 5).
    twin: RouteTable,
    index: RouteIndex,
    model: Model,
    topics: [String; 6],
    routes: Routes,
    groups: BTreeMap<String, BrokerData>,
    now: Duration,
    /// Per slot: the connection that it has, and the one that it lost last.
    connections: [(ConnectionId, Option<ConnectionId>); CONNECTIONS],
    next_connection: u64,
    tally: Tally,
}

impl World {
    fn new(history: &History) -> Self {
        let mut next_connection = 0;
        let connections = std::array::from_fn(|_| {
            next_connection += 1;
            (ConnectionId(next_connection), None)
        });
        Self {
            table: RouteTable::new(history.policy, history.limits),
            twin: RouteTable::new(history.policy, history.limits),
            index: RouteIndex::new(),
            model: Model::new(history.policy, history.limits),
            topics: topics(),
            routes: Routes::new(),
            groups: BTreeMap::new(),
            now: Duration::ZERO,
            connections,
            next_connection,
            tally: Tally::default(),
        }
    }

    fn play(&mut self, step: &Step) -> Result<(), String> {
        self.now += step.wait;
        let (current, lost) = self.connections[step.slot];
        let connection = if step.late { lost.unwrap_or(current) } else { current };
        if matches!(step.action, Action::Lose(_)) && connection == current {
            self.next_connection += 1;
            self.connections[step.slot] = (ConnectionId(self.next_connection), Some(current));
        }
        if let Action::Register(announce) = &step.action {
            return self.register(announce, connection);
        }
        let command = || command(&step.action, connection);
        let effects = self.apply(command)?;
        self.check(&command(), &effects)
    }

    /// Plays a registration. That the digest of a known body stands for the body must not show.
    fn register(&mut self, announce: &Announce, connection: ConnectionId) -> Result<(), String> {
        let digest = digest(announce);
        let registration = |body| {
            let identity = identity(announce);
            Command::Register(Registration { identity, body, connection })
        };
        let full = || {
            let digest = announce.with_digest.then_some(digest);
            registration(Announcement::Full(&announce.body, digest))
        };
        if announce.digest_first {
            let effects = self.apply(|| registration(Announcement::Digest(digest)))?;
            if effects.outcome != Outcome::BodyNeeded {
                self.tally.digests_known += 1;
                return self.check(&full(), &effects);
            }
            same(
                "effects of an unknown digest",
                &effects_text(&effects),
                &effects_text(&Effects { outcome: Outcome::BodyNeeded, ..Effects::default() }),
            )?;
        }
        let effects = self.apply(full)?;
        self.check(&full(), &effects)
    }

    /// Applies a command to both tables and publishes what follows.
    fn apply<'a>(&mut self, command: impl Fn() -> Command<'a>) -> Result<Effects, String> {
        let effects = self.table.apply(command(), self.now);
        let twin = self.twin.apply(command(), self.now);
        same("effects of the same history (invariant 5)", &effects_text(&twin), &effects_text(&effects))?;
        Ok(effects)
    }

    fn check(&mut self, command: &Command<'_>, effects: &Effects) -> Result<(), String> {
        let before = self.model.live.clone();
        let expected = self.model.apply(command, self.now);
        self.count(effects);
        self.check_answer(&expected, effects)?;
        for event in &effects.events {
            if let Event::BrokerRemoved { member, cause } = event {
                let row = before.get(&*member.address).ok_or("an unknown broker was removed")?;
                let fenced = match (cause, command) {
                    (RemovalCause::ConnectionClosed, Command::ConnectionLost { connection, .. }) => {
                        row.connection == *connection
                    }
                    (RemovalCause::Expired, _) => row.last_sign < self.now,
                    (RemovalCause::ConnectionTimedOut, _) => row.suspected_until <= Some(self.now),
                    _ => true,
                };
                if !fenced {
                    return Err(format!("invariant 3: {member:?} was removed by {cause:?}: {row:?}"));
                }
            }
        }
        self.check_routes(effects)?;
        self.check_lists()?;
        self.check_brokers()
    }

    fn count(&mut self, effects: &Effects) {
        match effects.outcome {
            Outcome::Registered { .. } => self.tally.registered += 1,
            Outcome::Refused(_) => self.tally.refused += 1,
            Outcome::Superseded => self.tally.superseded += 1,
            _ => {}
        }
        let removed = effects.events.iter().filter(|event| matches!(event, Event::BrokerRemoved { .. }));
        self.tally.removed += removed.count();
        self.tally.routes_changed += effects.changed.len();
        self.tally.notices += effects.notices.len();
    }

    fn check_answer(&self, expected: &Expected, effects: &Effects) -> Result<(), String> {
        same("outcome", &expected.outcome, &effects.outcome)?;
        same("notices", &expected.notices, &effects.notices)?;
        same("connections to close", &expected.close, &effects.close)?;
        let events = effects.events.iter().filter(|event| !matches!(event, Event::TopicsChanged { .. }));
        same("events", &sorted(expected.events.iter()), &sorted(events))
    }

    /// Invariants 1 and 4, and that exactly the topics whose route changed are reported, once.
    fn check_routes(&mut self, effects: &Effects) -> Result<(), String> {
        let routes: Routes =
            self.topics.iter().filter_map(|topic| Some((topic.clone(), self.model.route(topic)?))).collect();
        let mut reported: Vec<&str> = effects.changed.iter().map(|change| &*change.topic).collect();
        reported.sort_unstable();
        // In acting-master mode a new master can look like the slave that stood in for it.
        let groups = self.model.cluster_info().broker_addr_table;
        let may_look_the_same = |topic: &str| {
            let brokers = routes.get(topic).into_iter().flat_map(|route| &route.broker_datas);
            let mut names = brokers.map(|broker| &broker.broker_name);
            self.model.policy.support_acting_master
                && names.any(|name| groups.get(name) != self.groups.get(name))
        };
        let mut changed: Vec<&str> = self
            .topics
            .iter()
            .map(String::as_str)
            .filter(|topic| {
                routes.get(*topic) != self.routes.get(*topic)
                    || (reported.contains(topic) && may_look_the_same(topic))
            })
            .collect();
        changed.sort_unstable();
        same("changed topics", &changed, &reported)?;
        self.index.publish(&effects.changed);
        for topic in &self.topics {
            let seen = self.index.route(topic).map(|route| route.data());
            same(format_args!("route of {topic}"), &routes.get(topic), &seen.as_ref())?;
        }
        same("routes in the index", &routes.len(), &self.index.len())?;
        for change in &effects.changed {
            let (Some(route), Some(data)) = (&change.route, routes.get(&*change.topic)) else { continue };
            let brokers: BTreeSet<_> = data.broker_datas.iter().map(|broker| &broker.broker_name).collect();
            let queues: BTreeSet<_> = data.queue_datas.iter().map(|queues| &queues.broker_name).collect();
            same("brokers of the queues (invariant 1)", &brokers, &queues)?;
            for dialect in [Dialect::Standard, Dialect::Legacy] {
                let topic = &change.topic;
                let whole = text(route.body(dialect));
                same(format_args!("{dialect:?} body of {topic}"), &encoded(data, dialect), &whole)?;
                let in_zone = text(&route.body_in_zone("Z1", dialect));
                let expected = encoded(&Model::in_zone(data, "Z1"), dialect);
                same(format_args!("{dialect:?} body of {topic} in zone Z1"), &expected, &in_zone)?;
            }
        }
        self.routes = routes;
        self.groups = groups;
        Ok(())
    }

    fn check_lists(&self) -> Result<(), String> {
        let (table, model) = (&self.table, &self.model);
        same("106", &model.cluster_info(), &table.cluster_info())?;
        for broker in BROKERS {
            same("901", &model.member_group("any", broker), &table.member_group("any", broker))?;
        }
        same("206", &model.all_topics(), &table.all_topics())?;
        for cluster in CLUSTERS {
            same("224", &model.topics_of_cluster(cluster), &table.topics_of_cluster(cluster))?;
        }
        same("304", &model.system_topics(), &table.system_topics())?;
        same("311", &model.flagged(|flag| flag & 1 != 0), &table.unit_topics())?;
        same("312", &model.flagged(|flag| flag & 2 != 0), &table.unit_sub_topics())?;
        same("313", &model.flagged(|flag| flag & 3 == 2), &table.unit_sub_ununit_topics())?;
        let counts = table.counts();
        let suspects = model.live.values().filter(|live| live.suspected_until.is_some()).count();
        same(
            "counts",
            &(model.live.len(), model.cluster_info().broker_addr_table.len(), model.topic_count(), suspects),
            &(counts.brokers, counts.groups, counts.topics, counts.suspects),
        )
    }

    /// The live entries, and invariant 2: one address has one id in one group.
    fn check_brokers(&self) -> Result<(), String> {
        let rows = self.table.brokers();
        let addresses: Vec<&str> = rows.iter().map(|row| &*row.address).collect();
        same("addresses", &self.model.live.keys().map(String::as_str).collect::<Vec<_>>(), &addresses)?;
        for row in &rows {
            self.check_broker(row)?;
        }
        let groups = self.table.cluster_info().broker_addr_table;
        let members: Vec<&String> = groups.values().flat_map(|group| group.broker_addrs.values()).collect();
        let distinct: BTreeSet<&String> = members.iter().copied().collect();
        same("members of all groups (invariant 2)", &rows.len(), &members.len())?;
        same("addresses in all groups (invariant 2)", &rows.len(), &distinct.len())?;
        if let Some(empty) = groups.values().find(|group| group.broker_addrs.is_empty()) {
            return Err(format!("invariant 2: a group without members: {empty:?}"));
        }
        Ok(())
    }

    fn check_broker(&self, row: &BrokerRow) -> Result<(), String> {
        let live = &self.model.live[&*row.address];
        same(
            format_args!("who {} is", row.address),
            &(&*live.cluster, &*live.broker, live.id),
            &(&*row.cluster, &*row.broker, row.id),
        )?;
        same("zone", &self.model.zone_of(&live.broker), &row.zone.as_deref())?;
        same(
            format_args!("what {} announced", row.address),
            &(live.ha_address.as_deref(), live.acting_master, live.data_version),
            &(row.ha_address.as_deref(), row.acting_master, row.data_version),
        )?;
        same(
            format_args!("signs of {}", row.address),
            &(live.registered_at, live.last_sign, live.connection, live.generation, live.suspected_until),
            &(row.registered_at, row.last_sign, row.connection, row.generation, row.suspected_until),
        )?;
        let timeout = live.timeout.unwrap_or(self.model.policy.broker_expire);
        same("timeout", &timeout, &row.timeout)?;
        same("topics of the group", &self.model.topics_of(&live.broker).len(), &row.topics)
    }
}

fn command(action: &Action, connection: ConnectionId) -> Command<'_> {
    match action {
        Action::Register(_) => unreachable!("registrations are played by themselves"),
        Action::Unregister { broker, address, id } => {
            Command::Unregister(Unregistration { broker, address, id: *id, connection })
        }
        Action::Heartbeat { cluster, address } => Command::Heartbeat(Sign { cluster, address, connection }),
        Action::Query { cluster, address, version } => {
            let sign = Sign { cluster, address, connection };
            Command::QueryDataVersion { sign, version: *version }
        }
        Action::Lose(how) => Command::ConnectionLost { connection, how: *how },
        Action::Idle => Command::ConnectionIdle { connection },
        Action::Tick => Command::Tick,
        Action::RegisterTopic { topic, queues } => Command::RegisterTopic { topic, queues },
        Action::DeleteTopic { topic, cluster } => Command::DeleteTopic { topic, cluster: cluster.as_deref() },
        Action::Wipe { broker } => Command::WipeWritePermission { broker },
        Action::Add { broker } => Command::AddWritePermission { broker },
        Action::SetOrder { topic, configuration } => {
            Command::SetOrder { topic, configuration: configuration.as_deref() }
        }
        Action::SetPolicy(policy) => Command::SetPolicy(*policy),
    }
}

fn identity(announce: &Announce) -> BrokerIdentity<'_> {
    BrokerIdentity {
        cluster: &announce.cluster,
        broker: &announce.broker,
        address: &announce.address,
        id: announce.id,
        ha_address: announce.ha_address.as_deref(),
        zone: announce.zone.as_deref(),
        timeout: announce.timeout,
        acting_master: announce.acting_master,
    }
}

/// Of the bytes that the body would have.
fn digest(announce: &Announce) -> BodyDigest {
    let mut bytes = Vec::new();
    announce.body.encode_json(&mut bytes);
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &bytes).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    BodyDigest((half(0) << 64) | half(1))
}

fn encoded(data: &TopicRouteData, dialect: Dialect) -> String {
    let mut bytes = Vec::new();
    data.encode(dialect, &mut bytes);
    text(&bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("bodies are text")
}

fn effects_text(effects: &Effects) -> impl PartialEq + Debug + use<> {
    let routes = effects
        .changed
        .iter()
        .map(|change| (change.topic.clone(), change.route.as_ref().map(|route| route.data())));
    let (outcome, notices) = (effects.outcome.clone(), effects.notices.clone());
    (outcome, routes.collect::<Vec<_>>(), notices, effects.close.clone(), effects.events.clone())
}

fn sorted<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<&'a Event> {
    let mut events: Vec<&Event> = events.collect();
    if events.len() > 1 {
        events.sort_by_cached_key(|event| format!("{event:?}"));
    }
    events
}

fn same<T: PartialEq + Debug>(what: impl Display, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("{what}:\n  expected {expected:?}\n  found    {found:?}"))
    }
}
