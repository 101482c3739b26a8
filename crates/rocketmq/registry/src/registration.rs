//! Registration of a broker (spec 2.4, with decisions 1 to 4 and 9).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::{DataVersion, RegisterBrokerBody, TopicConfig};

use crate::broker::{Announced, Broker};
use crate::command::{Announcement, BodyDigest, BrokerIdentity, ConnectionId, Registration};
use crate::effects::{ConflictKind, Event, Member, Outcome, RegistrationRefusal, RemovalCause};
use crate::group::{Group, GroupId};
use crate::route::{PERM_WRITE, Queues};
use crate::table::{Change, RouteTable, TopicTally};
use crate::topic::TopicQueues;

/// What a registration found in the table before it changed anything.
struct Before {
    /// The smallest id of the group; 0 for a group without members, so that the first member
    /// never counts as a change (step 4).
    min_id: i64,
    /// Nobody held the id.
    id_was_free: bool,
    /// The data version under which this broker sent its topics last.
    data_version: Option<DataVersion>,
}

/// How a registration announces topics.
struct TopicRules {
    group: GroupId,
    /// The broker is new, or says that its topics changed: overlays go.
    resets_overlays: bool,
    /// Write permission is taken from all topics (spec 2.2: a lone slave in acting-master mode).
    read_only: bool,
}

impl RouteTable {
    /// Steps: 1. refuse what must be refused, changing nothing. 2. Remove what the address and the
    /// id leave behind. 3. Put the broker into its group. 4. Take its topics. 5. Remember the body.
    /// 6. Answer, and tell the group of a new smallest id.
    pub(crate) fn register(
        &mut self,
        registration: &Registration<'_>,
        now: Duration,
        change: &mut Change,
    ) -> Outcome {
        let identity = &registration.identity;
        let (body, digest) = match registration.body {
            Announcement::Full(body, digest) => (body, digest),
            Announcement::Digest(digest) => {
                return self.renew(identity, digest, registration.connection, now, change);
            }
        };
        if let Err(refusal) = self.admit(identity, body, change) {
            return Outcome::Refused(refusal);
        }
        if self.is_superseded(identity, body, change) {
            return Outcome::Superseded;
        }

        let before = self.clear_the_way(identity, change);
        let group_id = self.join_group(identity, body, registration.connection, &before, now, change);
        let replaces_content = self.take_topics(identity, body, group_id, &before, change);
        self.take_filter_servers(identity.address, group_id, body.filter_servers.as_deref(), change);
        if let Some(digest) = digest {
            let touched = self.group(group_id).touched;
            if let Some(broker) = self.brokers.get_mut(identity.address) {
                broker.remember_body(digest, touched, replaces_content);
            }
        }
        if self.policy.notify_min_broker_change && identity.id < before.min_id {
            let ha_address = identity.ha_address.map(Arc::from);
            change.effects.notices.extend(self.min_broker_notice(group_id, None, ha_address));
        }
        self.registered(identity)
    }

    /// The digest shortcut: renews the lease of a broker that sends a body again (decision 3).
    fn renew(
        &mut self,
        identity: &BrokerIdentity<'_>,
        digest: BodyDigest,
        connection: ConnectionId,
        now: Duration,
        change: &mut Change,
    ) -> Outcome {
        let Some((address, broker)) = self.brokers.get_key_value(identity.address) else {
            return Outcome::BodyNeeded;
        };
        let group = self.group(broker.group);
        let same_header = &*broker.cluster == identity.cluster
            && &*group.name == identity.broker
            && broker.id == identity.id
            && broker.ha_address.as_deref() == identity.ha_address
            && broker.timeout == identity.timeout
            && broker.acting_master == identity.acting_master
            && group.zone.as_deref() == identity.zone.filter(|zone| !zone.is_empty())
            && group.acting_master == identity.acting_master.unwrap_or(false);
        if !same_header || !broker.knows_body(digest, group.touched) {
            return Outcome::BodyNeeded;
        }
        let address = Arc::clone(address);
        self.bind(&address, connection);
        self.hear_of(&address, now, change);
        self.registered(identity)
    }

