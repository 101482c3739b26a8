//! What a registration says of topics (spec 2.4 step 10, 2.5 to 2.7, with decisions 1 and 2).

use std::collections::HashSet;
use std::sync::Arc;

use waypost_rocketmq_wire::body::{RegisterBrokerBody, TopicConfig};

use crate::command::BrokerIdentity;
use crate::group::GroupId;
use crate::registration::Before;
use crate::route::{PERM_WRITE, Queues};
use crate::table::{Change, RouteTable, TopicTally};
use crate::topic::{TopicId, TopicQueues};

/// Mappings of one static topic: more broker names than any topic has. Further ones are left out.
const MAPPINGS_MAX: usize = 1_024;

/// How a registration announces topics.
struct TopicRules {
    group: GroupId,
    /// The broker is new, or says that its topics changed: overlays go.
    resets_overlays: bool,
    /// Write permission is taken from all topics (spec 2.2: a lone slave in acting-master mode).
    read_only: bool,
}

impl RouteTable {
    /// Takes the topics of a registration if its broker may create routes.
    pub(crate) fn take_topics(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        before: &Before,
        change: &mut Change,
    ) {
        if !self.announces_topics(group_id, identity.id, identity.acting_master) {
            return;
        }
        let version_changed = before.data_version != Some(body.data_version);
        let rules = TopicRules {
            group: group_id,
            resets_overlays: before.id_was_free || version_changed,
            read_only: identity.id != 0 && identity.acting_master == Some(true),
        };
        let mut tally = TopicTally::default();
        let mut changed = false;
        for topic in &body.topics {
            changed |= self.take_topic(topic, &rules, &mut tally, change);
        }
        let may_be_a_part = !version_changed && tally.has_added();
        if may_be_a_part || self.policy.delete_unlisted_topics {
            self.look_for_unlisted(identity.address, body, may_be_a_part, &rules, &mut tally, change);
        }
        changed |= self.take_mappings(body, group_id, change);
        if changed {
            self.forget_bodies(group_id);
        }
        let name = Arc::clone(&self.group(group_id).name);
        self.settle_deletions(&name, identity.address, body, group_id);
        tally.report(&name, change);
    }

    /// What a body says of topics that were deleted here. One that lists most of what the group has is taken for the
    /// whole: a broker may also send a part of its topics, or those alone that it changed.
    fn settle_deletions(
        &mut self,
        broker: &str,
        address: &str,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
    ) {
        if !self.deleted.has(broker) {
            return;
        }
        let in_parts = self.brokers.get(address).is_some_and(|broker| broker.registers_in_parts);
        let (listed, known) = (body.topics.len(), self.group(group_id).topics.len());
        if !in_parts && listed.saturating_mul(2) >= known && (listed > 1 || known <= 1) {
            self.deleted.forget_broker(broker);
            return;
        }
        let mapped = body.mappings.iter().map(|(topic, _)| &**topic);
        for topic in body.topics.iter().map(topic_name).chain(mapped) {
            self.deleted.forget(broker, topic);
        }
    }

    /// Spec 2.2: masters create topics, and so does the member with the smallest id of a group,
    /// unless it is a 4.x broker.
    fn announces_topics(&self, group: GroupId, id: i64, acting_master: Option<bool>) -> bool {
        id == 0 || (acting_master.is_some() && self.group(group).min_id() == Some(id))
    }

    /// Makes the bodies that announced topics of a group be parsed when they come again, because the
    /// table says otherwise now. Mostly there is one broker that announces, but with ids below 0
    /// there can be two.
    fn forget_bodies(&mut self, group_id: GroupId) {
        let members = &self.groups[group_id.0 as usize].members;
        let announcing: Vec<_> = members
            .iter()
            .filter(|(id, address)| {
                let broker = self.brokers.get(*address);
                broker.is_some_and(|broker| self.announces_topics(group_id, **id, broker.acting_master))
            })
            .map(|(_, address)| Arc::clone(address))
            .collect();
        for address in announcing {
            if let Some(broker) = self.brokers.get_mut(&address) {
                broker.forget_bodies();
            }
        }
    }

