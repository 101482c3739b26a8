//! What can be done to the table.

use std::time::Duration;

use waypost_rocketmq_wire::body::{DataVersion, QueueData, RegisterBrokerBody};
use waypost_rocketmq_wire::header::Header;

use crate::policy::Policy;

/// Identifies one connection for the life of the process. Later connections have larger numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// A change of the table, or a sign of life that refreshes one.
#[derive(Debug)]
pub enum Command<'a> {
    /// 103: the broker announces itself and its topics.
    Register(Registration<'a>),
    /// 104: the broker leaves.
    Unregister(Unregistration<'a>),
    /// 904: the broker is alive.
    Heartbeat(Sign<'a>),
    /// 322: the broker is alive and asks whether its topics are known.
    QueryDataVersion {
        /// Who asks.
        sign: Sign<'a>,
        /// The version that the broker has; `None` compares unequal to everything.
        version: Option<DataVersion>,
    },
    /// A connection is gone.
    ConnectionLost {
        /// Which one.
        connection: ConnectionId,
        /// How it ended.
        how: ConnectionEnd,
    },
    /// Nothing has come over a connection for so long that only a lease of its brokers keeps it open: those
    /// whose lease is over go, and with the last of them the connection.
    ConnectionIdle {
        /// Which one.
        connection: ConnectionId,
    },
    /// Time has passed: look for expired brokers. Meant to be sent about once a second.
    Tick,
    /// 217: one topic of brokers that are registered.
    RegisterTopic {
        /// The topic.
        topic: &'a str,
        /// Its queues, one entry a broker.
        queues: &'a [QueueData],
    },
    /// 216: forget a topic.
    DeleteTopic {
        /// The topic.
        topic: &'a str,
        /// Only for the brokers of this cluster; `None` for all.
        cluster: Option<&'a str>,
    },
    /// 205: take write permission from all topics of a broker.
    WipeWritePermission {
        /// The broker's name.
        broker: &'a str,
    },
    /// 327: give write permission to all topics of a broker.
    AddWritePermission {
        /// The broker's name.
        broker: &'a str,
    },
    /// The order configuration of a topic was put or deleted (`ORDER_TOPIC_CONFIG` of the KV table).
    SetOrder {
        /// The topic.
        topic: &'a str,
        /// Its new configuration; `None` when it was deleted.
        configuration: Option<&'a str>,
    },
    /// The settings changed.
    SetPolicy(Policy),
}

/// The header of a registration: who the broker is (spec 1.2, code 103).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokerIdentity<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// Broker name, shared by a master and its slaves.
    pub broker: &'a str,
    /// Advertised address, `host:port`.
    pub address: &'a str,
    /// 0 is the master.
    pub id: i64,
    /// Replication address, given to slaves.
    pub ha_address: Option<&'a str>,
    /// Zone of the group.
    pub zone: Option<&'a str>,
    /// The broker's own timeout; `None` for the default.
    pub timeout: Option<Duration>,
    /// `enableActingMaster`; its absence marks a 4.x broker (spec 2.2).
    pub acting_master: Option<bool>,
}

impl<'a> BrokerIdentity<'a> {
    /// Reads the header of a registration. An empty field counts as absent, as the binary form cannot tell the
    /// two apart.
    ///
    /// # Errors
    ///
    /// The name of a field without which brokers cannot be told apart (decision 9).
    pub fn of(header: &'a Header<'_>) -> Result<Self, &'static str> {
        let ext = &header.ext;
        let optional = |field: &str| ext.get(field).filter(|value| !value.is_empty());
        let required = |field: &'static str| optional(field).ok_or(field);
        Ok(Self {
            cluster: required("clusterName")?,
            broker: required("brokerName")?,
            address: required("brokerAddr")?,
            id: ext.get_i64("brokerId").ok_or("brokerId")?,
            ha_address: optional("haServerAddr"),
            zone: ext.get("__ZONE_NAME"),
            timeout: ext
                .get_i64("heartbeatTimeoutMillis")
                .map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
            acting_master: ext.get_bool("enableActingMaster"),
        })
    }
}

/// A 103 request.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// The header.
    pub identity: BrokerIdentity<'a>,
    /// The topics.
    pub body: Announcement<'a>,
    /// The connection that carried it.
    pub connection: ConnectionId,
}

/// What a registration says of the broker's topics.
#[derive(Clone, Copy, Debug)]
pub enum Announcement<'a> {
    /// A decoded body, and the digest of its bytes if it may be recognised later.
    Full(&'a RegisterBrokerBody<'a>, Option<BodyDigest>),
    /// Only the digest of a body that was not parsed. The outcome is
    /// [`crate::Outcome::BodyNeeded`] unless the body is known (decision 3).
    Digest(BodyDigest),
}

/// A digest of a registration body and of the way it was encoded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BodyDigest(pub u128);

/// A 104 request.
#[derive(Clone, Copy, Debug)]
pub struct Unregistration<'a> {
    /// Broker name.
    pub broker: &'a str,
    /// Advertised address; decides which member of the group leaves.
    pub address: &'a str,
    /// The id that the broker believes it has; only used to see whether the smallest id left.
    pub id: Option<i64>,
    /// The connection that carried it.
    pub connection: ConnectionId,
}

/// A sign of life.
#[derive(Clone, Copy, Debug)]
pub struct Sign<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// Advertised address.
    pub address: &'a str,
    /// The connection that carried it.
    pub connection: ConnectionId,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEnd {
    /// The peer closed or reset it, or this server did.
    Closed,
    /// The peer went silent: the kernel gave up. The broker may still live behind another path.
    TimedOut,
}
