//! One version of a topic's route, and the place where equal ones are shared.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use waypost_rocketmq_wire::body::{BrokerData, QueueData, TopicQueueMapping, TopicRouteData};

use crate::names::Names;
use crate::publish::{PublishView, Unwritable, unwritable};
use crate::subscribe::SubscribeView;

/// The queues that one broker group has of a topic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueEntry {
    /// The broker group.
    pub broker: Arc<str>,
    /// Queues to read from.
    pub read_queues: i32,
    /// Queues to write to.
    pub write_queues: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// Bits that say whether the topic is one of units.
    pub sys_flag: i32,
}

/// What a server said of a topic, sorted.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RouteContent {
    /// By name; of equal names the order of the server stays.
    pub(crate) groups: Arc<[BrokerData]>,
    pub(crate) queues: Box<[QueueEntry]>,
    pub(crate) order_conf: Option<Box<str>>,
    pub(crate) filter_servers: BTreeMap<String, Vec<String>>,
    pub(crate) mappings: Option<BTreeMap<String, TopicQueueMapping>>,
}

impl RouteContent {
    fn new(mut data: TopicRouteData, parts: &mut Parts) -> Self {
        data.broker_datas.sort_by(|left, right| left.broker_name.cmp(&right.broker_name));
        data.queue_datas.sort_by(|left, right| left.broker_name.cmp(&right.broker_name));
        let queues = data.queue_datas.iter().map(|entry| QueueEntry {
            broker: parts.names.share(&entry.broker_name),
            read_queues: entry.read_queue_nums,
            write_queues: entry.write_queue_nums,
            perm: entry.perm,
            sys_flag: entry.topic_sys_flag,
        });
        Self {
            queues: queues.collect(),
            groups: parts.share_groups(data.broker_datas),
            order_conf: data.order_topic_conf.map(String::into_boxed_str),
            filter_servers: data.filter_server_table,
            mappings: data.topic_queue_mapping_by_broker,
        }
    }

    /// The first group of that name.
    pub(crate) fn group(&self, name: &str) -> Option<&BrokerData> {
        let first = self.groups.partition_point(|group| group.broker_name.as_str() < name);
        self.groups.get(first).filter(|group| group.broker_name == name)
    }
}

/// Parts that routes share.
#[derive(Debug, Default)]
struct Parts {
    names: Names,
    groups: HashSet<Arc<[BrokerData]>>,
}

impl Parts {
    fn share_groups(&mut self, groups: Vec<BrokerData>) -> Arc<[BrokerData]> {
        if let Some(known) = self.groups.get(groups.as_slice()) {
            return Arc::clone(known);
        }
        let groups: Arc<[BrokerData]> = groups.into();
        self.groups.insert(Arc::clone(&groups));
        groups
    }
}

/// One version of a topic's route with both of its views, which therefore never disagree.
///
/// It does not know its topic: topics with equal routes share one. Two routes are equal (`==`) if all that the
/// server said is; whether subscribers should hear of the difference is [`TopicRoute::content_equals`].
#[derive(Debug, Default)]
pub struct TopicRoute {
    content: RouteContent,
    publish: PublishView,
    subscribe: SubscribeView,
}

impl PartialEq for TopicRoute {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl Eq for TopicRoute {}

impl Hash for TopicRoute {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.content.hash(state);
    }
}

impl From<TopicRouteData> for TopicRoute {
    /// A route that shares nothing; [`RouteCache::share`] makes those that do.
    fn from(data: TopicRouteData) -> Self {
        Self::new(data, &mut Parts::default())
    }
}

impl TopicRoute {
    fn new(data: TopicRouteData, parts: &mut Parts) -> Self {
        let content = RouteContent::new(data, parts);
        let publish = PublishView::compute(&content, &mut parts.names);
        let subscribe = SubscribeView::compute(&content, &mut parts.names);
        Self { content, publish, subscribe }
    }

    /// The queues to send to; perhaps none, see [`TopicRoute::writable`].
    #[must_use]
    pub fn publish(&self) -> &PublishView {
        &self.publish
    }

    /// The queues to read from.
    #[must_use]
    pub fn subscribe(&self) -> &SubscribeView {
        &self.subscribe
    }

    /// The queues to send to.
    ///
    /// # Errors
    /// If there is none, with each broker's reason. `topic` is only for that error.
    pub fn writable(&self, topic: &str) -> Result<&PublishView, Unwritable> {
        if self.publish.is_empty() { Err(unwritable(topic, &self.content)) } else { Ok(&self.publish) }
    }

    /// The broker groups, by name.
    #[must_use]
    pub fn groups(&self) -> &[BrokerData] {
        &self.content.groups
    }