    /// Takes one topic (spec 2.5); whether the group did not have it, or announced it otherwise.
    fn take_topic(
        &mut self,
        config: &TopicConfig<'_>,
        rules: &TopicRules,
        tally: &mut TopicTally,
        change: &mut Change,
    ) -> bool {
        let perm = if rules.read_only { config.perm & !PERM_WRITE } else { config.perm };
        let announced = Queues {
            read: config.read_queue_nums,
            write: config.write_queue_nums,
            perm,
            sys_flag: config.topic_sys_flag,
        };
        let id = self.topic_of(topic_name(config));
        let topic = self.topic_mut(id);
        let Some(queues) = topic.queues_of_mut(rules.group) else {
            topic.queues.push(TopicQueues { group: rules.group, announced, overlay: None });
            tally.added(&topic.name);
            self.group_mut(rules.group).topics.insert(id);
            change.dirty.push(id);
            return true;
        };
        let shown_before = queues.effective();
        let replaced = queues.announced != announced;
        queues.announced = announced;
        if rules.resets_overlays {
            queues.overlay = None;
        }
        if queues.effective() != shown_before {
            tally.altered(&topic.name);
            change.dirty.push(id);
        }
        replaced
    }

    /// Takes the static-queue mappings (spec step 10 d), which are keyed by the broker name inside
    /// the mapping; whether there was a new one.
    fn take_mappings(
        &mut self,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        change: &mut Change,
    ) -> bool {
        let mut changed = false;
        for (topic_name, mapping) in &body.mappings {
            let broker = mapping.bname.clone().unwrap_or_else(|| self.group(group_id).name.to_string());
            let id = self.topic_of(topic_name);
            let mappings = self.topic_mut(id).mappings.get_or_insert_default();
            let known = mappings.get(&broker);
            if known.is_some_and(|(owner, known)| *owner == group_id && known == mapping)
                || (known.is_none() && mappings.len() >= MAPPINGS_MAX)
            {
                continue;
            }
            changed = true;
            let replaced = mappings.insert(broker, (group_id, mapping.clone()));
            self.group_mut(group_id).topics.insert(id);
            change.dirty.push(id);
            if let Some((owner, _)) = replaced.filter(|(owner, _)| *owner != group_id) {
                self.lose_mapping(id, owner);
            }
        }
        changed
    }

    /// A mapping of a group was replaced by one that another group announced.
    fn lose_mapping(&mut self, id: TopicId, owner: GroupId) {
        if !self.topic(id).knows(owner) {
            self.group_mut(owner).topics.remove(&id);
        }
        self.forget_bodies(owner);
    }

    /// Looks at the topics that the group has and the body does not list.
    ///
    /// A body under the data version that was known already which adds topics and omits others is a
    /// part: neither of the two bodies contains the other. The purge (spec 2.6) removes the omitted
    /// topics, but not because of a body with static mappings, nor of a broker that registers in parts.
    fn look_for_unlisted(
        &mut self,
        address: &str,
        body: &RegisterBrokerBody<'_>,
        may_be_a_part: bool,
        rules: &TopicRules,
        tally: &mut TopicTally,
        change: &mut Change,
    ) {
        let listed = listed_topics(body);
        let known = self.group(rules.group).topics.iter().copied();
        let mut unlisted: Vec<_> = known.filter(|id| !listed.contains(&*self.topic(*id).name)).collect();
        let Some(broker) = self.brokers.get_mut(address) else { return };
        broker.registers_in_parts |= may_be_a_part && !unlisted.is_empty();
        let purges = self.policy.delete_unlisted_topics && !broker.registers_in_parts;
        if unlisted.is_empty() || !purges || !body.mappings.is_empty() {
            return;
        }
        unlisted.sort_unstable();
        for id in unlisted {
            self.drop_queues(id, rules.group, tally, change);
        }
        self.group_mut(rules.group).touch();
    }
}

/// The topics that a body lists. The original goes by the keys alone, which real brokers make equal to
/// the names; with both no topic is removed and added again by one body.
fn listed_topics<'a>(body: &'a RegisterBrokerBody<'_>) -> HashSet<&'a str> {
    body.topics.iter().flat_map(|topic| [&*topic.key, topic_name(topic)]).collect()
}

/// The name of a topic entry; entries without one were refused.
pub(crate) fn topic_name<'a>(config: &'a TopicConfig<'_>) -> &'a str {
    config.topic_name.as_deref().unwrap_or(&config.key)
}
