//! Clusters and brokers.

use std::collections::BTreeMap;

use serde::Serialize;
use waypost_net::address::HostPort;
use waypost_rocketmq_wire::body::ClusterInfo;
use waypost_rocketmq_wire::code::request;

use crate::call::{CallError, Caller, body_limits, request};
use crate::first::{First, NoAnswer, ask_first};
use crate::live_table::LiveTable;
use crate::servers::Servers;

/// All registered brokers, for programs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Brokers {
    /// The server that answered.
    pub server: String,
    /// By cluster, broker name and id.
    pub brokers: Vec<Broker>,
}

/// A registered broker.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Broker {
    /// Cluster of its group.
    pub cluster: String,
    /// Broker name.
    pub broker: String,
    /// Broker id; 0 is the master.
    pub id: i64,
    /// `host:port`.
    pub address: String,
    /// Zone of its group.
    pub zone: Option<String>,
    /// Whether a slave of its group may stand in for a lost master.
    pub acting_master: bool,
    /// What only a Waypost tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// What only the live table of a Waypost tells of a broker. Times are in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Details {
    /// Registered without interruption since, in milliseconds since 1970.
    pub registered_at_ms: u64,
    /// For how long that is.
    pub registered_for_ms: u64,
    /// The last registration or heartbeat, before the answer was made.
    pub last_heartbeat_age_ms: u64,
    /// Removed after this long without a sign of life.
    pub timeout_ms: u64,
    /// Removed in this long unless heard of; only while its connection is broken by time-out.
    pub removed_in_ms: Option<u64>,
    /// The data version that it announced last.
    pub data_version: DataVersion,
    /// Replication address.
    pub ha_address: Option<String>,
    /// The other end of its connection; null while it is gone.
    pub peer: Option<String>,
}

/// What a broker counts up whenever its topics change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DataVersion {
    /// Epoch of the master in controller mode.
    pub state_version: i64,
    /// When it counted up last, in milliseconds since 1970.
    pub timestamp: i64,
    /// How often it counted up.
    pub counter: i64,
}

/// All clusters, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Clusters {
    /// The server that answered.
    pub server: String,
    /// By name.
    pub clusters: Vec<Cluster>,
}

/// A cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cluster {
    /// Its name.
    pub cluster: String,
    /// Its broker names.
    pub brokers: Vec<String>,
    /// Registered addresses of all of them.
    pub addresses: usize,
    /// Broker names without a master (id 0).
    pub without_master: Vec<String>,
}

impl Details {
    pub(crate) fn of(table: &LiveTable, address: &str) -> Option<Self> {
        let live = table.brokers.iter().find(|broker| broker.address == address)?;
        let version = live.data_version;
        let now = live.last_heartbeat_at_ms.saturating_add(live.last_heartbeat_age_ms);
        Some(Self {
            registered_at_ms: live.registered_at_ms,
            registered_for_ms: now.saturating_sub(live.registered_at_ms),
            last_heartbeat_age_ms: live.last_heartbeat_age_ms,
            timeout_ms: live.timeout_ms,
            removed_in_ms: live.removed_in_ms,
            data_version: DataVersion {
                state_version: version.state_version,
                timestamp: version.timestamp,
                counter: version.counter,
            },
            ha_address: live.ha_address.clone(),
            peer: live.peer.clone(),
        })
    }
}

/// Asks one server for its clusters and brokers, as the protocol has them.
///
/// # Errors
///
/// Why there is no answer.
pub async fn cluster_info(caller: &Caller, server: &HostPort) -> Result<ClusterInfo, CallError> {
    let answer = caller.call(server, request(request::GET_BROKER_CLUSTER_INFO, &[])).await?;
    let answer = answer.success(server)?;
    ClusterInfo::decode(&answer.body, &body_limits()).map_err(|fault| CallError::malformed(server, fault))
}

/// Asks for all brokers. A server without any answers an empty list.
///
/// # Errors
///
/// When no server answers.
pub async fn ask(caller: &Caller, servers: &Servers) -> Result<First<Brokers>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let info = cluster_info(caller, &server).await?;
        Ok(Brokers::new(&server, &info))
    })
    .await
}

/// Asks for all clusters.
///
/// # Errors
///
/// When no server answers.
pub async fn ask_clusters(caller: &Caller, servers: &Servers) -> Result<First<Clusters>, NoAnswer> {
    ask_first(servers, caller.limit, |server| async move {
        let info = cluster_info(caller, &server).await?;
        Ok(Clusters::new(&server, &info))
    })
    .await
}

impl Brokers {
    fn new(server: &HostPort, info: &ClusterInfo) -> Self {
        let mut brokers = Vec::new();
        for group in info.broker_addr_table.values() {
            for (id, address) in &group.broker_addrs {
                brokers.push(Broker {
                    cluster: group.cluster.clone(),
                    broker: group.broker_name.clone(),
                    id: *id,
                    address: address.clone(),
                    zone: group.zone_name.clone(),
                    acting_master: group.enable_acting_master,
                    details: None,
                });
            }
        }
        brokers.sort_by(|a, b| (&a.cluster, &a.broker, a.id).cmp(&(&b.cluster, &b.broker, b.id)));
        Self { server: server.to_string(), brokers }
    }

    /// Adds what the live table of the same server tells.
    pub fn enrich(&mut self, table: &LiveTable) {
        for broker in &mut self.brokers {
            broker.details = Details::of(table, &broker.address);
        }
    }
}

impl Clusters {
    fn new(server: &HostPort, info: &ClusterInfo) -> Self {
        let groups: BTreeMap<&str, _> =
            info.broker_addr_table.iter().map(|(name, group)| (name.as_str(), group)).collect();
        let cluster = |(cluster, names): (&String, &std::collections::BTreeSet<String>)| {
            let members =
                |name: &&String| groups.get(name.as_str()).map_or(0, |group| group.broker_addrs.len());
            let lost = |name: &&String| {
                groups.get(name.as_str()).is_none_or(|group| !group.broker_addrs.contains_key(&0))
            };
            Cluster {
                cluster: cluster.clone(),
                brokers: names.iter().cloned().collect(),
                addresses: names.iter().map(|name| members(&name)).sum(),
                without_master: names.iter().filter(lost).cloned().collect(),
            }
        };
        Self { server: server.to_string(), clusters: info.cluster_addr_table.iter().map(cluster).collect() }
    }
}
