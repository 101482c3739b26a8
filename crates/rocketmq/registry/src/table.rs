//! The table: its parts, how a command is applied, and how changed routes are made.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use slab::Slab;

use crate::broker::Broker;
use crate::command::{Command, ConnectionId};
use crate::deleted::DeletedTopics;
use crate::effects::{ConflictKind, Effects, Event, Member, Outcome, RouteChange};
use crate::group::{Group, GroupId};
use crate::policy::{Policy, TableLimits};
use crate::route::{GroupView, MEMBER_GROUP_TOPIC_PREFIX, PERM_WRITE, Queues, Route, RouteParts};
use crate::topic::{Topic, TopicId, TopicQueues};

/// How many different conflicts are remembered as already reported.
const REPORTED_CONFLICTS_MAX: usize = 10_000;

/// Fewer shared routes than this are not searched for dead ones.
const ROUTES_MIN: usize = 64;

/// Which broker has which topics, and who is alive (spec 2.1).
///
/// Maps whose order can be seen in effects are ordered; maps keyed by topic use a keyed hasher,
/// because peers choose the keys.
#[derive(Debug)]
pub struct RouteTable {
    pub(crate) policy: Policy,
    pub(crate) limits: TableLimits,
    pub(crate) topics: Slab<Topic>,
    pub(crate) topic_ids: HashMap<Arc<str>, TopicId>,
    pub(crate) groups: Slab<Group>,
    pub(crate) group_ids: BTreeMap<Arc<str>, GroupId>,
    /// By address: one address has one cluster, one name, one id (decision 4).
    pub(crate) brokers: BTreeMap<Arc<str>, Broker>,
    pub(crate) bound: HashMap<ConnectionId, Vec<Arc<str>>>,
    pub(crate) order: HashMap<Arc<str>, Arc<str>>,
    /// Broker names whose wipe survives registrations, while the policy says so.
    pub(crate) wiped: BTreeSet<Arc<str>>,
    pub(crate) deleted: DeletedTopics,
    pub(crate) generation: u64,
    pub(crate) next_scan: Option<Duration>,
    /// Routes by the hash of their parts, to share equal ones.
    routes: HashMap<u64, Weak<Route>>,
    /// How many of them there may be before the dead ones are looked for.
    routes_max: usize,
    route_hasher: RandomState,
    /// The largest number of topics since the table last gave memory back.
    topics_peak: usize,
    reported: BTreeSet<(ConflictKind, Arc<str>, Arc<str>)>,
}

/// Effects in the making.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) effects: Effects,
    /// Topics whose route may have changed; may repeat.
    pub(crate) dirty: Vec<TopicId>,
    /// Groups whose view has to be made anew; may repeat, may be gone.
    stale: Vec<GroupId>,
    /// Groups whose smallest id left, with that id and its address. Of several that left one after
    /// another the smallest counts: it was the smallest before the command.
    pub(crate) min_left: BTreeMap<Arc<str>, (i64, Arc<str>)>,
}

/// Counts what a command did to the topics of one group.
#[derive(Default)]
pub(crate) struct TopicTally {
    added: usize,
    altered: usize,
    removed: usize,
    example: Option<Arc<str>>,
}

impl TopicTally {
    pub(crate) fn added(&mut self, topic: &Arc<str>) {
        self.added += 1;
        self.example.get_or_insert_with(|| Arc::clone(topic));
    }

    pub(crate) fn has_added(&self) -> bool {
        self.added > 0
    }

    pub(crate) fn altered(&mut self, topic: &Arc<str>) {
        self.altered += 1;
        self.example.get_or_insert_with(|| Arc::clone(topic));
    }

    pub(crate) fn removed(&mut self, topic: &Arc<str>) {
        self.removed += 1;
        self.example.get_or_insert_with(|| Arc::clone(topic));
    }

    pub(crate) fn report(self, broker: &Arc<str>, change: &mut Change) {
        if let Some(example) = self.example {
            change.effects.events.push(Event::TopicsChanged {
                broker: Arc::clone(broker),
                added: self.added,
                altered: self.altered,
                removed: self.removed,
                example,
            });
        }
    }
}

