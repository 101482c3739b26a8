//! Frames: the length, the kind and length of the header, the header, the body (`rocketmq-remoting` section 2).

use thiserror::Error;

/// The largest frame that the originals take, 16 MiB with its length field.
pub const DEFAULT_FRAME_MAX: usize = 16 * 1024 * 1024;

/// Bytes of the field that opens a frame and says how many follow it.
pub const LENGTH_FIELD: usize = 4;

/// Bytes before the header: the length field and the word with kind and length of the header.
const PREFIX: usize = 8;

/// Limits that frames and headers are held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLimits {
    /// Bytes of a whole frame, its four length bytes included. Default: [`DEFAULT_FRAME_MAX`].
    pub frame_max: usize,
    /// Bytes of a header. The originals have no such limit; 1 MiB is far above every real header.
    pub header_max: usize,
    /// Levels of nested objects and arrays in a JSON header; ext values may be objects. Default: 64.
    pub header_depth: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame_max: DEFAULT_FRAME_MAX, header_max: 1024 * 1024, header_depth: 64 }
    }
}

/// How a header is encoded; each frame says it itself, and an answer takes the form of its request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderEncoding {
    /// A JSON object (type byte 0).
    Json,
    /// The binary "ROCKETMQ" layout (type byte 1). Never send it to a peer that did not send it itself.
    Binary,
}

impl HeaderEncoding {
    /// The type byte of a frame.
    #[must_use]
    pub fn type_byte(self) -> u8 {
        match self {
            Self::Json => 0,
            Self::Binary => 1,
        }
    }
}

/// One frame, borrowed from the bytes that it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// How `header` is encoded.
    pub encoding: HeaderEncoding,
    /// The header, for [`Header::decode`](crate::header::Header::decode).
    pub header: &'a [u8],
    /// The body; empty when there is none (the wire cannot tell the two apart).
    pub body: &'a [u8],
}

/// Why bytes are not a frame. The connection cannot be used any more: nobody knows where the next frame begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length is negative.
    #[error("frame length {length} is negative")]
    Negative {
        /// The value of the length field.
        length: i32,
    },
    /// The length is below 4: there is no room for the word that follows it.
    #[error("frame length {length} is too short for its header word")]
    TooShort {
        /// The value of the length field.
        length: i32,
    },
    /// The frame is longer than the limit.
    #[error("frame of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// Bytes of the whole frame, its length field included.
        length: usize,
        /// [`FrameLimits::frame_max`].
        limit: usize,
    },
    /// The type byte is neither 0 nor 1.
    #[error("header type {type_byte} is unknown")]
    UnknownEncoding {
        /// The type byte.
        type_byte: u8,
    },
    /// The header would end behind its frame.
    #[error("header of {header} bytes does not fit its frame with room for {room}")]
    HeaderOverrun {
        /// Bytes that the header claims.
        header: usize,
        /// Bytes that the frame leaves for header and body.
        room: usize,
    },
    /// The header is longer than the limit.
    #[error("header of {header} bytes is over the limit of {limit}")]
    HeaderTooLong {
        /// Bytes that the header claims.
        header: usize,
        /// [`FrameLimits::header_max`].
        limit: usize,
    },
}

impl FrameError {
    /// A short fixed name, for a counter's label.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Negative { .. } => "frame_negative",
            Self::TooShort { .. } => "frame_too_short",
            Self::TooLong { .. } => "frame_too_long",
            Self::UnknownEncoding { .. } => "header_type",
            Self::HeaderOverrun { .. } => "header_overrun",
            Self::HeaderTooLong { .. } => "header_too_long",
        }
    }
}

/// Bytes of the frame that `prefix` begins, its length field included; `None` until four bytes are there.
///
/// # Errors
/// When the length is negative, too short, or over [`FrameLimits::frame_max`]: before any of its bytes are kept.
#[inline]
pub fn frame_length(prefix: &[u8], limits: &FrameLimits) -> Result<Option<usize>, FrameError> {
    let Some(field) = prefix.first_chunk::<LENGTH_FIELD>() else { return Ok(None) };
    let length = i32::from_be_bytes(*field);
    let Ok(following) = usize::try_from(length) else { return Err(FrameError::Negative { length }) };
    if following < LENGTH_FIELD {
        return Err(FrameError::TooShort { length });
    }
    let total = following.saturating_add(LENGTH_FIELD);
    if total > limits.frame_max {
        return Err(FrameError::TooLong { length: total, limit: limits.frame_max });
    }
    Ok(Some(total))
}

/// The frame at the beginning of `input` and how many bytes it takes; `None` while it is not whole.
///
/// A frame that can never become valid is refused as soon as its first eight bytes are there.
///
/// # Errors
/// When the bytes are not a frame within `limits`; see [`FrameError`].
#[inline]
pub fn decode_frame<'a>(
    input: &'a [u8],
    limits: &FrameLimits,
) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
    let Some(total) = frame_length(input, limits)? else { return Ok(None) };
    let Some(prefix) = input.first_chunk::<PREFIX>() else { return Ok(None) };
    let [_, _, _, _, type_byte, high, middle, low] = *prefix;
    let encoding = match type_byte {
        0 => HeaderEncoding::Json,
        1 => HeaderEncoding::Binary,
        _ => return Err(FrameError::UnknownEncoding { type_byte }),
    };
    let header = u32::from_be_bytes([0, high, middle, low]) as usize;
    let room = total.saturating_sub(PREFIX);
    if header > room {
        return Err(FrameError::HeaderOverrun { header, room });
    }
    if header > limits.header_max {
        return Err(FrameError::HeaderTooLong { header, limit: limits.header_max });
    }
    let Some(payload) = input.get(PREFIX..total) else { return Ok(None) };
    let Some((header, body)) = payload.split_at_checked(header) else { return Ok(None) };
    Ok(Some((Frame { encoding, header, body }, total)))
}
