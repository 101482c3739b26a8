//! What is different between two versions of a route, in words and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_wire::body::BrokerData;

use crate::permission::letters;

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// A broker has the topic now.
    BrokerCame {
        /// The broker group.
        broker: String,
        /// Its queues.
        #[serde(flatten)]
        queues: Queues,
        /// Addresses by broker id.
        addresses: BTreeMap<i64, String>,
    },
    /// A broker does not have it any more.
    BrokerLeft {
        /// The broker group.
        broker: String,
    },
    /// A member of a broker group came.
    AddressCame {
        /// The broker group.
        broker: String,
        /// The broker id.
        id: i64,
        /// Its address.
        address: String,
    },
    /// A member of a broker group left.
    AddressLeft {
        /// The broker group.
        broker: String,
        /// The broker id.
        id: i64,
        /// Its address.
        address: String,
    },
    /// A member of a broker group is somewhere else.
    AddressMoved {
        /// The broker group.
        broker: String,
        /// The broker id.
        id: i64,
        /// Where it was.
        from: String,
        /// Where it is.
        address: String,
    },
    /// The number of queues is another.
    Queues {
        /// The broker group.
        broker: String,
        /// The queues now.
        #[serde(flatten)]
        queues: Queues,
    },
    /// What may be done with the queues is another.
    Permission {
        /// The broker group.
        broker: String,
        /// The permission bits before.
        from: i32,
        /// The permission bits now.
        perm: i32,
    },
    /// The order configuration is another.
    Order {
        /// The configuration now.
        order_configuration: Option<String>,
    },
    /// The queues of the static topic are mapped otherwise.
    Mapping,
    /// Something else: flags of units, filter servers.
    Other,
}

/// The queues of one broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Queues {
    /// Queues to read from.
    pub read_queues: i32,
    /// Queues to write to.
    pub write_queues: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
}

/// The differences from `old` to `new`, by broker; all of `new` if there was nothing.
#[must_use]
pub fn between(old: Option<&TopicRoute>, new: &TopicRoute) -> Vec<Change> {
    let nothing = TopicRoute::default();
    let old = old.unwrap_or(&nothing);
    let mut changes = Vec::new();
    let (before, after) = (brokers(old), brokers(new));
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    for name in names {
        match (before.get(name), after.get(name)) {
            (Some(_), None) => changes.push(Change::BrokerLeft { broker: name.to_owned() }),
            (None, Some(queues)) => changes.push(Change::BrokerCame {
                broker: name.to_owned(),
                queues: *queues,
                addresses: new.group(name).map(addresses).unwrap_or_default(),
            }),
            (Some(before), Some(after)) => {
                queue_changes(name, *before, *after, &mut changes);
                address_changes(name, old.group(name), new.group(name), &mut changes);
            }
            (None, None) => {}
        }
    }
    if old.order_conf() != new.order_conf() {
        changes.push(Change::Order { order_configuration: new.order_conf().map(str::to_owned) });
    }
    if old.to_wire().topic_queue_mapping_by_broker != new.to_wire().topic_queue_mapping_by_broker {
        changes.push(Change::Mapping);
    }
    if changes.is_empty() && !old.content_equals(new) {
        changes.push(Change::Other);
    }
    changes
}

/// The brokers that have queues, with those.
fn brokers(route: &TopicRoute) -> BTreeMap<&str, Queues> {
    let entries = route.queue_entries().iter().map(|entry| {
        let queues =
            Queues { read_queues: entry.read_queues, write_queues: entry.write_queues, perm: entry.perm };
        (&*entry.broker, queues)
    });
    entries.collect()
}

fn addresses(group: &BrokerData) -> BTreeMap<i64, String> {
    group.broker_addrs.iter().map(|(id, address)| (*id, address.clone())).collect()
}

fn queue_changes(name: &str, before: Queues, after: Queues, changes: &mut Vec<Change>) {
    if (before.read_queues, before.write_queues) != (after.read_queues, after.write_queues) {
        changes.push(Change::Queues { broker: name.to_owned(), queues: after });
    }
    if before.perm != after.perm {
        changes.push(Change::Permission { broker: name.to_owned(), from: before.perm, perm: after.perm });
    }
}

fn address_changes(
    name: &str,
    before: Option<&BrokerData>,
    after: Option<&BrokerData>,
    changes: &mut Vec<Change>,
) {
    let (before, after) =
        (before.map(addresses).unwrap_or_default(), after.map(addresses).unwrap_or_default());
    let ids: BTreeSet<i64> = before.keys().chain(after.keys()).copied().collect();
    let broker = || name.to_owned();
    for id in ids {
        changes.extend(match (before.get(&id).cloned(), after.get(&id).cloned()) {
            (Some(address), None) => Some(Change::AddressLeft { broker: broker(), id, address }),
            (None, Some(address)) => Some(Change::AddressCame { broker: broker(), id, address }),
            (Some(from), Some(address)) if from != address => {
                Some(Change::AddressMoved { broker: broker(), id, from, address })
            }
            _ => None,
        });
    }
}

