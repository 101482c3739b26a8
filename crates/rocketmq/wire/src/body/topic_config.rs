use std::borrow::Cow;

use super::{BodyError, own};
use crate::json::{JsonError, Reader, members, write_integer, write_string};

/// One topic of a registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicConfig<'a> {
    /// The key of the topic table. Only purging looks at it; the identity of a topic is `topic_name`.
    pub key: Cow<'a, str>,
    /// The topic; `None` when the entry lacks it or has `null`.
    pub topic_name: Option<Cow<'a, str>>,
    /// Queues to read from; 16 if absent.
    pub read_queue_nums: i32,
    /// Queues to write to; 16 if absent.
    pub write_queue_nums: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit; 6 if absent.
    pub perm: i32,
    /// Bits that say whether the topic is one of units; 0 if absent, and always 0 in a deflated body.
    pub topic_sys_flag: i32,
    /// Whether the topic is ordered; nobody on the way of a NameServer looks at it.
    pub order: bool,
}

members::declare!(Member {
    TopicName = "topicName",
    ReadQueueNums = "readQueueNums",
    WriteQueueNums = "writeQueueNums",
    Perm = "perm",
    TopicSysFlag = "topicSysFlag",
    Order = "order",
    Attributes = "attributes",
    TopicFilterType = "topicFilterType",
});

impl<'a> TopicConfig<'a> {
    /// A topic that lacks every member.
    #[must_use]
    pub fn empty(key: Cow<'a, str>) -> Self {
        Self {
            key,
            topic_name: None,
            read_queue_nums: 16,
            write_queue_nums: 16,
            perm: 6,
            topic_sys_flag: 0,
            order: false,
        }
    }

    /// The same topic with texts of its own.
    #[must_use]
    pub fn into_owned<'b>(self) -> TopicConfig<'b> {
        TopicConfig { key: own(self.key), topic_name: self.topic_name.map(own), ..self }
    }

    /// Reads the entry that belongs to `key`.
    pub(super) fn read(reader: &mut Reader<'a>, key: Cow<'a, str>) -> Result<Self, BodyError> {
        let mut ahead = reader.clone();
        if let Some(topic) = Self::read_ordinary(&mut ahead, &key) {
            *reader = ahead;
            return Ok(topic);
        }
        let mut topic = Self::empty(key);
        let present = reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::TopicName => topic.topic_name = reader.text()?,
                Member::ReadQueueNums => {
                    topic.read_queue_nums = reader.int()?.unwrap_or(topic.read_queue_nums)
                }
                Member::WriteQueueNums => {
                    topic.write_queue_nums = reader.int()?.unwrap_or(topic.write_queue_nums);
                }
                Member::Perm => topic.perm = reader.int()?.unwrap_or(topic.perm),
                Member::TopicSysFlag => topic.topic_sys_flag = reader.int()?.unwrap_or(topic.topic_sys_flag),
                Member::Order => topic.order = reader.boolean()?.unwrap_or(topic.order),
                Member::Attributes | Member::TopicFilterType | Member::Unknown => reader.skip()?,
            }
            Ok::<(), JsonError>(())
        })?;
        // The originals keep topics in a map that cannot hold null.
        if present { Ok(topic) } else { Err(BodyError::NullEntry { table: "topicConfigTable" }) }
    }

    /// Reads what brokers of 4.x and 5.x write, member by member in their order: tables of 50 thousand topics are
    /// usual. On anything else, including anything wrong, it gives up.
    #[inline]
    fn read_ordinary(reader: &mut Reader<'a>, key: &Cow<'a, str>) -> Option<Self> {
        let Cow::Borrowed(key) = *key else { return None };
        if !reader.has_depth(2) {
            return None;
        }
        if !reader.literal("{\"attributes\":{},") {
            if !reader.literal("{") {
                return None;
            }
            if reader.literal("\"attributes\":") {
                reader.skip().ok()?;
                reader.literal(",").then_some(())?;
            }
        }
        let order = reader.literal("\"order\":true,");
        if !order && !reader.literal("\"order\":false,") {
            return None;
        }
        let perm = Self::number_behind(reader, "\"perm\":")?;
        let read_queue_nums = Self::number_behind(reader, ",\"readQueueNums\":")?;
        if !reader.literal(",\"topicFilterType\":\"SINGLE_TAG\",\"topicName\":") {
            return None;
        }
        let topic_name = reader.plain_text()?;
        let topic_sys_flag = Self::number_behind(reader, ",\"topicSysFlag\":")?;
        let write_queue_nums = Self::number_behind(reader, ",\"writeQueueNums\":")?;
        reader.literal("}").then_some(Self {
            key: Cow::Borrowed(key),
            topic_name: Some(Cow::Borrowed(topic_name)),
            read_queue_nums,
            write_queue_nums,
            perm,
            topic_sys_flag,
            order,
        })
    }

    #[inline]
    fn number_behind(reader: &mut Reader<'a>, literal: &str) -> Option<i32> {
        if !reader.literal(literal) {
            return None;
        }
        reader.plain_number()?.try_into().ok()
    }

    /// Writes the entry as a 5.x broker does, with empty attributes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_string(out, &self.key);
        out.extend_from_slice(b":{\"attributes\":{},\"order\":");
        out.extend_from_slice(if self.order { b"true" } else { b"false" });
        out.extend_from_slice(b",\"perm\":");
        write_integer(out, i64::from(self.perm));
        out.extend_from_slice(b",\"readQueueNums\":");
        write_integer(out, i64::from(self.read_queue_nums));
        out.extend_from_slice(b",\"topicFilterType\":\"SINGLE_TAG\"");
        if let Some(name) = &self.topic_name {
            out.extend_from_slice(b",\"topicName\":");
            write_string(out, name);
        }
        out.extend_from_slice(b",\"topicSysFlag\":");
        write_integer(out, i64::from(self.topic_sys_flag));
        out.extend_from_slice(b",\"writeQueueNums\":");
        write_integer(out, i64::from(self.write_queue_nums));
        out.push(b'}');
    }
}
