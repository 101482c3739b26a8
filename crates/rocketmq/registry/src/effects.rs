//! What a command did.

use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::body::DataVersion;

use crate::command::ConnectionId;
use crate::route::Route;

/// Everything that follows from one command, as plain data. The caller publishes
/// [`changed`](Self::changed) to the readers' index before it answers.
#[derive(Debug, Default)]
pub struct Effects {
    /// What to answer.
    pub outcome: Outcome,
    /// Topics whose route changed, each at most once.
    pub changed: Vec<RouteChange>,
    /// Brokers to tell about a new smallest id (905), after the change is published.
    pub notices: Vec<MinBrokerNotice>,
    /// Connections to close.
    pub close: Vec<ConnectionId>,
    /// What happened, for logs, metrics and journals.
    pub events: Vec<Event>,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing to say.
    #[default]
    Done,
    /// 103 was accepted. The addresses are for slaves whose master is known (spec 2.4 step 15).
    Registered {
        /// The master's address.
        master_address: Option<Arc<str>>,
        /// The master's replication address.
        ha_address: Option<Arc<str>>,
    },
    /// 103 came with a digest that is not known: send the body.
    BodyNeeded,
    /// 103 lost against a broker with a larger state version: answered as success, nothing changed.
    Superseded,
    /// 103 was refused and left nothing behind.
    Refused(RegistrationRefusal),
    /// 322.
    DataVersion {
        /// The broker should register again.
        changed: bool,
        /// The version that is stored; `None` for a broker that is not known.
        stored: Option<DataVersion>,
    },
    /// 205 and 327: how many topics were visited.
    Topics(usize),
    /// 104, 216, 217 or 904 named something that is not registered.
    Ignored,
}

/// Why a registration was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationRefusal {
    /// A broker that is not registered sent exactly one topic: a change, not its table (spec 2.4 step 7).
    #[error("register broker failed")]
    SingleTopic,
    /// The name is live in another cluster and `refuseBrokerNameInOtherCluster` is on.
    #[error(
        "broker name {broker} is live in cluster {live_cluster}, so cluster {cluster} may not use it \
         (refuseBrokerNameInOtherCluster=true); rename the broker"
    )]
    NameInOtherCluster {
        /// The broker's name.
        broker: String,
        /// The cluster of this registration.
        cluster: String,
        /// The cluster in which the name is live.
        live_cluster: String,
    },
    /// The master lives at another address and `refuseMasterAddressChange` is on.
    #[error(
        "broker {broker} id 0 is live at {live_address}, so {address} may not take it \
         (refuseMasterAddressChange=true); stop the broker at {live_address} first"
    )]
    MasterAddressChange {
        /// The broker's name.
        broker: String,
        /// The address of this registration.
        address: String,
        /// The address that holds id 0.
        live_address: String,
    },
    /// A limit of the table.
    #[error("the limit of {limit} {what} is reached; raise {setting}")]
    LimitReached {
        /// `topics` or `brokers`.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// The setting that raises it.
        setting: &'static str,
    },
    /// A name is empty or too long.
    #[error("{what} is {length} bytes long; 1 to {limit} are allowed (nameLengthMax)")]
    NameLength {
        /// Which name.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// An entry of the topic table has no `topicName`.
    #[error("the topic table entry {key:?} has no topicName")]
    TopicWithoutName {
        /// The key of the entry.
        key: String,
    },
}

impl RegistrationRefusal {
    /// A short fixed name for counters.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::SingleTopic => "single_topic",
            Self::NameInOtherCluster { .. } => "name_in_other_cluster",
            Self::MasterAddressChange { .. } => "master_address_change",
            Self::LimitReached { .. } => "limit",
            Self::NameLength { .. } => "name_length",
            Self::TopicWithoutName { .. } => "topic_without_name",
        }
    }
}

/// A topic and its route after the command; `None` when it has none any more.
#[derive(Clone, Debug)]
pub struct RouteChange {
    /// The topic.
    pub topic: Arc<str>,
    /// The new route.
    pub route: Option<Arc<Route>>,
}