    /// The broker group called `name`.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&BrokerData> {
        self.content.group(name)
    }

    /// The queues of each broker as the server said them, by broker name.
    #[must_use]
    pub fn queue_entries(&self) -> &[QueueEntry] {
        &self.content.queues
    }

    /// The text of the order configuration, which may be empty.
    #[must_use]
    pub fn order_conf(&self) -> Option<&str> {
        self.content.order_conf.as_deref()
    }

    /// Whether a client has the same queues and addresses from both (B6): the order configuration, of each queue
    /// entry everything, of each group its name and addresses, filter servers and static mappings. Cluster, zone
    /// and the flag for acting masters are not compared, nor is the order of the lists.
    #[must_use]
    pub fn content_equals(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.content, &other.content);
        let same_groups = || {
            let pairs = || mine.groups.iter().zip(theirs.groups.iter());
            mine.groups.len() == theirs.groups.len()
                && pairs().all(|(left, right)| {
                    left.broker_name == right.broker_name && left.broker_addrs == right.broker_addrs
                })
        };
        mine.queues == theirs.queues
            && mine.order_conf == theirs.order_conf
            && mine.filter_servers == theirs.filter_servers
            && mine.mappings == theirs.mappings
            && (Arc::ptr_eq(&mine.groups, &theirs.groups) || same_groups())
    }

    /// Whether `newer` lacks more than half of the broker groups that have addresses here (B17.9). A name server
    /// that was restarted a moment ago answers like that; another should be asked before it is believed.
    #[must_use]
    pub fn loses_most_brokers(&self, newer: &Self) -> bool {
        let (lost, total) = self.lost_brokers(newer);
        lost * 2 > total
    }

    /// Whether `newer` lacks any broker group that has addresses here.
    #[must_use]
    pub fn loses_brokers(&self, newer: &Self) -> bool {
        self.lost_brokers(newer).0 > 0
    }

    /// How many of the broker groups that have addresses here have none in `newer`, and how many there are.
    fn lost_brokers(&self, newer: &Self) -> (usize, usize) {
        let is_addressed = |group: &BrokerData| !group.broker_addrs.is_empty();
        let before = || self.groups().iter().filter(|group| is_addressed(group));
        let lost = before().filter(|group| !newer.group(&group.broker_name).is_some_and(is_addressed));
        (lost.count(), before().count())
    }

    /// The route as the protocol has it, with its lists sorted by broker name.
    #[must_use]
    pub fn to_wire(&self) -> TopicRouteData {
        let queues = self.content.queues.iter().map(|entry| QueueData {
            broker_name: entry.broker.to_string(),
            read_queue_nums: entry.read_queues,
            write_queue_nums: entry.write_queues,
            perm: entry.perm,
            topic_sys_flag: entry.sys_flag,
        });
        TopicRouteData {
            order_topic_conf: self.content.order_conf.as_deref().map(str::to_owned),
            broker_datas: self.content.groups.to_vec(),
            queue_datas: queues.collect(),
            filter_server_table: self.content.filter_servers.clone(),
            topic_queue_mapping_by_broker: self.content.mappings.clone(),
        }
    }
}

/// Shares what equal routes have in common: thousands of topics on the same brokers take the memory of a few.
///
/// A whole route is shared if it is equal, else the list of broker groups and the names. What nobody holds any
/// more goes now and then, when as many routes have been added as were in use.
#[derive(Debug, Default)]
pub struct RouteCache {
    routes: HashSet<Arc<TopicRoute>>,
    parts: Parts,
    /// Entries after the last clearing.
    in_use: usize,
}

/// Clearing is not worth its time below this number of entries.
const CLEARING_FLOOR: usize = 64;

impl RouteCache {
    /// The one copy of the route that `data` is.
    pub fn share(&mut self, data: TopicRouteData) -> Arc<TopicRoute> {
        let route = TopicRoute::new(data, &mut self.parts);
        if let Some(known) = self.routes.get(&route) {
            return Arc::clone(known);
        }
        let route = Arc::new(route);
        self.routes.insert(Arc::clone(&route));
        if self.routes.len() >= self.in_use.saturating_mul(2).max(CLEARING_FLOOR) {
            self.clear_unused();
        }
        route
    }

    /// How many different routes are kept, some of which nobody may hold any more.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether no route is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn clear_unused(&mut self) {
        self.routes.retain(|route| Arc::strong_count(route) > 1);
        self.parts.groups.retain(|groups| Arc::strong_count(groups) > 1);
        self.parts.names.prune();
        self.in_use = self.routes.len();
    }
}

#[cfg(test)]
mod tests;
