//! The checksum of a registration body.

/// CRC-32 (IEEE) of `body` as it is sent, deflated or not, without its top bit: what the ext field `bodyCrc32`
/// carries (`rocketmq-nameserver` section 1.3). Zero there means that nothing is to be checked.
#[must_use]
pub fn body_crc32(body: &[u8]) -> i32 {
    // The mask leaves 31 bits, which an i32 holds.
    (crc32fast::hash(body) & 0x7FFF_FFFF).cast_signed()
}
