//! The route of a topic as readers see it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use waypost_rocketmq_wire::body::{BrokerData, Dialect, QueueData, TopicQueueMapping, TopicRouteData};

/// Routes of topics with this prefix show real broker ids, because brokers discover the members
/// of their group by them (spec 2.9 step 5, K8).
pub const MEMBER_GROUP_TOPIC_PREFIX: &str = "rmq_sys_SYNC_BROKER_MEMBER_";

/// Write permission (spec 2.1).
pub(crate) const PERM_WRITE: i32 = 2;
/// Read and write permission.
pub(crate) const PERM_READ_WRITE: i32 = 6;

/// A broker group as it was at one moment. Replaced as a whole when anything in it changes.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct GroupView {
    pub(crate) name: Arc<str>,
    pub(crate) cluster: Arc<str>,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) acting_master: bool,
    /// Ascending by id; never empty.
    pub(crate) members: Vec<(i64, Arc<str>)>,
    /// Addresses with filter servers only.
    pub(crate) filter_servers: Vec<(Arc<str>, Vec<String>)>,
}

/// Queue data in the form that readers get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Queues {
    pub(crate) read: i32,
    pub(crate) write: i32,
    pub(crate) perm: i32,
    pub(crate) sys_flag: i32,
}

/// Everything that decides the bytes of a route. Equal parts make equal bytes, so topics with
/// equal parts share one [`Route`].
#[derive(Debug)]
pub(crate) struct RouteParts {
    /// Ascending by broker name.
    pub(crate) groups: Vec<(Arc<GroupView>, Queues)>,
    pub(crate) order: Option<Arc<str>>,
    /// Show the smallest slave of a read-only group as id 0. Set only if there is such a group, so
    /// that equal bytes mostly have equal parts.
    pub(crate) rewrite_acting_master: bool,
    pub(crate) mappings: Option<BTreeMap<String, TopicQueueMapping>>,
}

impl GroupView {
    /// Whether routes in acting-master mode show the smallest slave as id 0: the group lost its
    /// master and serves reads only (spec 2.9 step 5).
    pub(crate) fn acts_without_master(&self, queues: &Queues) -> bool {
        self.acting_master && queues.perm & PERM_WRITE == 0 && self.members.iter().all(|(id, _)| *id != 0)
    }
}

impl PartialEq for RouteParts {
    /// Group views are compared by identity: a change always makes a new view.
    fn eq(&self, other: &Self) -> bool {
        self.rewrite_acting_master == other.rewrite_acting_master
            && self.order == other.order
            && self.mappings == other.mappings
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(|((view, queues), (other_view, other_queues))| {
                queues == other_queues && Arc::ptr_eq(view, other_view)
            })
    }
}

impl Hash for RouteParts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (view, queues) in &self.groups {
            Arc::as_ptr(view).hash(state);
            queues.hash(state);
        }
        self.order.hash(state);
        self.rewrite_acting_master.hash(state);
    }
}

/// The route of one or more topics: immutable, with its encoded bodies.
///
/// A body is encoded by the first query that asks for its dialect and kept as long as the route.
#[derive(Debug)]
pub struct Route {
    parts: RouteParts,
    standard: OnceLock<Bytes>,
    legacy: OnceLock<Bytes>,
}

impl Route {
    pub(crate) fn new(parts: RouteParts) -> Self {
        Self { parts, standard: OnceLock::new(), legacy: OnceLock::new() }
    }

    pub(crate) fn parts(&self) -> &RouteParts {
        &self.parts
    }

    /// The body of a 105 answer (spec 2.9).
    pub fn body(&self, dialect: Dialect) -> &Bytes {
        let cell = match dialect {
            Dialect::Standard => &self.standard,
            Dialect::Legacy => &self.legacy,
        };
        cell.get_or_init(|| encode(&self.data(), dialect))
    }

    /// The body of a 105 answer for a caller that wants the brokers of its zone only, in the
    /// caller's dialect (spec 3.5, decision 8). Not kept.
    pub fn body_in_zone(&self, zone: &str, dialect: Dialect) -> Bytes {
        let mut data = self.data();
        data.keep_zone(zone);
        encode(&data, dialect)
    }

    /// The route as plain data, members sorted by broker name (decision 7).
    pub fn data(&self) -> TopicRouteData {
        let parts = &self.parts;
        let mut data = TopicRouteData {
            order_topic_conf: parts.order.as_deref().map(str::to_owned),
            topic_queue_mapping_by_broker: parts.mappings.clone(),
            ..TopicRouteData::default()
        };
        for (view, queues) in &parts.groups {
            let mut addresses: BTreeMap<i64, String> =
                view.members.iter().map(|(id, address)| (*id, address.to_string())).collect();
            if parts.rewrite_acting_master
                && view.acts_without_master(queues)
                && let Some((_, address)) = addresses.pop_first()
            {
                addresses.insert(0, address);
            }
            data.broker_datas.push(BrokerData {
                cluster: view.cluster.to_string(),
                broker_name: view.name.to_string(),
                broker_addrs: addresses,
                zone_name: view.zone.as_deref().map(str::to_owned),
                enable_acting_master: view.acting_master,
            });
            data.queue_datas.push(QueueData {
                broker_name: view.name.to_string(),
                read_queue_nums: queues.read,
                write_queue_nums: queues.write,
                perm: queues.perm,
                topic_sys_flag: queues.sys_flag,
            });
            for (address, servers) in &view.filter_servers {
                data.filter_server_table.insert(address.to_string(), servers.clone());
            }
        }
        data
    }
}

fn encode(data: &TopicRouteData, dialect: Dialect) -> Bytes {
    let mut out = Vec::with_capacity(256 * (1 + data.broker_datas.len()));
    data.encode(dialect, &mut out);
    out.shrink_to_fit();
    Bytes::from(out)
}
