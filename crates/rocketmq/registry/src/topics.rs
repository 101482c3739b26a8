//! What operators do to topics (spec 2.13 and 2.14).

use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::QueueData;

use crate::effects::Outcome;
use crate::group::GroupId;
use crate::route::{PERM_READ_WRITE, PERM_WRITE, Queues};
use crate::table::{Change, RouteTable, TopicTally};
use crate::topic::{TopicId, TopicQueues};

impl RouteTable {
    /// 217: all queues or none (D15); ignored when a broker name is not registered.
    pub(crate) fn register_topic(
        &mut self,
        topic_name: &str,
        queues: &[QueueData],
        change: &mut Change,
    ) -> Outcome {
        let full = !self.topic_ids.contains_key(topic_name) && self.topic_ids.len() >= self.limits.topics;
        let groups: Option<Vec<GroupId>> =
            queues.iter().map(|queues| self.group_ids.get(&*queues.broker_name).copied()).collect();
        let Some(groups) = groups.filter(|groups| !groups.is_empty()) else { return Outcome::Ignored };
        if full || self.check_name("topic", topic_name).is_err() {
            return Outcome::Ignored;
        }
        let id = self.topic_of(topic_name);
        for (group_id, data) in groups.into_iter().zip(queues) {
            let announced = Queues {
                read: data.read_queue_nums,
                write: data.write_queue_nums,
                perm: data.perm,
                sys_flag: data.topic_sys_flag,
            };
            let mut tally = TopicTally::default();
            let topic = self.topic_mut(id);
            match topic.queues_of_mut(group_id) {
                Some(queues) => {
                    let shown_before = queues.effective();
                    *queues = TopicQueues { group: group_id, announced, overlay: None };
                    if shown_before != announced {
                        tally.altered(&topic.name);
                    }
                }
                None => {
                    topic.queues.push(TopicQueues { group: group_id, announced, overlay: None });
                    tally.added(&topic.name);
                }
            }
            let group = self.group_mut(group_id);
            group.topics.insert(id);
            group.touch();
            let name = Arc::clone(&group.name);
            self.deleted.forget(&name, topic_name);
            tally.report(&name, change);
        }
        change.dirty.push(id);
        Outcome::Done
    }

    /// 216, for all clusters or one. The static mappings go with the queues (D4).
    pub(crate) fn delete_topic(
        &mut self,
        topic: &str,
        cluster: Option<&str>,
        now: Duration,
        change: &mut Change,
    ) -> Outcome {
        let Some(id) = self.topic_ids.get(topic).copied() else { return Outcome::Ignored };
        let topic = self.topic(id);
        let mapping = topic.mappings.iter().flat_map(|mappings| mappings.values()).map(|(owner, _)| *owner);
        let mut groups: Vec<GroupId> =
            topic.queues.iter().map(|queues| queues.group).chain(mapping).collect();
        groups.retain(|group| cluster.is_none_or(|cluster| self.is_in_cluster(*group, cluster)));
        groups.sort_unstable();
        groups.dedup();
        let topic = Arc::clone(&topic.name);
        for group_id in groups {
            let mut tally = TopicTally::default();
            self.drop_queues(id, group_id, &mut tally, change);
            let group = self.group_mut(group_id);
            group.touch();
            let name = Arc::clone(&group.name);
            self.deleted.remember(&name, &topic, now);
            tally.report(&name, change);
        }
        Outcome::Done
    }

    /// 205: takes WRITE from every topic of the broker.
    pub(crate) fn wipe_write_permission(&mut self, broker: &str, change: &mut Change) -> Outcome {
        if self.policy.wipe_survives_registration
            && let Some((name, _)) = self.group_ids.get_key_value(broker)
        {
            self.wiped.insert(Arc::clone(name));
        }
        self.overlay_permissions(broker, change, |queues| {
            queues.overlay = Some(queues.effective().perm & !PERM_WRITE);
        })
    }

    /// 327: sets every topic of the broker to 6 exactly, or to what it announced (D14, field report A25).
    pub(crate) fn add_write_permission(&mut self, broker: &str, change: &mut Change) -> Outcome {
        self.wiped.remove(broker);
        let restore = self.policy.add_restores_announced;
        self.overlay_permissions(broker, change, |queues| {
            queues.overlay = (!restore).then_some(PERM_READ_WRITE);
        })
    }

    /// Changes the overlay of every topic that has queues of a broker; counts the visited topics,
    /// changed or not.
    fn overlay_permissions(
        &mut self,
        broker: &str,
        change: &mut Change,
        mut lay: impl FnMut(&mut TopicQueues),
    ) -> Outcome {
        let Some(group_id) = self.group_ids.get(broker).copied() else { return Outcome::Topics(0) };
        let mut topics: Vec<TopicId> = self.group(group_id).topics.iter().copied().collect();
        topics.sort_unstable();
        let mut tally = TopicTally::default();
        let mut visited = 0;
        for id in topics {
            let topic = self.topic_mut(id);
            let Some(queues) = topic.queues_of_mut(group_id) else { continue };
            visited += 1;
            let before = queues.effective();
            lay(queues);
            if queues.effective() != before {
                tally.altered(&topic.name);
            }
            change.dirty.push(id);
        }
        let name = Arc::clone(&self.group(group_id).name);
        tally.report(&name, change);
        Outcome::Topics(visited)
    }

    /// Whether a member of the group registered under the cluster's name.
    pub(crate) fn is_in_cluster(&self, group: GroupId, cluster: &str) -> bool {
        let members = self.group(group).members.values();
        members.filter_map(|address| self.brokers.get(address)).any(|broker| &*broker.cluster == cluster)
    }
}
