//! Where the brokers of the topics in use are (B10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::{Rng, RngExt};
use waypost_net::clock::Millis;

use crate::faults::Faults;
use crate::route::TopicRoute;

/// The id of the master of a broker group.
pub const MASTER_ID: i64 = 0;

/// One broker of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member<'a> {
    /// Its id; 0 is the master.
    pub id: i64,
    /// `host:port`.
    pub address: &'a str,
}

/// Where to send messages: the master, and nobody else (B10).
#[must_use]
pub fn publish_address(addresses: &BTreeMap<i64, String>) -> Option<&str> {
    addresses.get(&MASTER_ID).map(String::as_str)
}

/// Where to read from (B10): the wanted id; if it is not there and is a slave's, the next id; then, unless it must be
/// the wanted one (`only`), the member with the least id.
#[must_use]
pub fn read_address(addresses: &BTreeMap<i64, String>, wanted_id: i64, only: bool) -> Option<Member<'_>> {
    let member = |id: i64| addresses.get_key_value(&id);
    let next = || if wanted_id == MASTER_ID { None } else { member(wanted_id.checked_add(1)?) };
    let least = || if only { None } else { addresses.first_key_value() };
    let (&id, address) = member(wanted_id).or_else(next).or_else(least)?;
    Some(Member { id, address })
}

/// Whom to ask what any member of a group can answer: the master, else a random member (B10).
pub fn any_address<'a>(addresses: &'a BTreeMap<i64, String>, rng: &mut impl Rng) -> Option<Member<'a>> {
    if let Some(address) = publish_address(addresses) {
        return Some(Member { id: MASTER_ID, address });
    }
    let index = rng.random_range(0..addresses.len().max(1));
    addresses.iter().nth(index).map(|(&id, address)| Member { id, address })
}

/// Whom to ask about a topic what any of its brokers can answer, such as the consumers of a group: a random broker
/// group of the route that has an address, there [`any_address`] (B10).
pub fn any_broker<'a>(route: &'a TopicRoute, rng: &mut impl Rng) -> Option<(&'a str, Member<'a>)> {
    let groups = || route.groups().iter().filter(|group| !group.broker_addrs.is_empty());
    let index = rng.random_range(0..groups().count().max(1));
    let group = groups().nth(index)?;
    Some((&group.broker_name, any_address(&group.broker_addrs, rng)?))
}

/// The address table: the broker groups of all topics in use, with the addresses of the newest route that named
/// them. A group leaves with the last topic that has it.
#[derive(Debug, Default)]
pub struct Brokers {
    groups: BTreeMap<Arc<str>, Group>,
}

#[derive(Debug, Default)]
struct Group {
    addresses: BTreeMap<i64, String>,
    /// The topics that have queues here; any of them serves a probe.
    topics: BTreeSet<Arc<str>>,
}

impl Brokers {
    /// Notes that the route of `topic` was `old` and is `new`; `None` stands for a topic that was not, or is no longer,
    /// in use. Each group's addresses are replaced as a whole (B5 step 6).
    pub fn replace(&mut self, topic: &Arc<str>, old: Option<&TopicRoute>, new: Option<&TopicRoute>) {
        for group in new.map_or(&[][..], TopicRoute::groups) {
            let name = group.broker_name.as_str();
            if !self.groups.contains_key(name) {
                self.groups.insert(name.into(), Group::default());
            }
            if let Some(known) = self.groups.get_mut(name) {
                if known.addresses != group.broker_addrs {
                    known.addresses.clone_from(&group.broker_addrs);
                }
                known.topics.insert(Arc::clone(topic));
            }
        }
        for group in old.map_or(&[][..], TopicRoute::groups) {
            let name = group.broker_name.as_str();
            if new.is_some_and(|new| new.group(name).is_some()) {
                continue;
            }
            if let Some(known) = self.groups.get_mut(name) {
                known.topics.remove(topic);
                if known.topics.is_empty() {
                    self.groups.remove(name);
                }
            }
        }
    }

    /// Whether a topic in use has the broker group.
    #[must_use]
    pub fn contains(&self, broker: &str) -> bool {
        self.groups.contains_key(broker)
    }

