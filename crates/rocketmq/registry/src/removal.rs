//! How brokers leave (spec 2.10 to 2.12), and the signs of life that keep them.

use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::DataVersion;

use crate::command::{ConnectionEnd, ConnectionId, Sign, Unregistration};
use crate::effects::{Event, MinBrokerNotice, Outcome, RemovalCause};
use crate::group::GroupId;
use crate::route::PERM_WRITE;
use crate::table::{Change, RouteTable, TopicTally};
use crate::topic::TopicId;

impl RouteTable {
    /// Request 104. Matches by broker name and address, not by id, so that a late request of an old master
    /// cannot remove the new one (spec 2.10, field report A2). A request that comes over a
    /// connection which carried the broker before a newer one did is older than the registration
    /// it would remove, and does nothing.
    pub(crate) fn unregister(&mut self, request: &Unregistration<'_>, change: &mut Change) -> Outcome {
        let Some(broker) = self.brokers.get(request.address) else { return Outcome::Ignored };
        let same_name = &*self.group(broker.group).name == request.broker;
        if !same_name || broker.older_connections.contains(&request.connection) {
            return Outcome::Ignored;
        }
        self.remove_broker(request.address, RemovalCause::Unregistered, request.id, change);
        Outcome::Done
    }

    /// 904 and 322: a sign of life. Returns the stored data version of a broker that is known.
    pub(crate) fn refresh(
        &mut self,
        sign: &Sign<'_>,
        now: Duration,
        change: &mut Change,
    ) -> Option<DataVersion> {
        let (address, broker) = self.brokers.get_key_value(sign.address)?;
        if &*broker.cluster != sign.cluster {
            return None;
        }
        let (address, data_version) = (Arc::clone(address), broker.data_version);
        if broker.suspected_until.is_some() {
            // The connection that it was bound to is gone; a live one takes its place.
            self.hear_of(&address, sign.connection, now, change);
        } else if let Some(broker) = self.brokers.get_mut(&address) {
            broker.last_sign = now;
        }
        Some(data_version)
    }

    /// Renews the lease of a broker and binds it to the connection that it was heard on. Another
    /// connection than the broken one clears a suspicion.
    pub(crate) fn hear_of(
        &mut self,
        address: &Arc<str>,
        connection: ConnectionId,
        now: Duration,
        change: &mut Change,
    ) {
        let Some(broker) = self.brokers.get_mut(address) else { return };
        broker.last_sign = now;
        let before = broker.connection;
        if before == connection {
            return;
        }
        broker.bind(connection);
        let was_suspected = broker.suspected_until.take().is_some();
        self.unbind(address, before);
        self.bound.entry(connection).or_default().push(Arc::clone(address));
        if was_suspected {
            let member = self.member(address, &self.brokers[address]);
            change.effects.events.push(Event::BrokerTrusted { member });
        }
    }

    pub(crate) fn unbind(&mut self, address: &Arc<str>, connection: ConnectionId) {
        if let Some(addresses) = self.bound.get_mut(&connection) {
            addresses.retain(|bound| bound != address);
            if addresses.is_empty() {
                self.bound.remove(&connection);
            }
        }
    }

    /// Spec 2.12, with D2: everything that is bound to the connection goes, or is suspected when
    /// the connection broke by time-out (decision 5).
    pub(crate) fn connection_lost(
        &mut self,
        connection: ConnectionId,
        how: ConnectionEnd,
        now: Duration,
        change: &mut Change,
    ) {
        let Some(addresses) = self.bound.get(&connection).cloned() else { return };
        for address in addresses {
            match how {
                ConnectionEnd::Closed => {
                    self.remove_broker(&address, RemovalCause::ConnectionClosed, None, change);
                }
                ConnectionEnd::TimedOut => {
                    let until = now.saturating_add(self.policy.suspect_grace);
                    let Some(broker) = self.brokers.get_mut(&address) else { continue };
                    if broker.suspected_until.is_some() {
                        continue;
                    }
                    broker.suspected_until = Some(until);
                    let member = self.member(&address, &self.brokers[&address]);
                    change.effects.events.push(Event::BrokerSuspected { member, until });
                }
            }
        }
    }

    /// An idle connection: its brokers go at the end of their leases without waiting for a scan. It is closed
    /// when none is left, and not before: a lease may be longer than connections may be idle.
    pub(crate) fn connection_idle(&mut self, connection: ConnectionId, now: Duration, change: &mut Change) {
        let Some(addresses) = self.bound.get(&connection).cloned() else { return };
        let default = self.policy.broker_expire;
        for address in addresses {
            if self.brokers.get(&address).is_some_and(|broker| broker.has_expired(default, now)) {
                self.remove_broker(&address, RemovalCause::Expired, None, change);
            }
        }
        if !self.bound.contains_key(&connection) {
            change.effects.close.push(connection);
        }
    }

