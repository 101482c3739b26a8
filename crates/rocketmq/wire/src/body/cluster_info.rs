use std::collections::{BTreeMap, BTreeSet};

use super::{BodyError, BodyLimits, BrokerData, Dialect, read_texts, read_whole, write_comma, write_texts};
use crate::json::{JsonError, members, write_string};

/// All clusters and broker groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterInfo {
    /// Broker groups by name.
    pub broker_addr_table: BTreeMap<String, BrokerData>,
    /// Names of broker groups by cluster.
    pub cluster_addr_table: BTreeMap<String, BTreeSet<String>>,
}

members::declare!(Member { BrokerAddrTable = "brokerAddrTable", ClusterAddrTable = "clusterAddrTable" });

impl ClusterInfo {
    /// Appends the JSON to `out`, maps sorted by key. The originals always write it in the legacy dialect.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"brokerAddrTable\":{");
        let mut first = true;
        for (name, broker) in &self.broker_addr_table {
            write_comma(out, &mut first);
            write_string(out, name);
            out.push(b':');
            broker.encode(dialect, out);
        }
        out.extend_from_slice(b"},\"clusterAddrTable\":{");
        first = true;
        for (cluster, names) in &self.cluster_addr_table {
            write_comma(out, &mut first);
            write_string(out, cluster);
            out.push(b':');
            write_texts(out, names);
        }
        out.extend_from_slice(b"}}");
    }

    /// Decodes the JSON of either dialect; absent members are empty.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type.
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| {
            let mut info = Self::default();
            reader.object(|reader, key| {
                match Member::of(&key) {
                    Member::BrokerAddrTable => {
                        reader.table_or_null(|reader, name| {
                            if !reader.null() {
                                info.broker_addr_table.insert(name.into_owned(), BrokerData::read(reader)?);
                            }
                            Ok::<(), BodyError>(())
                        })?;
                    }
                    Member::ClusterAddrTable => {
                        reader.table_or_null(|reader, cluster| {
                            let names = read_texts(reader)?.unwrap_or_default();
                            info.cluster_addr_table.insert(cluster.into_owned(), names.into_iter().collect());
                            Ok::<(), JsonError>(())
                        })?;
                    }
                    Member::Unknown => reader.skip()?,
                }
                Ok::<(), BodyError>(())
            })?;
            Ok(info)
        })
    }
}
