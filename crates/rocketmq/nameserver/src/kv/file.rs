//! The original's file form: `{"configTable":{"namespace":{"key":"value"}}}`.

use waypost_rocketmq_wire::json::{JsonError, Reader, write_string};

use super::load::DroppedEntry;
use super::snapshot::KvSnapshot;
use crate::text;

/// The form has three levels; unknown members may nest somewhat deeper.
const DEPTH: usize = 16;

/// What is wrong with the content of a KV file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("damaged at byte {offset}: {reason}")]
pub struct KvDamage {
    /// Bytes before the damage.
    pub offset: usize,
    /// What is wrong there.
    pub reason: String,
}

impl From<JsonError> for KvDamage {
    fn from(error: JsonError) -> Self {
        Self { offset: error.offset, reason: error.kind.to_string() }
    }
}

impl KvSnapshot {
    /// Reads a file's content, UTF-8 or else Latin-1. Entries that no request could have made (A16: the original keeps a null
    /// key and then fails on it) are dropped and reported.
    ///
    /// # Errors
    ///
    /// Anything that is no whole object with an object `configTable`.
    pub fn from_file_content(content: &[u8]) -> Result<(Self, Vec<DroppedEntry>), KvDamage> {
        let decoded =
            text::decode(content).map_err(|utf16| KvDamage { offset: 0, reason: utf16.to_string() })?;
        Self::from_file_text(&decoded.text)
            .map_err(|damage| KvDamage { offset: decoded.source_offset(damage.offset), ..damage })
    }

    fn from_file_text(text: &str) -> Result<(Self, Vec<DroppedEntry>), KvDamage> {
        let mut reader = Reader::new(text, DEPTH);
        let mut table = Self::default();
        let mut dropped = Vec::new();
        let mut found = false;
        reader.object(|reader, member| {
            if member != "configTable" {
                return reader.skip().map_err(KvDamage::from);
            }
            found = reader.object_or_null(|reader, namespace| {
                let namespace_is_bad = is_bad_name(text, reader, &namespace);
                if !namespace_is_bad {
                    table.create_namespace(&namespace);
                }
                reader
                    .object_or_null(|reader, key| {
                        let key_is_bad = is_bad_name(text, reader, &key);
                        let value = reader.text()?;
                        let reason = match &value {
                            _ if namespace_is_bad => Some("its namespace is null or empty"),
                            _ if key_is_bad => Some("its key is null or empty"),
                            None => Some("its value is null"),
                            Some(_) => None,
                        };
                        match (reason, value) {
                            (None, Some(value)) => table.insert(&namespace, &key, Some(&value)),
                            (reason, _) => dropped.push(DroppedEntry {
                                namespace: namespace.to_string(),
                                key: key.to_string(),
                                reason: reason.unwrap_or_default(),
                            }),
                        }
                        Ok::<(), KvDamage>(())
                    })
                    .map(drop)
            })?;
            Ok(())
        })?;
        reader.finish()?;
        if !found {
            return Err(KvDamage { offset: 0, reason: "there is no object \"configTable\"".to_owned() });
        }
        Ok((table, dropped))
    }

    /// The content for a self. Null values are left out, as by the original.
    #[must_use]
    pub fn to_file_content(&self) -> Vec<u8> {
        let mut out = br#"{"configTable":{"#.to_vec();
        for (number, namespace) in self.namespaces().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_string(&mut out, namespace);
            out.extend_from_slice(b":{");
            for (number, (key, value)) in self.list(namespace).into_iter().flatten().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                write_string(&mut out, key);
                out.push(b':');
                write_string(&mut out, value);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
        out
    }
}

/// Whether a key that was just read is empty, or the bare word `null` that the original's writer
/// puts for a null key.
fn is_bad_name(text: &str, reader: &Reader<'_>, name: &str) -> bool {
    if name.is_empty() {
        return true;
    }
    let before = text.get(..reader.offset()).unwrap_or_default();
    let before = before.trim_end_matches(|c: char| c == ':' || c.is_whitespace());
    name == "null" && !before.ends_with(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parsed(text: &str) -> KvSnapshot {
        let (table, dropped) = KvSnapshot::from_file_content(text.as_bytes()).unwrap();
        assert_eq!(dropped, []);
        table
    }

    #[test]
    fn the_originals_file_is_read_and_written_byte_for_byte() {
        let text = r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:8;broker-b:8"},"ns2":{"k":"v"},"ns3":{}}}"#;
        let table = parsed(text);
        assert_eq!(table.get("ORDER_TOPIC_CONFIG", "TopicA"), Some("broker-a:8;broker-b:8"));
        assert_eq!(table.list("ns3").map(Iterator::count), Some(0));
        assert_eq!(String::from_utf8(table.to_file_content()).unwrap(), text);
    }

    #[test]
    fn any_text_survives_writing_and_reading() {
        let mut table = KvSnapshot::default();
        for odd in ["\"quoted\"", "back\\slash", "tab\tline\nnull\0", "Größe/目录", "null", " "] {
            table.insert(odd, odd, Some(odd));
            table.insert("ns", odd, Some(""));
        }
        let (again, dropped) = KvSnapshot::from_file_content(&table.to_file_content()).unwrap();
        assert_eq!(again, table);
        assert_eq!(dropped, []);
    }

    #[test]
    fn entries_with_a_null_key_or_value_are_dropped_and_reported() {
        let text =
            r#"{"configTable":{"ns":{null:"a","":"b","null":"c","gone":null,"k":"v"},null:{"x":"y"}}}"#;
        let (table, dropped) = KvSnapshot::from_file_content(text.as_bytes()).unwrap();
        assert_eq!(table.list("ns").unwrap().collect::<Vec<_>>(), [("k", "v"), ("null", "c")]);
        assert_eq!(table.namespaces().collect::<Vec<_>>(), ["ns"]);
        let reasons: Vec<_> = dropped.iter().map(|entry| (entry.key.as_str(), entry.reason)).collect();
        assert_eq!(
            reasons,
            [
                ("null", "its key is null or empty"),
                ("", "its key is null or empty"),
                ("gone", "its value is null"),
                ("x", "its namespace is null or empty"),
            ]
        );
    }

    #[test]
    fn values_that_are_no_text_become_text() {
        assert_eq!(parsed(r#"{"configTable":{"ns":{"n":8,"b":true}}}"#).get("ns", "n"), Some("8"));
    }

    #[test]
    fn every_cut_of_a_file_is_damage() {
        let text = r#"{"configTable":{"ns":{"key":"välue","other":"v"}}}"#.as_bytes();
        for end in 1..text.len() {
            let damage = KvSnapshot::from_file_content(&text[..end]).unwrap_err();
            assert!(damage.offset <= end, "{damage:?}");
        }
    }

    #[test]
    fn damage_is_located() {
        let offset = |text: &[u8]| KvSnapshot::from_file_content(text).map(|_| ()).unwrap_err().offset;
        assert_eq!(offset(br#"{"configTable":{"ns":{"k":"v"}}} x"#), 33);
        assert_eq!(offset(br#"{"configTable":{"ns":{"k" "v"}}}"#), 26);
        assert_eq!(offset(b"{\"configTable\":{\"\xff"), 18);
        assert_eq!(offset(b"{}"), 0);
        assert_eq!(offset(b"{\"configTable\":null}"), 0);
        assert_eq!(offset(b"[]"), 0);
    }
}
