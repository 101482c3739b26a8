use std::collections::BTreeMap;

use super::{BodyError, BodyLimits, Dialect, read_addresses, read_whole, write_addresses};
use crate::json::{Reader, members, write_string};

/// The addresses of one broker group, inside a member `brokerMemberGroup`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerMemberGroup {
    /// The cluster that was asked for; an empty one is left out, as the originals leave out a missing one.
    pub cluster: String,
    /// The broker group; likewise.
    pub broker_name: String,
    /// Addresses by broker id; empty for an unknown group.
    pub broker_addrs: BTreeMap<i64, String>,
}

members::declare!(Outer { BrokerMemberGroup = "brokerMemberGroup" });
members::declare!(Member { BrokerAddrs = "brokerAddrs", BrokerName = "brokerName", Cluster = "cluster" });

impl BrokerMemberGroup {
    /// Appends the JSON to `out`. The originals always write it in the legacy dialect.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"brokerMemberGroup\":{");
        write_addresses(out, dialect, &self.broker_addrs);
        for (member, name) in
            [(&b",\"brokerName\":"[..], &self.broker_name), (b",\"cluster\":", &self.cluster)]
        {
            if !name.is_empty() {
                out.extend_from_slice(member);
                write_string(out, name);
            }
        }
        out.extend_from_slice(b"}}");
    }

    /// Decodes the JSON of either dialect; absent members are empty.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type.
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| {
            let mut group = Self::default();
            reader.object(|reader, key| match Outer::of(&key) {
                Outer::BrokerMemberGroup => group.read(reader),
                Outer::Unknown => Ok(reader.skip()?),
            })?;
            Ok(group)
        })
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), BodyError> {
        reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::BrokerAddrs => self.broker_addrs = read_addresses(reader)?,
                Member::BrokerName => self.broker_name = reader.owned_text()?.unwrap_or_default(),
                Member::Cluster => self.cluster = reader.owned_text()?.unwrap_or_default(),
                Member::Unknown => reader.skip()?,
            }
            Ok::<(), BodyError>(())
        })?;
        Ok(())
    }
}