    fn registered(&self, identity: &BrokerIdentity<'_>) -> Outcome {
        let master = (identity.id != 0)
            .then(|| self.group_ids.get(identity.broker))
            .flatten()
            .and_then(|id| self.group(*id).members.get(&0))
            .and_then(|address| Some((address, self.brokers.get(address)?)))
            .filter(|(_, broker)| &*broker.cluster == identity.cluster);
        Outcome::Registered {
            master_address: master.map(|(address, _)| Arc::clone(address)),
            ha_address: master.and_then(|(_, broker)| broker.ha_address.clone()),
        }
    }

    /// Step 1: whether the registration may come in.
    fn admit(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        change: &mut Change,
    ) -> Result<(), RegistrationRefusal> {
        let mut names = vec![
            ("clusterName", identity.cluster),
            ("brokerName", identity.broker),
            ("brokerAddr", identity.address),
        ];
        names.extend(identity.zone.filter(|zone| !zone.is_empty()).map(|zone| ("__ZONE_NAME", zone)));
        names.extend(identity.ha_address.filter(|ha| !ha.is_empty()).map(|ha| ("haServerAddr", ha)));
        for (what, name) in names {
            self.check_name(what, name)?;
        }
        for topic in &body.topics {
            match topic.topic_name.as_deref() {
                None => return Err(RegistrationRefusal::TopicWithoutName { key: topic.key.to_string() }),
                Some(name) => self.check_name("topicName", name)?,
            }
        }
        for (topic, _) in &body.mappings {
            self.check_name("topicName", topic)?;
        }
        if !self.brokers.contains_key(identity.address) && self.brokers.len() >= self.limits.brokers {
            let (what, setting) = ("brokers", "brokersMax");
            return Err(RegistrationRefusal::LimitReached { what, limit: self.limits.brokers, setting });
        }
        let announced = body.topics.len() + body.mappings.len();
        let new_topics = self.topic_ids.len() + announced > self.limits.topics
            && self.topic_ids.len() + self.count_new_topics(body) > self.limits.topics;
        if new_topics {
            let (what, setting) = ("topics", "topicsMax");
            return Err(RegistrationRefusal::LimitReached { what, limit: self.limits.topics, setting });
        }

        let group = self.group_ids.get(identity.broker).map(|id| self.group(*id));
        let holder = group.and_then(|group| group.members.get(&identity.id)).cloned();
        if holder.is_none() && body.topics.len() == 1 {
            return Err(RegistrationRefusal::SingleTopic);
        }
        self.admit_name(identity, change)?;
        if let Some(live_address) = holder.filter(|address| **address != *identity.address)
            && identity.id == 0
            && self.policy.refuse_master_address_change
        {
            self.conflict(
                ConflictKind::AddressChanged,
                member_of(identity),
                Arc::clone(&live_address),
                change,
            );
            return Err(RegistrationRefusal::MasterAddressChange {
                broker: identity.broker.to_owned(),
                address: identity.address.to_owned(),
                live_address: live_address.to_string(),
            });
        }
        Ok(())
    }

    pub(crate) fn check_name(&self, what: &'static str, name: &str) -> Result<(), RegistrationRefusal> {
        let (length, limit) = (name.len(), self.limits.name_length);
        if (1..=limit).contains(&length) {
            Ok(())
        } else {
            Err(RegistrationRefusal::NameLength { what, length, limit })
        }
    }

    fn count_new_topics(&self, body: &RegisterBrokerBody<'_>) -> usize {
        let mapped = body.mappings.iter().map(|(topic, _)| &**topic);
        let names: HashSet<&str> = body.topics.iter().map(topic_name).chain(mapped).collect();
        names.iter().filter(|name| !self.topic_ids.contains_key(**name)).count()
    }