/// A 905 to send (spec 2.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MinBrokerNotice {
    /// The group.
    pub broker: Arc<str>,
    /// The smallest id now.
    pub min_id: i64,
    /// Its address.
    pub min_address: Arc<str>,
    /// The address that left, if one did.
    pub offline_address: Option<Arc<str>>,
    /// The replication address of the member that joined, if one did.
    pub ha_address: Option<Arc<str>>,
    /// Whom to tell.
    pub recipients: Vec<Arc<str>>,
}

/// Something that operators want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An address that was not registered is now.
    BrokerRegistered {
        /// The member.
        member: Member,
        /// Its replication address.
        ha_address: Option<Arc<str>>,
    },
    /// A member left.
    BrokerRemoved {
        /// The member.
        member: Member,
        /// Why.
        cause: RemovalCause,
    },
    /// The connection of a broker broke by time-out; it is removed at the given time unless heard of.
    BrokerSuspected {
        /// The member.
        member: Member,
        /// When it goes.
        until: Duration,
    },
    /// A suspected broker was heard of.
    BrokerTrusted {
        /// The member.
        member: Member,
    },
    /// Topics of a group were added, changed or removed.
    TopicsChanged {
        /// The group; empty for a topic that was deleted everywhere.
        broker: Arc<str>,
        /// Topics that the group did not have before.
        added: usize,
        /// Topics whose queue data changed.
        altered: usize,
        /// Topics that it has no longer.
        removed: usize,
        /// One of them.
        example: Arc<str>,
    },
    /// Two registrations contradict each other.
    Conflict {
        /// What kind of contradiction.
        kind: ConflictKind,
        /// The member that caused it.
        member: Member,
        /// The other side: an address, a cluster or a name.
        other: Arc<str>,
        /// The first time for this member and kind; later ones are only counted.
        first: bool,
    },
}

/// One broker process as the table knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Cluster name.
    pub cluster: Arc<str>,
    /// Broker name.
    pub broker: Arc<str>,
    /// Broker id.
    pub id: i64,
    /// Advertised address.
    pub address: Arc<str>,
}

/// Why a broker was removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemovalCause {
    /// It said so (104).
    Unregistered,
    /// Its connection closed.
    ConnectionClosed,
    /// Its connection broke by time-out and nothing was heard of it since.
    ConnectionTimedOut,
    /// No sign of life within its timeout.
    Expired,
    /// Another address took its id.
    Replaced,
    /// Its address registered under another broker name.
    Moved,
}

impl RemovalCause {
    /// All causes, for counters that are made at start.
    pub const ALL: [Self; 6] = [
        Self::Unregistered,
        Self::ConnectionClosed,
        Self::ConnectionTimedOut,
        Self::Expired,
        Self::Replaced,
        Self::Moved,
    ];

    /// A short fixed name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unregistered => "unregistered",
            Self::ConnectionClosed => "connection_closed",
            Self::ConnectionTimedOut => "connection_timed_out",
            Self::Expired => "expired",
            Self::Replaced => "replaced",
            Self::Moved => "moved",
        }
    }
}

/// What kind of contradiction two registrations are in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConflictKind {
    /// The id is held by an address with a larger state version; the newcomer was ignored.
    OlderStateVersion,
    /// The name is live in another cluster.
    NameInOtherCluster,
    /// Another live address held the id until now.
    AddressChanged,
    /// The address was registered under another cluster or broker name until now.
    AddressMoved,
}

impl ConflictKind {
    /// All kinds, for counters that are made at start.
    pub const ALL: [Self; 4] =
        [Self::OlderStateVersion, Self::NameInOtherCluster, Self::AddressChanged, Self::AddressMoved];

    /// A short fixed name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::OlderStateVersion => "older_state_version",
            Self::NameInOtherCluster => "name_in_other_cluster",
            Self::AddressChanged => "address_changed",
            Self::AddressMoved => "address_moved",
        }
    }
}
