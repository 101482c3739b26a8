use super::{BodyError, BodyLimits, read_whole};
use crate::json::{JsonError, Reader, members, write_integer};

/// What a broker counts up whenever its topics change; two that are equal in all three members stand for the
/// same topics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DataVersion {
    /// The epoch of the master in controller mode, else 0. Brokers of 4.x do not have it.
    pub state_version: i64,
    /// When the broker counted up last, in milliseconds since 1970.
    pub timestamp: i64,
    /// How often the broker counted up.
    pub counter: i64,
}

members::declare!(Member { Counter = "counter", StateVersion = "stateVersion", Timestamp = "timestamp" });

impl DataVersion {
    /// Decodes a body with nothing but a data version; absent members are 0, `null` is all 0.
    ///
    /// # Errors
    /// When the JSON is malformed or has a member of the wrong type.
    pub fn decode(body: &[u8], limits: &BodyLimits) -> Result<Self, BodyError> {
        read_whole(body, limits, |reader| Ok(Self::read(reader)?))
    }

    /// Decodes what a broker asks to have compared (322): `None` if it equals no version, because the body is
    /// `null`, has no timestamp (for which the originals take the time of decoding) or a counter that is null.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_comparable(body: &[u8], limits: &BodyLimits) -> Result<Option<Self>, BodyError> {
        read_whole(body, limits, |reader| {
            let (version, is_comparable) = Self::read_members(reader)?;
            Ok(is_comparable.then_some(version))
        })
    }

    /// Appends the JSON to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"counter\":");
        write_integer(out, self.counter);
        out.extend_from_slice(b",\"stateVersion\":");
        write_integer(out, self.state_version);
        out.extend_from_slice(b",\"timestamp\":");
        write_integer(out, self.timestamp);
        out.push(b'}');
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, JsonError> {
        Ok(Self::read_members(reader)?.0)
    }

    /// Reads a version, and whether it has what a comparison needs ([`decode_comparable`](Self::decode_comparable)).
    fn read_members(reader: &mut Reader<'_>) -> Result<(Self, bool), JsonError> {
        let mut version = Self::default();
        let (mut has_timestamp, mut has_counter) = (false, true);
        reader.object_or_null(|reader, key| {
            match Member::of(&key) {
                Member::Counter => {
                    let counter = reader.long()?;
                    has_counter = counter.is_some();
                    version.counter = counter.unwrap_or_default();
                }
                Member::StateVersion => version.state_version = reader.long()?.unwrap_or_default(),
                Member::Timestamp => {
                    version.timestamp = reader.long()?.unwrap_or_default();
                    has_timestamp = true;
                }
                Member::Unknown => reader.skip()?,
            }
            Ok::<(), JsonError>(())
        })?;
        Ok((version, has_timestamp && has_counter))
    }
}
