//! What can be asked of the table besides a route. Lists are sorted by name (decision 7).

use std::collections::{BTreeMap, BTreeSet};

use waypost_rocketmq_wire::body::{BrokerData, BrokerMemberGroup, ClusterInfo, TopicList};

use crate::table::RouteTable;
use crate::topic::Topic;

/// `topicSysFlag`: the topic belongs to a unit (spec 2.1).
const FLAG_UNIT: i32 = 1;
/// `topicSysFlag`: the topic has unit subscriptions.
const FLAG_UNIT_SUB: i32 = 2;

impl RouteTable {
    /// 106: every broker and every cluster.
    pub fn cluster_info(&self) -> ClusterInfo {
        let mut info = ClusterInfo::default();
        for (name, id) in &self.group_ids {
            let group = self.group(*id);
            info.broker_addr_table.insert(
                name.to_string(),
                BrokerData {
                    cluster: group.cluster.to_string(),
                    broker_name: name.to_string(),
                    broker_addrs: addresses(group.members.iter()),
                    zone_name: group.zone.as_deref().map(str::to_owned),
                    enable_acting_master: group.acting_master,
                },
            );
        }
        for broker in self.brokers.values() {
            let names = info.cluster_addr_table.entry(broker.cluster.to_string()).or_default();
            names.insert(self.group(broker.group).name.to_string());
        }
        info
    }

    /// 901: the members of a group. The cluster is the caller's, unchecked (spec 1.3).
    pub fn member_group(&self, cluster: &str, broker: &str) -> BrokerMemberGroup {
        let group = self.group_named(broker);
        BrokerMemberGroup {
            cluster: cluster.to_owned(),
            broker_name: broker.to_owned(),
            broker_addrs: group.map_or_else(BTreeMap::new, |group| addresses(group.members.iter())),
        }
    }

    /// 206: every topic.
    pub fn all_topics(&self) -> TopicList {
        self.topics_where(|_| true)
    }

    /// 224: topics with queues on a broker of the cluster; `None` if the cluster is unknown.
    pub fn topics_of_cluster(&self, cluster: &str) -> Option<TopicList> {
        let groups: BTreeSet<_> = self
            .brokers
            .values()
            .filter(|broker| &*broker.cluster == cluster)
            .map(|broker| broker.group)
            .collect();
        if groups.is_empty() {
            return None;
        }
        Some(self.topics_where(|topic| topic.queues.iter().any(|queues| groups.contains(&queues.group))))
    }

    /// 304: cluster and broker names, and the address of a broker, a live master if there is one (D24).
    pub fn system_topics(&self) -> TopicList {
        let mut names: BTreeSet<String> = self.group_ids.keys().map(|name| name.to_string()).collect();
        names.extend(self.brokers.values().map(|broker| broker.cluster.to_string()));
        // A live master; without one the smallest id of the first group by name, as the original; suspects last.
        let best = self.brokers.iter().min_by_key(|(address, broker)| {
            let suspected = broker.suspected_until.is_some();
            let live_master = broker.id == 0 && !suspected;
            let place = (!live_master).then(|| (&self.group(broker.group).name, broker.id));
            (suspected, !live_master, place, *address)
        });
        TopicList {
            broker_addr: best.map(|(address, _)| address.to_string()),
            topic_list: names.into_iter().collect(),
        }
    }

    /// 311: topics of units.
    pub fn unit_topics(&self) -> TopicList {
        self.topics_flagged(|flag| flag & FLAG_UNIT != 0)
    }

    /// 312: topics with unit subscriptions.
    pub fn unit_sub_topics(&self) -> TopicList {
        self.topics_flagged(|flag| flag & FLAG_UNIT_SUB != 0)
    }

    /// 313: topics with unit subscriptions that belong to no unit.
    pub fn unit_sub_ununit_topics(&self) -> TopicList {
        self.topics_flagged(|flag| flag & FLAG_UNIT_SUB != 0 && flag & FLAG_UNIT == 0)
    }

    /// The flag of a topic is that of its first broker by name.
    fn topics_flagged(&self, wanted: impl Fn(i32) -> bool) -> TopicList {
        self.topics_where(|topic| {
            let first =
                topic.queues.iter().min_by(|a, b| self.group(a.group).name.cmp(&self.group(b.group).name));
            first.is_some_and(|queues| wanted(queues.announced.sys_flag))
        })
    }

    fn topics_where(&self, wanted: impl Fn(&Topic) -> bool) -> TopicList {
        let mut topic_list: Vec<String> = self
            .topics
            .iter()
            .filter(|(_, topic)| !topic.queues.is_empty() && wanted(topic))
            .map(|(_, topic)| topic.name.to_string())
            .collect();
        topic_list.sort_unstable();
        TopicList { broker_addr: None, topic_list }
    }
}

fn addresses<'a>(members: impl Iterator<Item = (&'a i64, &'a std::sync::Arc<str>)>) -> BTreeMap<i64, String> {
    members.map(|(id, address)| (*id, address.to_string())).collect()
}
