use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{BodyError, BodyLimits, write_comma};
use crate::json::{JsonError, JsonErrorKind, Reader, members, write_string};

/// The whole key-value configuration: the content of the file `kvConfig.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvConfigTable {
    /// Values by key by namespace. A value can be absent: the originals store a put without value so, in memory.
    pub table: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

members::declare!(Member { ConfigTable = "configTable" });

impl KvConfigTable {
    /// Appends the JSON to `out`, sorted by namespace and key. Absent values are left out, as in the originals.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"configTable\":{");
        let mut first = true;
        for (namespace, entries) in &self.table {
            write_comma(out, &mut first);
            write_string(out, namespace);
            out.extend_from_slice(b":{");
            let mut first = true;
            for (key, value) in entries {
                if let Some(value) = value {
                    write_comma(out, &mut first);
                    write_string(out, key);
                    out.push(b':');
                    write_string(out, value);
                }
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
    }

    /// Decodes the content of the file.
    ///
    /// # Errors
    /// When it is malformed, is not UTF-8 or lacks `configTable`; the error says at which byte. The file is the
    /// server's own: unlike a peer's body it is not read with replacement characters.
    pub fn decode(content: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        let text = std::str::from_utf8(content).map_err(|error| JsonError {
            kind: JsonErrorKind::Unexpected { expected: "UTF-8" },
            offset: error.valid_up_to(),
        })?;
        let mut reader = Reader::new(text, limits.json_depth);
        let mut config = Self::default();
        let mut found = false;
        reader.object(|reader, key| match Member::of(&key) {
            Member::ConfigTable => {
                found = true;
                config.read_namespaces(reader)
            }
            Member::Unknown => reader.skip(),
        })?;
        if !found {
            return Err(reader.error(JsonErrorKind::Unexpected { expected: "a member configTable" }).into());
        }
        reader.finish()?;
        Ok(config)
    }

    fn read_namespaces(&mut self, reader: &mut Reader<'_>) -> Result<(), JsonError> {
        reader.object(|reader, namespace| {
            let entries = self.table.entry(namespace.into_owned()).or_default();
            reader.texts_or_null(|key, value| {
                entries.insert(key.into_owned(), value.map(Cow::into_owned));
                Ok::<(), JsonError>(())
            })?;
            Ok(())
        })
    }
}
