use std::collections::BTreeMap;

use super::{BodyError, BodyLimits, read_text_table, read_whole, write_comma};
use crate::json::{JsonError, members, write_string};

/// One namespace of the key-value configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvTable {
    /// Values by key.
    pub table: BTreeMap<String, String>,
}

members::declare!(Member { Table = "table" });

impl KvTable {
    /// Appends the JSON to `out`, sorted by key.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"table\":{");
        let mut first = true;
        for (key, value) in &self.table {
            write_comma(out, &mut first);
            write_string(out, key);
            out.push(b':');
            write_string(out, value);
        }
        out.extend_from_slice(b"}}");
    }

    /// Decodes the JSON; entries with `null` are left out.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type.
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| {
            let mut kv = Self::default();
            reader.object(|reader, key| {
                match Member::of(&key) {
                    Member::Table => kv.table = read_text_table(reader)?,
                    Member::Unknown => reader.skip()?,
                }
                Ok::<(), JsonError>(())
            })?;
            Ok(kv)
        })
    }
}
