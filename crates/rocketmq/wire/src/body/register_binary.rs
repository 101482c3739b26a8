//! The layout of a registration that is deflated (`rocketmq-nameserver` section 2.3): counted texts.

use std::borrow::Cow;

use super::{
    BodyError, BodyLimits, DataVersion, Dialect, RegisterBrokerBody, TopicConfig, TopicQueueMapping,
    read_texts, read_whole, write_texts,
};
use crate::utf8;

/// Bytes of the shortest topic: its length and `t 1 1 6 SINGLE_TAG`.
const TOPIC_LEAST: usize = 22;

/// Decodes the layout. Bytes behind it are ignored, as Java's reader stops there: a body of a newer broker under
/// an older version number has its mappings left unread.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    mappings: bool,
    limits: &BodyLimits,
) -> Result<RegisterBrokerBody<'a>, BodyError> {
    let mut cursor = Cursor { rest: bytes, total: bytes.len(), entries_max: limits.entries_max };
    let version = cursor.text("data version")?;
    let data_version =
        if version.is_empty() { DataVersion::default() } else { DataVersion::decode(version, limits)? };
    let count = cursor.entries("topics")?;
    // The count comes from a peer: no more is reserved than the bytes at hand can back.
    let mut topics = Vec::with_capacity(count.min(cursor.rest.len() / TOPIC_LEAST));
    for _ in 0..count {
        let text = cursor.text("topics")?;
        topics.push(read_topic(text).ok_or_else(|| BodyError::Topic { offset: cursor.offset(text.len()) })?);
    }
    let list = cursor.text("filter servers")?;
    // The originals log a list that they cannot read and go on without.
    let filter_servers = read_whole(list, limits, |reader| Ok(read_texts(reader)?)).ok().flatten();
    let mut body = RegisterBrokerBody {
        data_version,
        topics,
        mappings: Vec::new(),
        filter_servers: Some(filter_servers.unwrap_or_default()),
    };
    if mappings {
        let count = cursor.entries("mappings")?;
        for _ in 0..count {
            let mapping = read_whole(cursor.text("mappings")?, limits, TopicQueueMapping::read)?;
            let topic = mapping.topic.clone().unwrap_or_default();
            body.mappings.push((Cow::Owned(topic), mapping));
        }
    }
    Ok(body)
}

/// Writes the layout.
pub(super) fn encode(body: &RegisterBrokerBody<'_>, mappings: bool, out: &mut Vec<u8>) {
    counted(out, |out| body.data_version.encode(out));
    out.extend_from_slice(&count_bytes(body.topics.len()));
    for topic in &body.topics {
        counted(out, |out| {
            out.extend_from_slice(topic.topic_name.as_deref().unwrap_or_default().as_bytes());
            for number in [topic.read_queue_nums, topic.write_queue_nums, topic.perm] {
                out.push(b' ');
                crate::json::write_integer(out, i64::from(number));
            }
            out.extend_from_slice(b" SINGLE_TAG {}");
        });
    }
    counted(out, |out| write_texts(out, body.filter_servers.iter().flatten()));
    if mappings {
        out.extend_from_slice(&count_bytes(body.mappings.len()));
        for (_, mapping) in &body.mappings {
            counted(out, |out| mapping.encode(Dialect::Legacy, out));
        }
    }
}

/// A topic's text: name, queues to read, queues to write, permission, filter type, attributes.
fn read_topic(bytes: &[u8]) -> Option<TopicConfig<'_>> {
    let mut fields = bytes.split(|&byte| byte == b' ');
    let name = utf8::text(fields.next()?);
    let mut number = || -> Option<i32> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
    let (read_queue_nums, write_queue_nums, perm) = (number()?, number()?, number()?);
    // The filter type has to be there but means nothing here; attributes are ignored.
    fields.next().filter(|kind| !kind.is_empty())?;
    Some(TopicConfig {
        key: name.clone(),
        topic_name: Some(name),
        read_queue_nums,
        write_queue_nums,
        perm,
        topic_sys_flag: 0,
        order: false,
    })
}

/// Writes what `write` writes behind its length.
fn counted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    write(out);
    let length = count_bytes(out.len().saturating_sub(start));
    if let Some(field) = out.get_mut(at..start) {
        field.copy_from_slice(&length);
    }
}

/// A count as the layout has it.
fn count_bytes(count: usize) -> [u8; 4] {
    i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes()
}

struct Cursor<'a> {
    rest: &'a [u8],
    total: usize,
    entries_max: usize,
}

impl<'a> Cursor<'a> {
    /// Bytes before the reader's place, and `back` less.
    fn offset(&self, back: usize) -> usize {
        self.total.saturating_sub(self.rest.len()).saturating_sub(back)
    }

    fn count(&mut self, section: &'static str) -> Result<usize, BodyError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<4>() else {
            return Err(BodyError::Truncated { section, offset: self.offset(0) });
        };
        let length = i32::from_be_bytes(*bytes);
        let offset = self.offset(0);
        self.rest = rest;
        usize::try_from(length).map_err(|_| BodyError::NegativeLength { section, length, offset })
    }

    /// The number of entries of a section. Refused before they are read: a body of a few hundred kilobytes can
    /// list so many that reading them takes gigabytes.
    fn entries(&mut self, section: &'static str) -> Result<usize, BodyError> {
        let (count, limit) = (self.count(section)?, self.entries_max);
        if count > limit { Err(BodyError::TooManyEntries { section, limit }) } else { Ok(count) }
    }

    fn text(&mut self, section: &'static str) -> Result<&'a [u8], BodyError> {
        let length = self.count(section)?;
        let Some((text, rest)) = self.rest.split_at_checked(length) else {
            return Err(BodyError::Truncated { section, offset: self.offset(0) });
        };
        self.rest = rest;
        Ok(text)
    }
}
