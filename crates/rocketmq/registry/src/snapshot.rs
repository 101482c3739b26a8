//! The live table with what no request tells, for the admin side.

use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::DataVersion;

use crate::command::ConnectionId;
use crate::deleted::DeletedRow;
use crate::table::RouteTable;

/// One registered broker. Times are measured from the moment that the owner of the table counts from.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BrokerRow {
    /// Cluster that it registered with.
    pub cluster: Arc<str>,
    /// Broker name.
    pub broker: Arc<str>,
    /// Broker id.
    pub id: i64,
    /// Advertised address.
    pub address: Arc<str>,
    /// Replication address.
    pub ha_address: Option<Arc<str>>,
    /// Zone of its group.
    pub zone: Option<Arc<str>>,
    /// `enableActingMaster` as it announced it; `None` for a 4.x broker.
    pub acting_master: Option<bool>,
    /// Registered without interruption since.
    pub registered_at: Duration,
    /// Last registration or heartbeat.
    pub last_sign: Duration,
    /// Removed after this long without a sign.
    pub timeout: Duration,
    /// Last announced data version.
    pub data_version: DataVersion,
    /// The connection it is bound to.
    pub connection: ConnectionId,
    /// Counts registrations; larger is newer.
    pub generation: u64,
    /// Set while its connection is broken by time-out: when it goes.
    pub suspected_until: Option<Duration>,
    /// Topics that its group has queues or static mappings for.
    pub topics: usize,
}

/// One topic and its queues.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TopicRow {
    /// The topic.
    pub topic: Arc<str>,
    /// One entry a broker name, sorted.
    pub queues: Vec<QueueRow>,
}

/// The queues of a topic on one broker.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueRow {
    /// Broker name.
    pub broker: Arc<str>,
    /// Read queues.
    pub read_queues: i32,
    /// Write queues.
    pub write_queues: i32,
    /// Permission that the broker announced.
    pub announced_perm: i32,
    /// Permission that readers get.
    pub perm: i32,
    /// `topicSysFlag`.
    pub sys_flag: i32,
}

/// How much the table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TableCounts {
    /// Registered addresses.
    pub brokers: usize,
    /// Broker names.
    pub groups: usize,
    /// Topics with queues or static mappings.
    pub topics: usize,
    /// Brokers whose connection is broken by time-out.
    pub suspects: usize,
}

impl RouteTable {
    /// Every registered broker, by address.
    pub fn brokers(&self) -> Vec<BrokerRow> {
        self.brokers
            .iter()
            .map(|(address, broker)| {
                let group = self.group(broker.group);
                BrokerRow {
                    cluster: Arc::clone(&broker.cluster),
                    broker: Arc::clone(&group.name),
                    id: broker.id,
                    address: Arc::clone(address),
                    ha_address: broker.ha_address.clone(),
                    zone: group.zone.clone(),
                    acting_master: broker.acting_master,
                    registered_at: broker.registered_at,
                    last_sign: broker.last_sign,
                    timeout: broker.timeout.unwrap_or(self.policy.broker_expire),
                    data_version: broker.data_version,
                    connection: broker.connection,
                    generation: broker.generation,
                    suspected_until: broker.suspected_until,
                    topics: group.topics.len(),
                }
            })
            .collect()
    }

    /// Topics whose name `wanted` accepts, by name, at most `limit`.
    pub fn topics(&self, wanted: impl Fn(&str) -> bool, limit: usize) -> Vec<TopicRow> {
        let mut topics: Vec<_> = self
            .topics
            .iter()
            .map(|(_, topic)| topic)
            .filter(|topic| !topic.queues.is_empty() && wanted(&topic.name))
            .collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics.truncate(limit);
        topics
            .into_iter()
            .map(|topic| {
                let mut queues: Vec<_> = topic
                    .queues
                    .iter()
                    .map(|queues| {
                        let shown = self.shown(queues);
                        QueueRow {
                            broker: Arc::clone(&self.group(queues.group).name),
                            read_queues: shown.read,
                            write_queues: shown.write,
                            announced_perm: queues.announced.perm,
                            perm: shown.perm,
                            sys_flag: shown.sys_flag,
                        }
                    })
                    .collect();
                queues.sort_unstable_by(|a, b| a.broker.cmp(&b.broker));
                TopicRow { topic: Arc::clone(&topic.name), queues }
            })
            .collect()
    }

    /// Topics that were deleted while brokers have them, by name, at most `limit`.
    pub fn deleted_topics(&self, wanted: impl Fn(&str) -> bool, limit: usize) -> Vec<DeletedRow> {
        self.deleted.rows(wanted, limit)
    }

    /// How much the table holds.
    pub fn counts(&self) -> TableCounts {
        TableCounts {
            brokers: self.brokers.len(),
            groups: self.groups.len(),
            topics: self.topic_ids.len(),
            suspects: self.brokers.values().filter(|broker| broker.suspected_until.is_some()).count(),
        }
    }
}
