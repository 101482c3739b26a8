//! Bodies of requests and answers, one file each (`rocketmq-nameserver` sections 2.3, 2.9 and 9).
//!
//! Readers take both dialects and anything that the Java NameServer 5.3.3 takes; writers produce exact bytes.

mod broker_data;
mod cluster_info;
mod data_version;
mod deflate;
mod kv_config;
mod kv_table;
mod member_group;
mod queue_data;
mod register_binary;
mod register_broker;
mod topic_config;
mod topic_list;
mod topic_queue_mapping;
mod topic_route;

use std::borrow::Cow;
use std::collections::BTreeMap;

use thiserror::Error;

pub use self::broker_data::BrokerData;
pub use self::cluster_info::ClusterInfo;
pub use self::data_version::DataVersion;
pub use self::deflate::{deflate, inflate, is_deflated};
pub use self::kv_config::KvConfigTable;
pub use self::kv_table::KvTable;
pub use self::member_group::BrokerMemberGroup;
pub use self::queue_data::QueueData;
pub use self::register_broker::{BodyForm, RegisterBrokerBody};
pub use self::topic_config::TopicConfig;
pub use self::topic_list::TopicList;
pub use self::topic_queue_mapping::TopicQueueMapping;
pub use self::topic_route::TopicRouteData;
pub use crate::properties;

use crate::json::{JsonError, Reader, write_integer, write_string};
use crate::utf8;

/// Limits that bodies are held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Bytes that a deflated body may inflate to. Default: 256 MiB.
    pub inflated_max: usize,
    /// Levels of nested objects and arrays, at most 512. Default: 64; real bodies have six.
    pub json_depth: usize,
    /// Topics of a registration, and as many mappings. What is read takes many times the memory of its bytes, so
    /// their number is limited, too. Default: 2,000,000.
    pub entries_max: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { inflated_max: 256 * 1024 * 1024, json_depth: 64, entries_max: 2_000_000 }
    }
}

/// How maps with integer keys are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// Quoted, as JSON wants it: `{"0":"10.0.0.1:10911"}`.
    Standard,
    /// Bare, as fastjson writes them: `{0:"10.0.0.1:10911"}`.
    Legacy,
}

/// Why bytes are not the body that they should be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The JSON is malformed or has a member of the wrong type.
    #[error("the JSON is invalid {0}")]
    Json(#[from] JsonError),
    /// A key of a map with integer keys is no integer.
    #[error("the key {key:?} of {table} is not an integer")]
    Key {
        /// The member that holds the map.
        table: &'static str,
        /// The key, cut to 64 characters.
        key: String,
    },
    /// An entry of a table is null, which its table cannot hold.
    #[error("an entry of {table} is null")]
    NullEntry {
        /// The member that holds the table.
        table: &'static str,
    },
    /// The body inflates to more than the limit.
    #[error("the body inflates to more than {limit} bytes")]
    InflatedTooLong {
        /// [`BodyLimits::inflated_max`].
        limit: usize,
    },
    /// The body lists more topics or mappings than the limit.
    #[error("the body lists more {section} than the {limit} that are allowed")]
    TooManyEntries {
        /// The section.
        section: &'static str,
        /// [`BodyLimits::entries_max`].
        limit: usize,
    },
    /// The deflated stream is corrupt or ends too early.
    #[error("the deflated stream is damaged or cut off")]
    Deflate,
    /// The inflated layout ends within a section.
    #[error("the inflated body ends within its {section}, at byte {offset}")]
    Truncated {
        /// The section.
        section: &'static str,
        /// Bytes before the field that does not fit.
        offset: usize,
    },
    /// A length or count of the inflated layout is negative.
    #[error("a length in the {section} of the inflated body is negative: {length}, at byte {offset}")]
    NegativeLength {
        /// The section.
        section: &'static str,
        /// The length.
        length: i32,
        /// Bytes before the field.
        offset: usize,
    },
    /// A topic of the inflated layout lacks fields, or has text for a number.
    #[error("a topic of the inflated body is malformed, at byte {offset}")]
    Topic {
        /// Bytes before the topic's text.
        offset: usize,
    },
}