impl RouteTable {
    /// An empty table.
    pub fn new(policy: Policy, limits: TableLimits) -> Self {
        Self {
            policy,
            limits,
            topics: Slab::new(),
            topic_ids: HashMap::new(),
            groups: Slab::new(),
            group_ids: BTreeMap::new(),
            brokers: BTreeMap::new(),
            bound: HashMap::new(),
            order: HashMap::new(),
            wiped: BTreeSet::new(),
            deleted: DeletedTopics::default(),
            generation: 0,
            next_scan: None,
            routes: HashMap::new(),
            routes_max: ROUTES_MIN,
            route_hasher: RandomState::new(),
            topics_peak: 0,
            reported: BTreeSet::new(),
        }
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Does one command and says what follows from it. `now` is the time since any fixed moment
    /// and never goes back.
    pub fn apply(&mut self, command: Command<'_>, now: Duration) -> Effects {
        let mut change = Change::default();
        let outcome = match command {
            Command::Register(registration) => self.register(&registration, now, &mut change),
            Command::Unregister(unregistration) => self.unregister(&unregistration, &mut change),
            Command::Heartbeat(sign) => {
                if self.refresh(&sign, now, &mut change).is_some() {
                    Outcome::Done
                } else {
                    Outcome::Ignored
                }
            }
            Command::QueryDataVersion { sign, version } => {
                let stored = self.refresh(&sign, now, &mut change);
                Outcome::DataVersion { changed: stored.is_none() || stored != version, stored }
            }
            Command::ConnectionLost { connection, how } => {
                self.connection_lost(connection, how, now, &mut change);
                Outcome::Done
            }
            Command::ConnectionIdle { connection } => {
                self.connection_idle(connection, now, &mut change);
                Outcome::Done
            }
            Command::Tick => {
                self.tick(now, &mut change);
                Outcome::Done
            }
            Command::RegisterTopic { topic, queues } => self.register_topic(topic, queues, &mut change),
            Command::DeleteTopic { topic, cluster } => self.delete_topic(topic, cluster, now, &mut change),
            Command::WipeWritePermission { broker } => self.wipe_write_permission(broker, &mut change),
            Command::AddWritePermission { broker } => self.add_write_permission(broker, &mut change),
            Command::SetOrder { topic, configuration } => self.set_order(topic, configuration, &mut change),
            Command::SetPolicy(policy) => self.set_policy(policy, now, &mut change),
        };
        change.effects.outcome = outcome;
        self.tell_who_lost_the_smallest_id(&mut change);
        self.make_routes(&mut change);
        change.effects
    }

    /// Whether a broker is bound to the connection.
    pub fn is_bound(&self, connection: ConnectionId) -> bool {
        self.bound.contains_key(&connection)
    }

    fn set_policy(&mut self, policy: Policy, now: Duration, change: &mut Change) -> Outcome {
        let before = std::mem::replace(&mut self.policy, policy);
        let shows_otherwise = before.support_acting_master != policy.support_acting_master
            || before.order_message != policy.order_message
            || before.wipe_survives_registration != policy.wipe_survives_registration;
        if shows_otherwise {
            change.dirty.extend(self.topics.iter().map(|(index, _)| topic_id(index)));
        }
        if before.delete_unlisted_topics != policy.delete_unlisted_topics {
            // A known body may have to remove topics now.
            for (_, group) in &mut self.groups {
                group.touch();
            }
        }
        if before.scan_interval != policy.scan_interval {
            self.next_scan = Some(now.saturating_add(policy.scan_interval));
        }
        Outcome::Done
    }

    fn set_order(&mut self, topic: &str, configuration: Option<&str>, change: &mut Change) -> Outcome {
        match configuration {
            Some(configuration) => self.order.insert(topic.into(), configuration.into()),
            None => self.order.remove(topic),
        };
        if self.policy.order_message {
            change.dirty.extend(self.topic_ids.get(topic));
        }
        Outcome::Done
    }

    pub(crate) fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(crate) fn group_named(&self, broker: &str) -> Option<&Group> {
        self.group_ids.get(broker).map(|id| self.group(*id))
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.0 as usize]
    }

    pub(crate) fn topic(&self, id: TopicId) -> &Topic {
        &self.topics[id.0 as usize]
    }

    pub(crate) fn topic_mut(&mut self, id: TopicId) -> &mut Topic {
        &mut self.topics[id.0 as usize]
    }

    /// The topic of a name, made if it is new.
    pub(crate) fn topic_of(&mut self, name: &str) -> TopicId {
        if let Some(id) = self.topic_ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = topic_id(self.topics.insert(Topic::new(Arc::clone(&name))));
        self.topic_ids.insert(name, id);
        id
    }

    /// What routes show of a group's queues.
    pub(crate) fn shown(&self, queues: &TopicQueues) -> Queues {
        let mut shown = queues.effective();
        if self.policy.wipe_survives_registration && self.wiped.contains(&self.group(queues.group).name) {
            shown.perm &= !PERM_WRITE;
        }
        shown
    }

