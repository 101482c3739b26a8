//! The settings that change what the table does.

use std::time::Duration;

/// How the table behaves. Every field can be changed while the server runs; the names in
/// parentheses are the configuration keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How long a broker that announced no timeout of its own stays without a heartbeat
    /// (`brokerExpireMillis`; spec 2.12).
    pub broker_expire: Duration,
    /// Time between two scans for expired brokers (`scanNotActiveBrokerInterval`).
    pub scan_interval: Duration,
    /// How long a broker stays after its connection broke by time-out, if nothing is heard of
    /// it on another connection (decision 5).
    pub suspect_grace: Duration,
    /// Show the smallest slave as master of a read-only group (`supportActingMaster`; spec 2.9.5).
    pub support_acting_master: bool,
    /// Attach the order configuration to routes (`orderMessageEnable`; spec 2.9.6).
    pub order_message: bool,
    /// Tell brokers when the smallest id of their group changed (`notifyMinBrokerIdChanged`).
    pub notify_min_broker_change: bool,
    /// Remove topics that a registration does not list (`deleteTopicWithBrokerRegistration`; spec 2.6).
    pub delete_unlisted_topics: bool,
    /// Refuse to bring a broker name into a second cluster (`refuseBrokerNameInOtherCluster`).
    /// Brokers that are registered already stay.
    pub refuse_name_in_other_cluster: bool,
    /// Refuse an id 0 from a new address while the old one is live and not suspected
    /// (`refuseMasterAddressChange`).
    pub refuse_master_address_change: bool,
    /// A wiped write permission survives every registration until it is added again
    /// (`wipeSurvivesRegistration`).
    pub wipe_survives_registration: bool,
    /// Adding write permission restores what the broker announced instead of setting 6
    /// (`addWritePermRestoresAnnounced`).
    pub add_restores_announced: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            broker_expire: Duration::from_millis(120_000),
            scan_interval: Duration::from_millis(5_000),
            suspect_grace: Duration::from_secs(30),
            support_acting_master: false,
            order_message: false,
            notify_min_broker_change: false,
            delete_unlisted_topics: false,
            refuse_name_in_other_cluster: false,
            refuse_master_address_change: false,
            wipe_survives_registration: false,
            add_restores_announced: false,
        }
    }
}

/// How much the table may hold. Reaching a limit refuses the request that would pass it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLimits {
    /// Topics with queues or static mappings.
    pub topics: usize,
    /// Registered broker addresses.
    pub brokers: usize,
    /// Bytes of a topic, broker, cluster or zone name or of an address.
    pub name_length: usize,
}

impl Default for TableLimits {
    fn default() -> Self {
        Self { topics: 2_000_000, brokers: 50_000, name_length: 1_024 }
    }
}