    /// The names of the groups, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.groups.keys()
    }

    /// The addresses of a group by id.
    #[must_use]
    pub fn addresses(&self, broker: &str) -> Option<&BTreeMap<i64, String>> {
        self.groups.get(broker).map(|group| &group.addresses)
    }

    /// [`publish_address`] of the group.
    #[must_use]
    pub fn for_publishing(&self, broker: &str) -> Option<&str> {
        publish_address(self.addresses(broker)?)
    }

    /// [`read_address`] of the group.
    #[must_use]
    pub fn for_subscribing(&self, broker: &str, wanted_id: i64, only: bool) -> Option<Member<'_>> {
        read_address(self.addresses(broker)?, wanted_id, only)
    }

    /// Where to read from, going round members that fail. The wanted member is taken as by [`read_address`]. If its
    /// record is bad, the slaves are tried by id, then the master, and if all are bad the wanted one stays.
    ///
    /// The master's record has the name of the group, a slave's has its address: callers report
    /// [`Outcome`](crate::faults::Outcome)s of slaves under the address.
    #[must_use]
    pub fn for_reading(
        &self,
        broker: &str,
        wanted_id: i64,
        faults: &Faults,
        now: Millis,
    ) -> Option<Member<'_>> {
        let addresses = self.addresses(broker)?;
        let wanted = read_address(addresses, wanted_id, false)?;
        let well = |member: &Member<'_>| {
            let key = if member.id == MASTER_ID { broker } else { member.address };
            faults.is_available(key, now)
        };
        if well(&wanted) {
            return Some(wanted);
        }
        let members = || addresses.iter().map(|(&id, address)| Member { id, address });
        let slaves = members().filter(|member| member.id != MASTER_ID);
        let master = members().filter(|member| member.id == MASTER_ID);
        slaves.chain(master).find(well).or(Some(wanted))
    }

    /// Whom a probe of the group asks, and about which topic: the master, or the member with the least id.
    pub(crate) fn probe_target(&self, broker: &str) -> Option<(&str, &Arc<str>)> {
        let group = self.groups.get(broker)?;
        let (_, address) = group.addresses.first_key_value()?;
        Some((address, group.topics.first()?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use waypost_rocketmq_wire::body::{BrokerData, TopicRouteData};

    use super::*;
    use crate::faults::Outcome;

    fn route(groups: &[(&str, &[(i64, &str)])]) -> TopicRoute {
        let groups = groups.iter().map(|(name, addresses)| BrokerData {
            broker_name: (*name).into(),
            broker_addrs: addresses.iter().map(|&(id, address)| (id, address.to_owned())).collect(),
            ..BrokerData::default()
        });
        TopicRoute::from(TopicRouteData { broker_datas: groups.collect(), ..TopicRouteData::default() })
    }

    fn table(groups: &[(&str, &[(i64, &str)])]) -> Brokers {
        let mut brokers = Brokers::default();
        brokers.replace(&"T".into(), None, Some(&route(groups)));
        brokers
    }

    #[test]
    fn messages_go_to_the_master_only() {
        let brokers = table(&[("a", &[(0, "m:1"), (1, "s:1")]), ("b", &[(1, "s:2")])]);
        assert_eq!(brokers.for_publishing("a"), Some("m:1"));
        assert_eq!(brokers.for_publishing("b"), None);
        assert_eq!(brokers.for_publishing("c"), None);
    }

    #[test]
    fn reads_take_the_wanted_the_next_or_any_member() {
        let brokers = table(&[("a", &[(0, "m:1"), (2, "s:2")]), ("b", &[(3, "s:3"), (5, "s:5")])]);
        let read = |broker, id, only| brokers.for_subscribing(broker, id, only).map(|member| member.id);
        assert_eq!(read("a", 0, true), Some(0));
        assert_eq!(read("a", 2, true), Some(2));
        assert_eq!(read("a", 1, true), Some(2));
        assert_eq!(read("a", 3, true), None);
        assert_eq!(read("a", 3, false), Some(0));
        assert_eq!(read("b", 0, true), None);
        assert_eq!(read("b", 0, false), Some(3));
        assert_eq!(read("b", i64::MAX, false), Some(3));
    }

    #[test]
    fn a_group_stays_as_long_as_a_topic_has_it() {
        let mut brokers = Brokers::default();
        let (t, u): (Arc<str>, Arc<str>) = ("T".into(), "U".into());
        let both = route(&[("a", &[(0, "a:1")]), ("b", &[(0, "b:1")])]);
        let moved = route(&[("a", &[(0, "a:2")])]);
        brokers.replace(&t, None, Some(&both));
        brokers.replace(&u, None, Some(&both));
        brokers.replace(&t, Some(&both), Some(&moved));
        assert_eq!(brokers.for_publishing("a"), Some("a:2"));
        assert!(brokers.contains("b"));
        brokers.replace(&u, Some(&both), None);
        assert_eq!(brokers.names().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
        brokers.replace(&t, Some(&moved), None);
        assert_eq!(brokers.names().count(), 0);
    }

    #[test]
    fn any_broker_is_a_master_where_there_is_one() {
        let route = route(&[("a", &[(0, "m:1"), (1, "s:1")]), ("b", &[(1, "s:2"), (2, "s:3")]), ("c", &[])]);
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut rng = StdRng::seed_from_u64(seed);
            seen.insert(any_broker(&route, &mut rng).map(|(_, member)| member.address.to_owned()).unwrap());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["m:1", "s:2", "s:3"]);
        assert_eq!(any_broker(&TopicRoute::default(), &mut StdRng::seed_from_u64(1)), None);
    }

    #[test]
    fn reads_go_round_members_that_fail() {
        let brokers = table(&[("a", &[(0, "m:1"), (1, "s:1"), (2, "s:2")])]);
        let mut faults = Faults::default();
        let now = Millis::new(1_000);
        let read = |faults: &Faults| brokers.for_reading("a", 0, faults, now).map(|member| member.id);
        assert_eq!(read(&faults), Some(0));
        faults.report("a", Outcome::TimedOut { limit: Duration::from_secs(3) }, now);
        assert_eq!(read(&faults), Some(1));
        faults.report("s:1", Outcome::TransportError, now);
        assert_eq!(read(&faults), Some(2));
        faults.report("s:2", Outcome::TransportError, now);
        assert_eq!(read(&faults), Some(0));
    }
}
