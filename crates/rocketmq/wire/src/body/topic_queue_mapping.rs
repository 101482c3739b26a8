use std::collections::BTreeMap;

use super::{BodyError, Dialect, integer_key, write_comma, write_integer_key};
use crate::json::{Reader, members, write_integer, write_string};

/// The scope of a mapping that does not say one.
const DEFAULT_SCOPE: &str = "__global__";

/// Which logical queues of a static topic a broker hosts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TopicQueueMapping {
    /// The broker group that the mapping belongs to.
    pub bname: Option<String>,
    /// The static topic.
    pub topic: Option<String>,
    /// Groups mappings; `__global__` if the member is absent, `None` if it is null.
    pub scope: Option<String>,
    /// How many logical queues the topic has over all brokers.
    pub total_queues: i32,
    /// The newest epoch wins; clients compare, a NameServer does not.
    pub epoch: i64,
    /// Kept for peers; nobody looks at it.
    pub dirty: bool,
    /// Logical queue to physical queue.
    pub curr_id_map: BTreeMap<i32, i32>,
}

members::declare!(Member {
    Bname = "bname",
    CurrIdMap = "currIdMap",
    Dirty = "dirty",
    Epoch = "epoch",
    Scope = "scope",
    Topic = "topic",
    TotalQueues = "totalQueues",
});

impl TopicQueueMapping {
    /// Appends the JSON to `out`; absent names are left out.
    pub fn encode(&self, dialect: Dialect, out: &mut Vec<u8>) {
        out.push(b'{');
        if let Some(name) = &self.bname {
            out.extend_from_slice(b"\"bname\":");
            write_string(out, name);
            out.push(b',');
        }
        out.extend_from_slice(b"\"currIdMap\":{");
        let mut first = true;
        for (&logical, &physical) in &self.curr_id_map {
            write_comma(out, &mut first);
            write_integer_key(out, dialect, i64::from(logical));
            write_integer(out, i64::from(physical));
        }
        out.extend_from_slice(b"},\"dirty\":");
        out.extend_from_slice(if self.dirty { b"true" } else { b"false" });
        out.extend_from_slice(b",\"epoch\":");
        write_integer(out, self.epoch);
        for (member, text) in [("scope", &self.scope), ("topic", &self.topic)] {
            if let Some(text) = text {
                out.push(b',');
                write_string(out, member);
                out.push(b':');
                write_string(out, text);
            }
        }
        out.extend_from_slice(b",\"totalQueues\":");
        write_integer(out, i64::from(self.total_queues));
        out.push(b'}');
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let mut mapping = Self { scope: Some(String::from(DEFAULT_SCOPE)), ..Self::default() };
        reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::Bname => mapping.bname = reader.owned_text()?,
                Member::CurrIdMap => mapping.curr_id_map = read_ids(reader)?,
                Member::Dirty => mapping.dirty = reader.boolean()?.unwrap_or_default(),
                Member::Epoch => mapping.epoch = reader.long()?.unwrap_or_default(),
                Member::Scope => mapping.scope = reader.owned_text()?,
                Member::Topic => mapping.topic = reader.owned_text()?,
                Member::TotalQueues => mapping.total_queues = reader.int()?.unwrap_or_default(),
                Member::Unknown => reader.skip()?,
            }
            Ok::<(), BodyError>(())
        })?;
        Ok(mapping)
    }
}

fn read_ids(reader: &mut Reader<'_>) -> Result<BTreeMap<i32, i32>, BodyError> {
    let mut ids = BTreeMap::new();
    reader.table_or_null(|reader, key| {
        let logical = integer_key(&key, "currIdMap")?;
        if let Some(physical) = reader.int()? {
            ids.insert(logical, physical);
        }
        Ok::<(), BodyError>(())
    })?;
    Ok(ids)
}
