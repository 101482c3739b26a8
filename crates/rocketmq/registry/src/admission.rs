//! Whether a registration may come in: everything that is checked before anything changes
//! (spec 2.4 steps 6 and 7, decisions 4 and 9).

use std::collections::HashSet;
use std::sync::Arc;

use waypost_rocketmq_wire::body::RegisterBrokerBody;

use crate::announcement::topic_name;
use crate::command::BrokerIdentity;
use crate::effects::{ConflictKind, RegistrationRefusal};
use crate::registration::member_of;
use crate::table::{Change, RouteTable};

impl RouteTable {
    /// Refuses what must not come in. Conflicts are reported also if the registration is accepted.
    pub(crate) fn admit(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        change: &mut Change,
    ) -> Result<(), RegistrationRefusal> {
        self.check_names(identity, body)?;
        let holder = self.holder_of(identity).cloned();
        self.check_room(identity, body, holder.is_some())?;
        if holder.is_none() && holds_one_topic(body) {
            return Err(RegistrationRefusal::SingleTopic);
        }
        self.admit_name(identity, change)?;
        self.admit_address(identity, holder.as_ref(), change)
    }

    /// The address that has the id of this registration now.
    fn holder_of(&self, identity: &BrokerIdentity<'_>) -> Option<&Arc<str>> {
        self.group_named(identity.broker)?.members.get(&identity.id)
    }

    fn check_names(
        &self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
    ) -> Result<(), RegistrationRefusal> {
        self.check_name("clusterName", identity.cluster)?;
        self.check_name("brokerName", identity.broker)?;
        self.check_name("brokerAddr", identity.address)?;
        for (what, name) in [("__ZONE_NAME", identity.zone), ("haServerAddr", identity.ha_address)] {
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                self.check_name(what, name)?;
            }
        }
        for topic in &body.topics {
            match topic.topic_name.as_deref() {
                None => return Err(RegistrationRefusal::TopicWithoutName { key: topic.key.to_string() }),
                Some(name) => self.check_name("topicName", name)?,
            }
        }
        for (topic, mapping) in &body.mappings {
            self.check_name("topicName", topic)?;
            if let Some(bname) = mapping.bname.as_deref().filter(|bname| !bname.is_empty()) {
                self.check_name("bname", bname)?;
            }
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

    /// An address that takes over an id needs no room.
    fn check_room(
        &self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        id_is_held: bool,
    ) -> Result<(), RegistrationRefusal> {
        let is_new = !id_is_held && !self.brokers.contains_key(identity.address);
        if is_new && self.brokers.len() >= self.limits.brokers {
            let (what, setting) = ("brokers", "brokersMax");
            return Err(RegistrationRefusal::LimitReached { what, limit: self.limits.brokers, setting });
        }
        if !self.will_announce_topics(identity) {
            return Ok(());
        }
        // Counting the new ones is slow, so only where they could be too many.
        let announced = body.topics.len() + body.mappings.len();
        let (known, limit) = (self.topic_ids.len(), self.limits.topics);
        if known + announced > limit && known + self.count_new_topics(body) > limit {
            let (what, setting) = ("topics", "topicsMax");
            return Err(RegistrationRefusal::LimitReached { what, limit, setting });
        }
        Ok(())
    }

    /// Whether the topics of this registration will be taken (spec 2.2).
    fn will_announce_topics(&self, identity: &BrokerIdentity<'_>) -> bool {
        let mut members = self.group_named(identity.broker).into_iter().flat_map(|group| &group.members);
        identity.id == 0
            || (identity.acting_master.is_some()
                && members.all(|(id, address)| *id >= identity.id || **address == *identity.address))
    }

    fn count_new_topics(&self, body: &RegisterBrokerBody<'_>) -> usize {
        let mapped = body.mappings.iter().map(|(topic, _)| &**topic);
        let names: HashSet<&str> = body.topics.iter().map(topic_name).chain(mapped).collect();
        names.iter().filter(|name| !self.topic_ids.contains_key(**name)).count()
    }

    /// A name that is live in another cluster: counted, and refused if the policy says so (decision 4).
    /// Brokers that have the name already are only counted, or turning the policy on would end both.
    fn admit_name(
        &mut self,
        identity: &BrokerIdentity<'_>,
        change: &mut Change,
    ) -> Result<(), RegistrationRefusal> {
        let Some(live_cluster) = self.find_name_in_other_cluster(identity, change) else { return Ok(()) };
        let is_known = self.brokers.get(identity.address).is_some_and(|broker| {
            &*broker.cluster == identity.cluster && &*self.group(broker.group).name == identity.broker
        });
        if is_known || !self.policy.refuse_name_in_other_cluster {
            return Ok(());
        }
        Err(RegistrationRefusal::NameInOtherCluster {
            broker: identity.broker.to_owned(),
            cluster: identity.cluster.to_owned(),
            live_cluster: live_cluster.to_string(),
        })
    }

    /// Another cluster in which another address has the broker's name; reports the conflict.
    pub(crate) fn find_name_in_other_cluster(
        &mut self,
        identity: &BrokerIdentity<'_>,
        change: &mut Change,
    ) -> Option<Arc<str>> {
        let members = self.group_named(identity.broker)?.members.values();
        let live_cluster = members
            .filter(|address| ***address != *identity.address)
            .filter_map(|address| self.brokers.get(address))
            .find(|broker| &*broker.cluster != identity.cluster)
            .map(|broker| Arc::clone(&broker.cluster))?;
        let member = member_of(identity);
        self.conflict(ConflictKind::NameInOtherCluster, member, Arc::clone(&live_cluster), change);
        Some(live_cluster)
    }

    /// Id 0 is held by another address that is live (field report A5).
    fn admit_address(
        &mut self,
        identity: &BrokerIdentity<'_>,
        holder: Option<&Arc<str>>,
        change: &mut Change,
    ) -> Result<(), RegistrationRefusal> {
        if identity.id != 0 || !self.policy.refuse_master_address_change {
            return Ok(());
        }
        let other = holder.filter(|holder| ***holder != *identity.address);
        let is_live = |address: &Arc<str>| {
            self.brokers.get(address).is_some_and(|broker| broker.suspected_until.is_none())
        };
        let Some(live_address) = other.filter(|holder| is_live(holder)) else { return Ok(()) };
        let member = member_of(identity);
        self.conflict(ConflictKind::AddressChanged, member, Arc::clone(live_address), change);
        Err(RegistrationRefusal::MasterAddressChange {
            broker: identity.broker.to_owned(),
            address: identity.address.to_owned(),
            live_address: live_address.to_string(),
        })
    }

    /// Spec step 6: the id is held by another address of the cluster with a larger state version.
    pub(crate) fn is_superseded(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        change: &mut Change,
    ) -> bool {
        let holder = self.holder_of(identity).filter(|holder| ***holder != *identity.address).cloned();
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
}

/// Of several entries with one key only the last counts, so they are one topic.
fn holds_one_topic(body: &RegisterBrokerBody<'_>) -> bool {
    body.topics.split_first().is_some_and(|(first, rest)| rest.iter().all(|topic| topic.key == first.key))
}