    pub(crate) fn member(&self, address: &Arc<str>, broker: &Broker) -> Member {
        Member {
            cluster: Arc::clone(&broker.cluster),
            broker: Arc::clone(&self.group(broker.group).name),
            id: broker.id,
            address: Arc::clone(address),
        }
    }

    /// Marks the routes of all topics of a group, because what they show of the group changed.
    pub(crate) fn show_anew(&mut self, id: GroupId, change: &mut Change) {
        let group = self.group_mut(id);
        group.view = None;
        change.stale.push(id);
        change.dirty.extend(&group.topics);
    }

    /// Settles the cluster that routes name for a group: the old one while a member is in it.
    pub(crate) fn settle_cluster(&mut self, id: GroupId) {
        let group = self.group(id);
        let in_cluster = |address: &Arc<str>| self.brokers.get(address).map(|broker| &broker.cluster);
        if group.members.values().any(|address| in_cluster(address) == Some(&group.cluster)) {
            return;
        }
        if let Some(cluster) = group.members.values().find_map(in_cluster).cloned() {
            self.group_mut(id).cluster = cluster;
        }
    }

    pub(crate) fn conflict(
        &mut self,
        kind: ConflictKind,
        member: Member,
        other: Arc<str>,
        change: &mut Change,
    ) {
        if self.reported.len() >= REPORTED_CONFLICTS_MAX {
            self.reported.clear();
        }
        let first = self.reported.insert((kind, Arc::clone(&member.broker), Arc::clone(&member.address)));
        change.effects.events.push(Event::Conflict { kind, member, other, first });
    }

    /// Spec 2.10 step 5: tells the groups that still exist, as they are after the whole command.
    fn tell_who_lost_the_smallest_id(&mut self, change: &mut Change) {
        if !self.policy.notify_min_broker_change {
            return;
        }
        for (name, (_, offline_address)) in std::mem::take(&mut change.min_left) {
            let Some(id) = self.group_ids.get(&name).copied() else { continue };
            if self.group(id).acting_master {
                change.effects.notices.extend(self.min_broker_notice(id, Some(offline_address), None));
            }
        }
    }

    fn view_of(&self, group: &Group) -> GroupView {
        GroupView {
            name: Arc::clone(&group.name),
            cluster: Arc::clone(&group.cluster),
            zone: group.zone.clone(),
            acting_master: group.acting_master,
            members: group.members.iter().map(|(id, address)| (*id, Arc::clone(address))).collect(),
            filter_servers: group
                .members
                .values()
                .filter_map(|address| {
                    let servers = &self.brokers.get(address)?.filter_servers;
                    (!servers.is_empty()).then(|| (Arc::clone(address), servers.clone()))
                })
                .collect(),
        }
    }

    /// Makes the routes of the dirty topics, reports those that differ from what was published, and
    /// drops topics that nobody has.
    fn make_routes(&mut self, change: &mut Change) {
        for id in std::mem::take(&mut change.stale) {
            if let Some(group) = self.groups.get(id.0 as usize)
                && group.view.is_none()
            {
                let view = self.view_of(group);
                self.group_mut(id).view = Some(Arc::new(view));
            }
        }
        self.topics_peak = self.topics_peak.max(self.topics.len());
        change.dirty.sort_unstable();
        change.dirty.dedup();
        let mut last: Option<Arc<Route>> = None;
        for id in std::mem::take(&mut change.dirty) {
            let topic = self.topic(id);
            let parts = (!topic.queues.is_empty()).then(|| self.parts_of(topic));
            if topic.route.as_deref().map(Route::parts) != parts.as_ref() {
                let name = Arc::clone(&topic.name);
                let route = parts.map(|parts| match &last {
                    // Neighbours mostly look the same.
                    Some(last) if *last.parts() == parts => Arc::clone(last),
                    _ => self.shared_route(parts),
                });
                last.clone_from(&route);
                self.topic_mut(id).route.clone_from(&route);
                change.effects.changed.push(RouteChange { topic: name, route });
            }
            let topic = self.topic(id);
            if topic.queues.is_empty() && topic.mappings.is_none() {
                let topic = self.topics.remove(id.0 as usize);
                self.topic_ids.remove(&topic.name);
            }
        }
        // A table that shrank gives its memory back.
        if self.topics.len() < self.topics_peak / 4 {
            self.topic_ids.shrink_to_fit();
            self.topics.shrink_to_fit();
            self.topics_peak = self.topics.len();
        }
    }

