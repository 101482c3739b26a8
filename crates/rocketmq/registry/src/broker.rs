//! One registered broker process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::DataVersion;

use crate::command::{BodyDigest, ConnectionId};
use crate::group::GroupId;

/// How many different bodies of one broker are remembered. A broker that registers in parts sends
/// one body for every 800 topics, so this covers three million.
const DIGESTS_MAX: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) cluster: Arc<str>,
    pub(crate) group: GroupId,
    pub(crate) id: i64,
    pub(crate) ha_address: Option<Arc<str>>,
    /// The broker's own timeout, if it announced one.
    pub(crate) timeout: Option<Duration>,
    pub(crate) acting_master: Option<bool>,
    pub(crate) data_version: DataVersion,
    pub(crate) connection: ConnectionId,
    /// Connections that carried it before the one it is bound to now.
    pub(crate) older_connections: BTreeSet<ConnectionId>,
    pub(crate) registered_at: Duration,
    pub(crate) last_sign: Duration,
    /// Counts registrations of all brokers; two different ones never have the same.
    pub(crate) generation: u64,
    /// Set while the connection is broken by time-out: when the broker goes.
    pub(crate) suspected_until: Option<Duration>,
    pub(crate) filter_servers: Vec<String>,
    /// It sent two bodies under one data version of which neither contains the other: what a body
    /// omits says nothing (decision 1, field report A8).
    pub(crate) registers_in_parts: bool,
    digests: BTreeSet<BodyDigest>,
    /// The group's `touched` when the digests were taken.
    digests_at: u64,
}

/// The part of a broker that a registration sets.
pub(crate) struct Announced<'a> {
    pub(crate) cluster: Arc<str>,
    pub(crate) group: GroupId,
    pub(crate) id: i64,
    pub(crate) ha_address: Option<&'a str>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) acting_master: Option<bool>,
    pub(crate) data_version: DataVersion,
    pub(crate) connection: ConnectionId,
}

impl Broker {
    pub(crate) fn new(announced: &Announced<'_>, now: Duration) -> Self {
        Self {
            cluster: Arc::clone(&announced.cluster),
            group: announced.group,
            id: announced.id,
            ha_address: announced.ha_address.map(Arc::from),
            timeout: announced.timeout,
            acting_master: announced.acting_master,
            data_version: announced.data_version,
            connection: announced.connection,
            older_connections: BTreeSet::new(),
            registered_at: now,
            last_sign: now,
            generation: 0,
            suspected_until: None,
            filter_servers: Vec::new(),
            registers_in_parts: false,
            digests: BTreeSet::new(),
            digests_at: 0,
        }
    }

    /// Takes over what a registration says, but for the connection; the time it is registered since
    /// stays.
    pub(crate) fn announce(&mut self, announced: &Announced<'_>) {
        self.cluster = Arc::clone(&announced.cluster);
        self.group = announced.group;
        self.id = announced.id;
        if self.ha_address.as_deref() != announced.ha_address {
            self.ha_address = announced.ha_address.map(Arc::from);
        }
        self.timeout = announced.timeout;
        self.acting_master = announced.acting_master;
        if self.data_version != announced.data_version {
            self.data_version = announced.data_version;
            self.digests.clear();
        }
    }

    /// Whether nothing was heard of it for longer than its own timeout, or `default` if it announced none.
    pub(crate) fn has_expired(&self, default: Duration, now: Duration) -> bool {
        self.last_sign.saturating_add(self.timeout.unwrap_or(default)) < now
    }

    /// Moves the broker to another connection.
    pub(crate) fn bind(&mut self, connection: ConnectionId) {
        if self.connection == connection {
            return;
        }
        // A broker that reconnects all the time must not grow without bound: the oldest are
        // forgotten, and a 104 from one of them would be obeyed.
        if self.older_connections.len() >= 16 {
            self.older_connections.pop_first();
        }
        self.older_connections.insert(self.connection);
        self.older_connections.remove(&connection);
        self.connection = connection;
    }

    pub(crate) fn knows_body(&self, digest: BodyDigest, group_touched: u64) -> bool {
        self.digests_at == group_touched && self.digests.contains(&digest)
    }

    /// Remembers a body that was applied.
    pub(crate) fn remember_body(&mut self, digest: BodyDigest, group_touched: u64) {
        if self.digests_at != group_touched || self.digests.len() >= DIGESTS_MAX {
            self.digests.clear();
        }
        self.digests_at = group_touched;
        self.digests.insert(digest);
    }

    /// Forgets the bodies that were applied, because they may contradict what is known now.
    pub(crate) fn forget_bodies(&mut self) {
        self.digests.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> Broker {
        let announced = Announced {
            cluster: "c".into(),
            group: GroupId(0),
            id: 0,
            ha_address: None,
            timeout: None,
            acting_master: None,
            data_version: DataVersion::default(),
            connection: ConnectionId(0),
        };
        Broker::new(&announced, Duration::ZERO)
    }

    #[test]
    fn only_the_last_connections_are_remembered() {
        let mut broker = broker();
        for connection in 1..=100 {
            broker.bind(ConnectionId(connection));
        }
        let older: Vec<_> = broker.older_connections.iter().map(|connection| connection.0).collect();
        assert_eq!(older, (84..=99).collect::<Vec<_>>());
    }

    #[test]
    fn a_connection_that_carries_the_broker_again_is_no_older_one() {
        let mut broker = broker();
        broker.bind(ConnectionId(1));
        broker.bind(ConnectionId(0));
        assert_eq!(broker.older_connections, BTreeSet::from([ConnectionId(1)]));
    }

    #[test]
    fn known_bodies_are_bounded() {
        let mut broker = broker();
        let most = u128::try_from(DIGESTS_MAX).expect("fits");
        for digest in 0..=most {
            broker.remember_body(BodyDigest(digest), 0);
        }
        assert_eq!(broker.digests, BTreeSet::from([BodyDigest(most)]));
    }

    #[test]
    fn bodies_are_known_until_their_group_is_touched() {
        let mut broker = broker();
        broker.remember_body(BodyDigest(1), 5);
        assert!(broker.knows_body(BodyDigest(1), 5));
        assert!(!broker.knows_body(BodyDigest(1), 6));
        broker.remember_body(BodyDigest(2), 6);
        assert!(!broker.knows_body(BodyDigest(1), 6), "it was not sent since");
    }
}
