//! Registration of a broker (spec 2.4, with decisions 1 to 4 and 9).

use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::{DataVersion, RegisterBrokerBody};

use crate::broker::{Announced, Broker};
use crate::command::{Announcement, BodyDigest, BrokerIdentity, ConnectionId, Registration};
use crate::effects::{ConflictKind, Event, Member, Outcome, RemovalCause};
use crate::group::{Group, GroupId};
use crate::table::{Change, RouteTable};

/// What a registration found in the table before it changed anything.
pub(crate) struct Before {
    /// The smallest id of the group; 0 for a group without members, so that the first member does
    /// not count as a change (spec step 4).
    min_id: i64,
    /// Nobody holds the id, or what held it is removed.
    pub(crate) id_was_free: bool,
    /// The data version under which this broker sent its topics last.
    pub(crate) data_version: Option<DataVersion>,
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
        let group_id = self.join_group(identity, body, registration.connection, now, change);
        self.take_topics(identity, body, group_id, &before, change);
        self.take_filter_servers(identity.address, group_id, body.filter_servers.as_deref(), change);
        if let Some(digest) = digest {
            let touched = self.group(group_id).touched;
            if let Some(broker) = self.brokers.get_mut(identity.address) {
                broker.remember_body(digest, touched);
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
            && group.zone.as_deref() == identity.zone
            && group.acting_master == identity.acting_master.unwrap_or(false);
        if !same_header || !broker.knows_body(digest, group.touched) {
            return Outcome::BodyNeeded;
        }
        let address = Arc::clone(address);
        self.find_name_in_other_cluster(identity, change);
        self.generation += 1;
        let generation = self.generation;
        if let Some(broker) = self.brokers.get_mut(&address) {
            broker.generation = generation;
        }
        self.hear_of(&address, connection, now, change);
        self.registered(identity)
    }

    fn registered(&self, identity: &BrokerIdentity<'_>) -> Outcome {
        let master = (identity.id != 0)
            .then(|| self.group_named(identity.broker))
            .flatten()
            .and_then(|group| group.members.get(&0))
            .and_then(|address| Some((address, self.brokers.get(address)?)))
            .filter(|(_, broker)| &*broker.cluster == identity.cluster);
        Outcome::Registered {
            master_address: master.map(|(address, _)| Arc::clone(address)),
            ha_address: master.and_then(|(_, broker)| broker.ha_address.clone()),
        }
    }

    /// Step 2: removes what the address was before, and who held the id (decision 4).
    fn clear_the_way(&mut self, identity: &BrokerIdentity<'_>, change: &mut Change) -> Before {
        let address = identity.address;
        let min_id = self.group_named(identity.broker).and_then(Group::min_id).unwrap_or(0);
        let previous = self.brokers.get_key_value(address).map(|(address, broker)| {
            let member = self.member(address, broker);
            (member, broker.data_version)
        });
        let mut data_version = None;
        if let Some((member, version)) = previous {
            if &*member.broker != identity.broker {
                self.conflict(ConflictKind::AddressMoved, member_of(identity), member.broker, change);
                self.remove_broker(address, RemovalCause::Moved, None, change);
            } else if &*member.cluster != identity.cluster {
                self.conflict(ConflictKind::AddressMoved, member_of(identity), member.cluster, change);
            } else {
                data_version = Some(version);
            }
        }
        let holder = self.group_named(identity.broker).and_then(|group| group.members.get(&identity.id));
        if let Some(holder) = holder.filter(|holder| ***holder != *address).cloned() {
            self.replace_holder(identity, &holder, change);
        }
        let Some(id) = self.group_ids.get(identity.broker).copied() else {
            return Before { min_id, id_was_free: true, data_version };
        };
        // One address, one id (spec step 5): the other ids of this address go.
        let group = self.group_mut(id);
        group.members.retain(|id, at| **at != *address || *id == identity.id);
        Before { min_id, id_was_free: !group.members.contains_key(&identity.id), data_version }
    }

    /// Another address takes the id. The entry of the one that held it goes; its topics stay with
    /// the group, unless it was of another cluster (field report A12).
    fn replace_holder(&mut self, identity: &BrokerIdentity<'_>, holder: &Arc<str>, change: &mut Change) {
        let Some(broker) = self.brokers.get(holder) else { return };
        let (same_cluster, connection) = (&*broker.cluster == identity.cluster, broker.connection);
        let member = self.member(holder, broker);
        if broker.suspected_until.is_none() {
            self.conflict(ConflictKind::AddressChanged, member_of(identity), Arc::clone(holder), change);
        }
        if same_cluster {
            self.brokers.remove(holder);
            self.unbind(holder, connection);
            change.effects.events.push(Event::BrokerRemoved { member, cause: RemovalCause::Replaced });
        } else {
            self.remove_broker(holder, RemovalCause::Replaced, None, change);
        }
    }

    /// Step 3: the broker's entry, and its place in the group (spec steps 1 to 3, 8, 11, 12).
    fn join_group(
        &mut self,
        identity: &BrokerIdentity<'_>,
        body: &RegisterBrokerBody<'_>,
        connection: ConnectionId,
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
        let address = self.enter(identity.address, &announced, now, change);

        let old_cluster = Arc::clone(&self.group(group_id).cluster);
        let acting_master = identity.acting_master.unwrap_or(false);
        let zone = identity.zone;
        let group = self.group_mut(group_id);
        let holder = group.members.insert(identity.id, Arc::clone(&address));
        // An address that changes its id takes one that it did not hold.
        let members_changed = holder.as_ref() != Some(&address);
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

    /// Makes or renews the entry of an address.
    fn enter(
        &mut self,
        address: &str,
        announced: &Announced<'_>,
        now: Duration,
        change: &mut Change,
    ) -> Arc<str> {
        self.generation += 1;
        let generation = self.generation;
        if let Some((address, _)) = self.brokers.get_key_value(address) {
            let address = Arc::clone(address);
            let broker = self.brokers.get_mut(&address).expect("invariant: the entry was just found");
            broker.announce(announced);
            broker.generation = generation;
            self.hear_of(&address, announced.connection, now, change);
            return address;
        }
        let address: Arc<str> = address.into();
        let mut broker = Broker::new(announced, now);
        broker.generation = generation;
        let (member, ha_address) = (self.member(&address, &broker), broker.ha_address.clone());
        change.effects.events.push(Event::BrokerRegistered { member, ha_address });
        self.brokers.insert(Arc::clone(&address), broker);
        self.bound.entry(announced.connection).or_default().push(Arc::clone(&address));
        address
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
            broker.forget_bodies();
            self.show_anew(group_id, change);
        }
    }
}

pub(crate) fn member_of(identity: &BrokerIdentity<'_>) -> Member {
    Member {
        cluster: identity.cluster.into(),
        broker: identity.broker.into(),
        id: identity.id,
        address: identity.address.into(),
    }
}