    fn parts_of(&self, topic: &Topic) -> RouteParts {
        let mut groups = Vec::with_capacity(topic.queues.len());
        for queues in &topic.queues {
            let view = self.group(queues.group).view.as_ref();
            groups.push((
                Arc::clone(view.expect("invariant: every group has a view by now")),
                self.shown(queues),
            ));
        }
        groups.sort_unstable_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        RouteParts {
            order: if self.policy.order_message { self.order.get(&topic.name).cloned() } else { None },
            rewrite_acting_master: self.policy.support_acting_master
                && groups.iter().any(|(view, queues)| view.acts_without_master(queues))
                && !topic.name.starts_with(MEMBER_GROUP_TOPIC_PREFIX),
            mappings: topic.mappings.as_ref().map(|mappings| {
                mappings.iter().map(|(name, (_, mapping))| (name.clone(), mapping.clone())).collect()
            }),
            groups,
        }
    }

    /// One route for all topics with equal parts.
    fn shared_route(&mut self, parts: RouteParts) -> Arc<Route> {
        if parts.mappings.is_some() {
            return Arc::new(Route::new(parts));
        }
        let hash = self.route_hasher.hash_one(&parts);
        if let Some(route) = self.routes.get(&hash).and_then(Weak::upgrade)
            && *route.parts() == parts
        {
            return route;
        }
        let route = Arc::new(Route::new(parts));
        if self.routes.len() >= self.routes_max {
            self.routes.retain(|_, route| route.strong_count() > 0);
            self.routes_max = (self.routes.len() * 2).max(ROUTES_MIN);
        }
        self.routes.insert(hash, Arc::downgrade(&route));
        route
    }
}

/// The slab holds at most `TableLimits::topics` topics, which the configuration bounds below 2^32.
fn topic_id(index: usize) -> TopicId {
    TopicId(u32::try_from(index).expect("invariant: the number of topics is limited"))
}

#[cfg(test)]
mod tests {
    use waypost_rocketmq_wire::body::{QueueData, RegisterBrokerBody};

    use super::*;
    use crate::command::{Announcement, BrokerIdentity, Registration};

    fn table_with_a_broker() -> RouteTable {
        let mut table = RouteTable::new(Policy::default(), TableLimits::default());
        register(&mut table, "a");
        table
    }

    fn register(table: &mut RouteTable, address: &str) {
        let identity = BrokerIdentity {
            cluster: "c",
            broker: "b",
            address,
            id: 0,
            ha_address: None,
            zone: None,
            timeout: None,
            acting_master: None,
        };
        let body = RegisterBrokerBody::default();
        let (body, connection) = (Announcement::Full(&body, None), ConnectionId(1));
        table.apply(Command::Register(Registration { identity, body, connection }), Duration::ZERO);
    }

    fn register_topic(table: &mut RouteTable, topic: &str, read_queue_nums: i32) {
        let queues = [QueueData {
            broker_name: "b".to_owned(),
            read_queue_nums,
            write_queue_nums: 1,
            perm: 6,
            topic_sys_flag: 0,
        }];
        table.apply(Command::RegisterTopic { topic, queues: &queues }, Duration::ZERO);
    }

    #[test]
    fn routes_that_nobody_has_any_more_are_forgotten() {
        let mut table = table_with_a_broker();
        for queues in 0..10_000 {
            register_topic(&mut table, "t", queues);
        }
        assert!(table.routes.len() <= ROUTES_MIN, "{} routes of one topic", table.routes.len());
    }

    #[test]
    fn a_table_that_shrank_gives_memory_back_once() {
        let mut table = table_with_a_broker();
        for topic in 0..1_000 {
            register_topic(&mut table, &topic.to_string(), 8);
        }
        assert_eq!(table.topics_peak, 1_000);
        for topic in 0..751 {
            let topic = topic.to_string();
            table.apply(Command::DeleteTopic { topic: &topic, cluster: None }, Duration::ZERO);
        }
        assert_eq!(table.topics_peak, 249);
        assert!(table.topic_ids.capacity() < 1_000);
        table.apply(Command::Tick, Duration::ZERO);
        assert_eq!(table.topics_peak, 249, "nothing to do for a table that stays as it is");
    }

    #[test]
    fn reported_conflicts_are_bounded() {
        let mut table = table_with_a_broker();
        for address in 0..REPORTED_CONFLICTS_MAX + 10 {
            register(&mut table, &address.to_string());
        }
        assert!(table.reported.len() <= REPORTED_CONFLICTS_MAX);
    }
}
