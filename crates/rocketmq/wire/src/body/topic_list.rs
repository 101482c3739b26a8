use super::{BodyError, BodyLimits, read_texts, read_whole, write_texts};
use crate::json::{JsonError, members, write_string};

/// A list of topic names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TopicList {
    /// The address of any broker, in the list of system topics only.
    pub broker_addr: Option<String>,
    /// The topics.
    pub topic_list: Vec<String>,
}

members::declare!(Member { BrokerAddr = "brokerAddr", TopicList = "topicList" });

impl TopicList {
    /// Appends the JSON to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        if let Some(address) = &self.broker_addr {
            out.extend_from_slice(b"\"brokerAddr\":");
            write_string(out, address);
            out.push(b',');
        }
        out.extend_from_slice(b"\"topicList\":");
        write_texts(out, &self.topic_list);
        out.push(b'}');
    }

    /// Decodes the JSON; an absent list is empty.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type.
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| {
            let mut list = Self::default();
            reader.object(|reader, key| {
                match Member::of(&key) {
                    Member::BrokerAddr => list.broker_addr = reader.owned_text()?,
                    Member::TopicList => list.topic_list = read_texts(reader)?.unwrap_or_default(),
                    Member::Unknown => reader.skip()?,
                }
                Ok::<(), JsonError>(())
            })?;
            Ok(list)
        })
    }
}