    /// A name that is live in another cluster: counted, and refused if the policy says so (decision 4).
    fn admit_name(
        &mut self,
        identity: &BrokerIdentity<'_>,
        change: &mut Change,
    ) -> Result<(), RegistrationRefusal> {
        let Some(id) = self.group_ids.get(identity.broker) else { return Ok(()) };
        let elsewhere = self.group(*id).members.values().filter(|address| ***address != *identity.address);
        let live_cluster = elsewhere
            .filter_map(|address| self.brokers.get(address))
            .find(|broker| &*broker.cluster != identity.cluster)
            .map(|broker| Arc::clone(&broker.cluster));
        let Some(live_cluster) = live_cluster else { return Ok(()) };
        self.conflict(
            ConflictKind::NameInOtherCluster,
            member_of(identity),
            Arc::clone(&live_cluster),
            change,
        );
        if self.policy.refuse_name_in_other_cluster {
            return Err(RegistrationRefusal::NameInOtherCluster {
                broker: identity.broker.to_owned(),
                cluster: identity.cluster.to_owned(),
                live_cluster: live_cluster.to_string(),
            });
        }
        Ok(())
    }

    /// Step 1, spec step 6: the id is held by another address of the cluster with a larger state version.
    fn is_superseded(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        change: &mut Change,
    ) -> bool {
        let holder = self
            .group_ids
            .get(identity.broker)
            .and_then(|id| self.group(*id).members.get(&identity.id))
            .filter(|address| ***address != *identity.address)
            .cloned();
        let Some(holder) = holder else { return false };
        let superseded = self.brokers.get(&holder).is_some_and(|broker| {
            &*broker.cluster == identity.cluster
                && broker.data_version.state_version > body.data_version.state_version
        });
        if superseded {
            self.conflict(ConflictKind::OlderStateVersion, member_of(identity), holder, change);
        }
        superseded
    }

    /// Step 2: removes what the address was before, and who held the id (decision 4).
    fn clear_the_way(&mut self, identity: &BrokerIdentity<'_>, change: &mut Change) -> Before {
        let address = identity.address;
        let previous = self.brokers.get_key_value(address).map(|(address, broker)| {
            let member = self.member(address, broker);
            (member, broker.data_version)
        });
        let group_id = self.group_ids.get(identity.broker).copied();
        let min_id = group_id.and_then(|id| self.group(id).min_id()).unwrap_or(0);
        let mut data_version = None;
        if let Some((member, version)) = previous {
            if &*member.broker != identity.broker {
                let other = Arc::clone(&member.broker);
                self.conflict(ConflictKind::AddressMoved, member_of(identity), other, change);
                self.remove_broker(address, RemovalCause::Moved, None, change);
            } else if &*member.cluster != identity.cluster {
                let other = Arc::clone(&member.cluster);
                self.conflict(ConflictKind::AddressMoved, member_of(identity), other, change);
            } else {
                data_version = Some(version);
            }
        }
        let group = self.group_ids.get(identity.broker).copied().map(|id| self.group_mut(id));
        let Some(group) = group else {
            return Before { min_id: 0, id_was_free: true, data_version };
        };
        // One address, one id (spec step 5); the other ids of this address go.
        let had_other_id = group.members.iter().any(|(id, at)| **at == *address && *id != identity.id);
        if had_other_id {
            group.members.retain(|id, at| **at != *address || *id == identity.id);
            group.view = None;
            group.touch();
        }
        let holder = group.members.get(&identity.id).cloned();
        if let Some(holder) = holder.as_ref().filter(|holder| ***holder != *address) {
            self.replace_holder(identity, holder, change);
        }
        Before { min_id, id_was_free: holder.is_none(), data_version }
    }

    /// Another address takes the id: the entry of the one that held it goes, its topics stay with the group.
    fn replace_holder(&mut self, identity: &BrokerIdentity<'_>, holder: &Arc<str>, change: &mut Change) {
        let Some(broker) = self.brokers.remove(holder) else { return };
        let member = self.member(holder, &broker);
        self.unbind(holder, broker.connection);
        if broker.suspected_until.is_none() {
            self.conflict(ConflictKind::AddressChanged, member_of(identity), Arc::clone(holder), change);
        }
        change.effects.events.push(Event::BrokerRemoved { member, cause: RemovalCause::Replaced });
    }

