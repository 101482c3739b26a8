use std::collections::BTreeMap;

use super::{BodyError, Dialect, read_addresses, write_addresses};
use crate::json::{Reader, members, write_string};

/// A broker group: a master (id 0) and its slaves.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BrokerData {
    /// The cluster that the group is in.
    pub cluster: String,
    /// The group's name.
    pub broker_name: String,
    /// Addresses (`host:port`) by broker id.
    pub broker_addrs: BTreeMap<i64, String>,
    /// The group's zone, if its brokers said one.
    pub zone_name: Option<String>,
    /// Whether the slave with the least id may stand in for a lost master.
    pub enable_acting_master: bool,
}

members::declare!(Member {
    BrokerAddrs = "brokerAddrs",
    BrokerName = "brokerName",
    Cluster = "cluster",
    EnableActingMaster = "enableActingMaster",
    ZoneName = "zoneName",
});

impl BrokerData {
    /// Appends the JSON to `out`; the zone is left out if there is none.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        out.push(b'{');
        write_addresses(out, dialect, &self.broker_addrs);
        out.extend_from_slice(b",\"brokerName\":");
        write_string(out, &self.broker_name);
        out.extend_from_slice(b",\"cluster\":");
        write_string(out, &self.cluster);
        out.extend_from_slice(b",\"enableActingMaster\":");
        out.extend_from_slice(if self.enable_acting_master { b"true" } else { b"false" });
        if let Some(zone) = &self.zone_name {
            out.extend_from_slice(b",\"zoneName\":");
            write_string(out, zone);
        }
        out.push(b'}');
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let mut broker = Self::default();
        reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::BrokerAddrs => broker.broker_addrs = read_addresses(reader)?,
                Member::BrokerName => broker.broker_name = reader.owned_text()?.unwrap_or_default(),
                Member::Cluster => broker.cluster = reader.owned_text()?.unwrap_or_default(),
                Member::EnableActingMaster => {
                    broker.enable_acting_master = reader.boolean()?.unwrap_or_default();
                }
                Member::ZoneName => broker.zone_name = reader.owned_text()?,
                Member::Unknown => reader.skip()?,
            }
            Ok::<(), BodyError>(())
        })?;
        Ok(broker)
    }
}