/// `master` or `slave 2`.
fn member(id: i64) -> String {
    if id == 0 { "master".to_owned() } else { format!("slave {id}") }
}

impl fmt::Display for Queues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read_queues: read, write_queues: write, perm } = *self;
        match (read, write) {
            (1, 1) => formatter.write_str("1 queue")?,
            _ if read == write => write!(formatter, "{read} queues")?,
            _ => write!(formatter, "{read} queues to read and {write} to write")?,
        }
        write!(formatter, ", {}", letters(perm))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokerCame { broker, queues, addresses } => {
                write!(formatter, "is on {broker}: {queues}")?;
                if addresses.is_empty() {
                    formatter.write_str(", without an address")?;
                }
                addresses
                    .iter()
                    .try_for_each(|(id, address)| write!(formatter, ", {} at {address}", member(*id)))
            }
            Self::BrokerLeft { broker } => write!(formatter, "is not on {broker} any more"),
            Self::AddressCame { broker, id, address } => {
                write!(formatter, "has the {} of {broker}, at {address}", member(*id))
            }
            Self::AddressLeft { broker, id, address } => {
                write!(formatter, "lost the {} of {broker}, which was at {address}", member(*id))
            }
            Self::AddressMoved { broker, id, from, address } => {
                write!(formatter, "has the {} of {broker} at {address}, not at {from} any more", member(*id))
            }
            Self::Queues { broker, queues } => write!(formatter, "has other queues on {broker}: {queues}"),
            Self::Permission { broker, from, perm } => {
                write!(formatter, "has the permission {} on {broker}, not {}", letters(*perm), letters(*from))
            }
            Self::Order { order_configuration: Some(order) } => {
                write!(formatter, "has the order configuration {order}")
            }
            Self::Order { order_configuration: None } => {
                formatter.write_str("has no order configuration any more")
            }
            Self::Mapping => formatter.write_str("has its static queues elsewhere"),
            Self::Other => formatter.write_str("has other flags or filter servers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use waypost_rocketmq_wire::body::{QueueData, TopicRouteData};

    use super::*;

    /// Name, queues, permission, addresses by id.
    type Group<'a> = (&'a str, i32, i32, &'a [(i64, &'a str)]);

    fn route(brokers: &[Group<'_>]) -> TopicRoute {
        let mut data = TopicRouteData::default();
        for (name, queues, perm, addresses) in brokers {
            data.queue_datas.push(QueueData {
                broker_name: (*name).to_owned(),
                read_queue_nums: *queues,
                write_queue_nums: *queues,
                perm: *perm,
                topic_sys_flag: 0,
            });
            data.broker_datas.push(BrokerData {
                broker_name: (*name).to_owned(),
                broker_addrs: addresses.iter().map(|(id, address)| (*id, (*address).to_owned())).collect(),
                cluster: "C".to_owned(),
                zone_name: None,
                enable_acting_master: false,
            });
        }
        TopicRoute::from(data)
    }

    fn told(old: Option<&TopicRoute>, new: &TopicRoute) -> Vec<String> {
        between(old, new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_first_route_is_told_whole() {
        let new = route(&[("b", 8, 6, &[(0, "h:1"), (2, "h:2")]), ("a", 4, 4, &[])]);
        assert_eq!(
            told(None, &new),
            [
                "is on a: 4 queues, R--, without an address",
                "is on b: 8 queues, RW-, master at h:1, slave 2 at h:2"
            ]
        );
    }

    #[test]
    fn only_what_changed_is_told() {
        let old = route(&[("a", 4, 6, &[(0, "h:1")]), ("b", 4, 6, &[(0, "h:2"), (1, "h:3")])]);
        assert!(between(Some(&old), &old).is_empty());
        let new = route(&[("b", 8, 4, &[(0, "h:4"), (2, "h:5")]), ("c", 1, 6, &[(0, "h:6")])]);
        assert_eq!(
            told(Some(&old), &new),
            [
                "is not on a any more",
                "has other queues on b: 8 queues, R--",
                "has the permission R-- on b, not RW-",
                "has the master of b at h:4, not at h:2 any more",
                "lost the slave 1 of b, which was at h:3",
                "has the slave 2 of b, at h:5",
                "is on c: 1 queue, RW-, master at h:6",
            ]
        );
    }

    #[test]
    fn programs_get_kinds_and_data() {
        let new = route(&[("a", 4, 6, &[(0, "h:1")])]);
        let json = serde_json::to_value(between(None, &new)).expect("JSON");
        let expected = serde_json::json!([{
            "change": "broker_came", "broker": "a", "read_queues": 4, "write_queues": 4, "perm": 6,
            "addresses": {"0": "h:1"},
        }]);
        assert_eq!(json, expected);
    }
}