    /// Step 3: the broker's entry, and its place in the group (spec steps 1 to 3, 8, 11, 12).
    fn join_group(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        connection: ConnectionId,
        before: &Before,
        now: Duration,
        change: &mut Change,
    ) -> GroupId {
        let cluster = self.cluster_name(identity.cluster);
        let group_id = self.group_of(identity.broker, &cluster);
        let announced = Announced {
            cluster,
            group: group_id,
            id: identity.id,
            ha_address: identity.ha_address,
            timeout: identity.timeout,
            acting_master: identity.acting_master,
            data_version: body.data_version,
            connection,
        };
        let address = self
            .brokers
            .get_key_value(identity.address)
            .map_or_else(|| Arc::from(identity.address), |(address, _)| Arc::clone(address));
        self.generation += 1;
        let generation = self.generation;
        if self.brokers.contains_key(&address) {
            self.bind(&address, connection);
            self.hear_of(&address, now, change);
            let broker = self.brokers.get_mut(&address).expect("invariant: the entry was just found");
            broker.announce(&announced, now);
            broker.generation = generation;
        } else {
            let mut broker = Broker::new(&announced, now);
            broker.generation = generation;
            let (member, ha_address) = (self.member(&address, &broker), broker.ha_address.clone());
            change.effects.events.push(Event::BrokerRegistered { member, ha_address });
            self.brokers.insert(Arc::clone(&address), broker);
            self.bound.entry(connection).or_default().push(Arc::clone(&address));
        }

        let old_cluster = Arc::clone(&self.group(group_id).cluster);
        let group = self.group_mut(group_id);
        let replaced = group.members.insert(identity.id, Arc::clone(&address));
        let acting_master = identity.acting_master.unwrap_or(false);
        let zone = identity.zone.filter(|zone| !zone.is_empty());
        let members_changed =
            before.id_was_free || replaced.as_ref() != Some(&address) || group.view.is_none();
        let flags_changed = group.acting_master != acting_master || group.zone.as_deref() != zone;
        if flags_changed {
            group.acting_master = acting_master;
            group.zone = zone.map(Arc::from);
        }
        if members_changed || flags_changed {
            group.touch();
        }
        self.settle_cluster(group_id);
        if members_changed || flags_changed || self.group(group_id).cluster != old_cluster {
            self.show_anew(group_id, change);
        }
        group_id
    }

    fn group_of(&mut self, broker: &str, cluster: &Arc<str>) -> GroupId {
        if let Some(id) = self.group_ids.get(broker) {
            return *id;
        }
        let name: Arc<str> = broker.into();
        let index = self.groups.insert(Group::new(Arc::clone(&name), Arc::clone(cluster)));
        let id = GroupId(u32::try_from(index).expect("invariant: the number of brokers is limited"));
        self.group_ids.insert(name, id);
        id
    }

    /// Shares the name of a cluster that is known already.
    fn cluster_name(&self, cluster: &str) -> Arc<str> {
        let known = self.groups.iter().map(|(_, group)| &group.cluster).find(|known| ***known == *cluster);
        known.map_or_else(|| Arc::from(cluster), Arc::clone)
    }

    /// Step 4 (spec steps 9 and 10): whether the content of a known topic was replaced.
    fn take_topics(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        before: &Before,
        change: &mut Change,
    ) -> bool {
        // Spec 2.2: masters create topics, and so does the smallest slave of a group without
        // master, unless it is a 4.x broker.
        let is_min = self.group(group_id).min_id() == Some(identity.id);
        let is_prime_slave = identity.id != 0 && identity.acting_master.is_some() && is_min;
        if identity.id != 0 && !is_prime_slave {
            return false;
        }
        let version_changed = before.data_version != Some(body.data_version);
        let rules = TopicRules {
            group: group_id,
            resets_overlays: before.id_was_free || version_changed,
            read_only: is_prime_slave && identity.acting_master == Some(true),
        };
        let mut tally = TopicTally::default();
        self.notice_parts(identity.address, body, group_id, version_changed);
        if self.policy.delete_unlisted_topics {
            self.delete_unlisted(identity.address, body, group_id, &mut tally, change);
        }
        let mut replaces_content = false;
        for topic in &body.topics {
            replaces_content |= self.take_topic(topic, &rules, &mut tally, change);
        }
        replaces_content |= self.take_mappings(body, group_id, change);
        let name = Arc::clone(&self.group(group_id).name);
        tally.report(&name, change);
        replaces_content
    }

