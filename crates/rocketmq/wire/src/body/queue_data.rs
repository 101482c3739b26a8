use super::BodyError;
use crate::json::{Reader, members, write_integer, write_string};

/// The queues that one broker group has of a topic.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueData {
    /// The broker group.
    pub broker_name: String,
    /// Queues to read from.
    pub read_queue_nums: i32,
    /// Queues to write to.
    pub write_queue_nums: i32,
    /// Permission bits: 4 read, 2 write, 1 inherit.
    pub perm: i32,
    /// Bits that say whether the topic is one of units.
    pub topic_sys_flag: i32,
}

members::declare!(Member {
    BrokerName = "brokerName",
    Perm = "perm",
    ReadQueueNums = "readQueueNums",
    TopicSysFlag = "topicSysFlag",
    WriteQueueNums = "writeQueueNums",
});

impl QueueData {
    /// Appends the JSON to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"brokerName\":");
        write_string(out, &self.broker_name);
        out.extend_from_slice(b",\"perm\":");
        write_integer(out, i64::from(self.perm));
        out.extend_from_slice(b",\"readQueueNums\":");
        write_integer(out, i64::from(self.read_queue_nums));
        out.extend_from_slice(b",\"topicSysFlag\":");
        write_integer(out, i64::from(self.topic_sys_flag));
        out.extend_from_slice(b",\"writeQueueNums\":");
        write_integer(out, i64::from(self.write_queue_nums));
        out.push(b'}');
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let mut queues = Self::default();
        reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::BrokerName => queues.broker_name = reader.owned_text()?.unwrap_or_default(),
                Member::Perm => queues.perm = reader.int()?.unwrap_or_default(),
                Member::ReadQueueNums => queues.read_queue_nums = reader.int()?.unwrap_or_default(),
                Member::TopicSysFlag => queues.topic_sys_flag = reader.int()?.unwrap_or_default(),
                Member::WriteQueueNums => queues.write_queue_nums = reader.int()?.unwrap_or_default(),
                Member::Unknown => reader.skip()?,
            }
            Ok::<(), BodyError>(())
        })?;
        Ok(queues)
    }
}