impl BodyError {
    /// A short fixed name, for a counter's label.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Json(_) => "body_json",
            Self::Key { .. } => "body_key",
            Self::NullEntry { .. } => "body_null_entry",
            Self::InflatedTooLong { .. } => "body_inflated_too_long",
            Self::TooManyEntries { .. } => "body_too_many_entries",
            Self::Deflate => "body_deflate",
            Self::Truncated { .. } => "body_truncated",
            Self::NegativeLength { .. } => "body_negative",
            Self::Topic { .. } => "body_topic",
        }
    }
}

/// Reads a whole text with `read`; bytes that are not UTF-8 become U+FFFD, as in the originals.
fn read_whole<T>(
    body: &[u8],
    limits: &BodyLimits,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, BodyError>,
) -> Result<T, BodyError> {
    let text = utf8::text(body);
    let mut reader = Reader::new(&text, limits.json_depth);
    let value = read(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Reads a list of texts; `null` elements are left out.
fn read_texts(reader: &mut Reader<'_>) -> Result<Option<Vec<String>>, JsonError> {
    let mut texts = Vec::new();
    let present = reader.array_or_null(|reader| {
        texts.extend(reader.owned_text()?);
        Ok::<(), JsonError>(())
    })?;
    Ok(present.then_some(texts))
}

/// Reads a map from text to text; entries with `null` are left out.
fn read_text_table(reader: &mut Reader<'_>) -> Result<BTreeMap<String, String>, JsonError> {
    let mut table = BTreeMap::new();
    reader.texts_or_null(|key, value| {
        if let Some(value) = value {
            table.insert(key.into_owned(), value.into_owned());
        }
        Ok::<(), JsonError>(())
    })?;
    Ok(table)
}

/// Reads the map from broker ids to addresses, in either dialect.
fn read_addresses(reader: &mut Reader<'_>) -> Result<BTreeMap<i64, String>, BodyError> {
    let mut table = BTreeMap::new();
    reader.table_or_null(|reader, key| {
        let id = integer_key(&key, "brokerAddrs")?;
        if let Some(address) = reader.owned_text()? {
            table.insert(id, address);
        }
        Ok::<(), BodyError>(())
    })?;
    Ok(table)
}

/// The key of a map with integer keys.
fn integer_key<N: std::str::FromStr>(key: &str, table: &'static str) -> Result<N, BodyError> {
    key.parse().map_err(|_| BodyError::Key { table, key: key.chars().take(64).collect() })
}

/// Writes `,` in front of everything but the first.
fn write_comma(out: &mut Vec<u8>, first: &mut bool) {
    if !std::mem::take(first) {
        out.push(b',');
    }
}

/// Writes the key of a map with integer keys and its colon.
fn write_integer_key(out: &mut Vec<u8>, dialect: Dialect, key: i64) {
    match dialect {
        Dialect::Standard => {
            out.push(b'"');
            write_integer(out, key);
            out.extend_from_slice(b"\":");
        }
        Dialect::Legacy => {
            write_integer(out, key);
            out.push(b':');
        }
    }
}

/// Writes `"brokerAddrs":{…}` with the ids in numeric order.
fn write_addresses(out: &mut Vec<u8>, dialect: Dialect, addresses: &BTreeMap<i64, String>) {
    out.extend_from_slice(b"\"brokerAddrs\":{");
    let mut first = true;
    for (&id, address) in addresses {
        write_comma(out, &mut first);
        write_integer_key(out, dialect, id);
        write_string(out, address);
    }
    out.push(b'}');
}

/// Writes a list of texts.
fn write_texts<'a>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = &'a String>) {
    out.push(b'[');
    let mut first = true;
    for text in texts {
        write_comma(out, &mut first);
        write_string(out, text);
    }
    out.push(b']');
}

fn own<'a>(text: Cow<'_, str>) -> Cow<'a, str> {
    Cow::Owned(text.into_owned())
}