    /// Takes one topic (spec 2.5); whether the announced content of a known one was replaced.
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
            return false;
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

    /// Static-queue mappings (spec step 10 d). Keyed by the broker name inside the mapping.
    fn take_mappings(
        &mut self,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        change: &mut Change,
    ) -> bool {
        let mut replaced = false;
        for (topic_name, mapping) in &body.mappings {
            let broker = mapping.bname.clone().unwrap_or_else(|| self.group(group_id).name.to_string());
            let id = self.topic_of(topic_name);
            let mappings = self.topic_mut(id).mappings.get_or_insert_default();
            let known = mappings.get(&broker);
            if known.is_some_and(|(owner, known)| *owner == group_id && known == mapping) {
                continue;
            }
            replaced |= known.is_some();
            mappings.insert(broker, (group_id, mapping.clone()));
            self.group_mut(group_id).topics.insert(id);
            change.dirty.push(id);
        }
        replaced
    }

    /// Notices a broker that registers in parts: two bodies under one data version of which
    /// neither contains the other.
    fn notice_parts(
        &mut self,
        address: &str,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        version_changed: bool,
    ) {
        if !self.policy.delete_unlisted_topics || version_changed || body.topics.is_empty() {
            return;
        }
        let listed: HashSet<&str> = body.topics.iter().map(|topic| &*topic.key).collect();
        let known = |name: &str| {
            self.topic_ids.get(name).is_some_and(|id| self.topic(*id).queues_of(group_id).is_some())
        };
        let adds = listed.iter().any(|name| !known(name));
        let omits = self.group(group_id).topics.iter().any(|id| !listed.contains(&*self.topic(*id).name));
        if adds
            && omits
            && let Some(broker) = self.brokers.get_mut(address)
        {
            broker.registers_in_parts = true;
        }
    }

    /// Removes the group's queues from topics that the body does not list (spec 2.6). A body with
    /// static mappings removes nothing, nor does one of a broker that registers in parts.
    fn delete_unlisted(
        &mut self,
        address: &str,
        body: &RegisterBrokerBody<'_>,
        group_id: GroupId,
        tally: &mut TopicTally,
        change: &mut Change,
    ) {
        let in_parts = self.brokers.get(address).is_some_and(|broker| broker.registers_in_parts);
        if in_parts || !body.mappings.is_empty() {
            return;
        }
        let listed: HashSet<&str> = body.topics.iter().map(|topic| &*topic.key).collect();
        let mut unlisted: Vec<_> = self
            .group(group_id)
            .topics
            .iter()
            .copied()
            .filter(|id| !listed.contains(&*self.topic(*id).name))
            .collect();
        unlisted.sort_unstable();
        for id in &unlisted {
            self.drop_queues(*id, group_id, tally, change);
        }
        if !unlisted.is_empty() {
            self.group_mut(group_id).touch();
        }
    }

    /// Spec step 13: an empty list removes, none leaves alone.
    fn take_filter_servers(
        &mut self,
        address: &str,
        group_id: GroupId,
        servers: Option<&[String]>,
        change: &mut Change,
    ) {
        let Some(broker) = self.brokers.get_mut(address) else { return };
        if let Some(servers) = servers.filter(|servers| *servers != broker.filter_servers) {
            broker.filter_servers = servers.to_vec();
            self.show_anew(group_id, change);
        }
    }
}

/// The name of a topic entry; `admit` has refused entries without one.
fn topic_name<'a>(config: &'a TopicConfig<'_>) -> &'a str {
    config.topic_name.as_deref().unwrap_or(&config.key)
}

fn member_of(identity: &BrokerIdentity<'_>) -> Member {
    Member {
        cluster: identity.cluster.into(),
        broker: identity.broker.into(),
        id: identity.id,
        address: identity.address.into(),
    }
}