    /// Removes suspects whose grace is over, and at every scan the brokers without a sign of life
    /// within their timeout. The first scan comes one whole interval after the first tick.
    pub(crate) fn tick(&mut self, now: Duration, change: &mut Change) {
        let interval = self.policy.scan_interval;
        let scan_at = *self.next_scan.get_or_insert_with(|| now.saturating_add(interval));
        let scanning = scan_at <= now;
        if scanning {
            // A fixed rate, but no rush of scans after a pause.
            self.next_scan = Some(scan_at.saturating_add(interval).max(now));
        }
        let gone: Vec<_> = self
            .brokers
            .iter()
            .filter_map(|(address, broker)| {
                if broker.suspected_until.is_some_and(|until| until <= now) {
                    Some((Arc::clone(address), RemovalCause::ConnectionTimedOut, broker.connection))
                } else if scanning && broker.has_expired(self.policy.broker_expire, now) {
                    Some((Arc::clone(address), RemovalCause::Expired, broker.connection))
                } else {
                    None
                }
            })
            .collect();
        for (address, cause, connection) in gone {
            self.remove_broker(&address, cause, None, change);
            // Other brokers of a container may still live on the connection.
            if cause == RemovalCause::Expired && !self.bound.contains_key(&connection) {
                change.effects.close.push(connection);
            }
        }
    }

    /// Takes a broker out of the table (spec 2.10). `reported_id` is the id that the broker itself
    /// named, which decides whether the smallest id left.
    pub(crate) fn remove_broker(
        &mut self,
        address: &str,
        cause: RemovalCause,
        reported_id: Option<i64>,
        change: &mut Change,
    ) {
        let Some((address, broker)) = self.brokers.remove_entry(address) else { return };
        self.unbind(&address, broker.connection);
        let member = self.member(&address, &broker);
        change.effects.events.push(Event::BrokerRemoved { member: member.clone(), cause });

        let group_id = broker.group;
        let group = self.group_mut(group_id);
        let min_left = group.min_id() == Some(reported_id.unwrap_or(broker.id));
        group.members.retain(|_, member| *member != address);
        if group.members.is_empty() {
            self.remove_group(group_id, change);
            return;
        }
        group.touch();
        let (acting_master, has_master) = (group.acting_master, group.has_master());
        self.settle_cluster(group_id);
        if acting_master && !has_master {
            self.make_read_only(group_id);
        }
        self.show_anew(group_id, change);
        if min_left {
            let left = (broker.id, address);
            let smallest = change.min_left.entry(member.broker).or_insert_with(|| left.clone());
            if left.0 < smallest.0 {
                *smallest = left;
            }
        }
    }

    fn remove_group(&mut self, id: GroupId, change: &mut Change) {
        let mut topics: Vec<TopicId> = self.group_mut(id).topics.drain().collect();
        topics.sort_unstable();
        let mut tally = TopicTally::default();
        for topic_id in topics {
            let topic = self.topic_mut(topic_id);
            if topic.remove_group(id) {
                tally.removed(&topic.name);
            }
            change.dirty.push(topic_id);
        }
        let group = self.groups.remove(id.0 as usize);
        self.group_ids.remove(&group.name);
        self.deleted.forget_broker(&group.name);
        tally.report(&group.name, change);
    }

    /// Spec 2.10 step 4: a group in acting-master mode that lost its master serves reads only.
    fn make_read_only(&mut self, id: GroupId) {
        let mut topics: Vec<TopicId> = self.group(id).topics.iter().copied().collect();
        topics.sort_unstable();
        for topic_id in topics {
            if let Some(queues) = self.topic_mut(topic_id).queues_of_mut(id) {
                let perm = queues.effective().perm;
                if perm & PERM_WRITE != 0 {
                    queues.overlay = Some(perm & !PERM_WRITE);
                }
            }
        }
    }

    /// Takes a group's queues and mappings from a topic.
    pub(crate) fn drop_queues(
        &mut self,
        topic_id: TopicId,
        group_id: GroupId,
        tally: &mut TopicTally,
        change: &mut Change,
    ) {
        let topic = self.topic_mut(topic_id);
        if topic.remove_group(group_id) {
            tally.removed(&topic.name);
        }
        self.group_mut(group_id).topics.remove(&topic_id);
        change.dirty.push(topic_id);
    }

    /// Whom to tell of the smallest id of a group (spec 2.8).
    pub(crate) fn min_broker_notice(
        &self,
        id: GroupId,
        offline_address: Option<Arc<str>>,
        ha_address: Option<Arc<str>>,
    ) -> Option<MinBrokerNotice> {
        let group = self.group(id);
        let (min_id, min_address) = group.members.first_key_value()?;
        let tell_all = offline_address.is_some() || group.members.len() == 1;
        let recipients = group
            .members
            .iter()
            .filter(|(id, _)| tell_all || *id != min_id)
            .map(|(_, address)| Arc::clone(address))
            .collect();
        Some(MinBrokerNotice {
            broker: Arc::clone(&group.name),
            min_id: *min_id,
            min_address: Arc::clone(min_address),
            offline_address,
            ha_address,
            recipients,
        })
    }
}
