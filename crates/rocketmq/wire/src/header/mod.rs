//! Headers: what every request and answer begins with (`rocketmq-remoting` sections 3 to 5).

mod binary;
mod ext;
mod json;

use std::borrow::Cow;

use thiserror::Error;

pub use ext::ExtFields;

pub use crate::language::Language;

use crate::frame::{Frame, FrameLimits, HeaderEncoding};
use crate::json::JsonError;

/// Set in [`Header::flag`] of an answer.
pub const FLAG_RESPONSE: i32 = 1;
/// Set in [`Header::flag`] of a request that wants no answer.
pub const FLAG_ONEWAY: i32 = 2;

/// A decoded header; its texts are borrowed from the frame unless escapes forced a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header<'a> {
    /// The code of the request, or of the answer.
    pub code: i32,
    /// What the sender is written in.
    pub language: Language,
    /// The ordinal of the sender's version; peers send anything, also negative numbers.
    pub version: i32,
    /// Pairs an answer with its request; an answer carries it back bit by bit. A JSON header without it counts
    /// as 0 here (the originals make a number up).
    pub opaque: i32,
    /// [`FLAG_RESPONSE`] and [`FLAG_ONEWAY`]; other bits have no meaning.
    pub flag: i32,
    /// Text for people. Some clients send an empty one.
    pub remark: Option<Cow<'a, str>>,
    /// The named fields of this code.
    pub ext: ExtFields<'a>,
}

/// Why bytes are not a header. The originals close the connection without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The JSON is malformed, is no object, or has a member of the wrong type.
    #[error("the JSON header is invalid {0}")]
    Json(#[from] JsonError),
    /// The binary header ends within a field.
    #[error("the binary header ends within its {field}")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// The length of a field is negative.
    #[error("the length {length} of the binary header's {field} is negative")]
    NegativeLength {
        /// The field.
        field: &'static str,
        /// Its length.
        length: i32,
    },
    /// Bytes follow the ext fields. The originals read them as the beginning of the body.
    #[error("{count} bytes follow the binary header's ext fields")]
    Trailing {
        /// How many.
        count: usize,
    },
}

impl HeaderError {
    /// A short fixed name, for a counter's label.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Json(_) => "header_json",
            Self::Truncated { .. } => "header_truncated",
            Self::NegativeLength { .. } => "header_negative",
            Self::Trailing { .. } => "header_trailing",
        }
    }
}

/// The header of `frame` with another opaque; `None` if it is malformed.
pub(crate) fn with_opaque(frame: &Frame<'_>, opaque: i32, limits: &FrameLimits) -> Option<Vec<u8>> {
    match frame.encoding {
        HeaderEncoding::Json => json::with_opaque(frame.header, limits.header_depth, opaque).ok(),
        HeaderEncoding::Binary => binary::with_opaque(frame.header, opaque),
    }
}

impl<'a> Header<'a> {
    /// Decodes the header of `frame`.
    ///
    /// # Errors
    /// When the header is malformed; see [`HeaderError`].
    #[inline]
    pub fn decode(frame: &Frame<'a>, limits: &FrameLimits) -> Result<Self, HeaderError> {
        match frame.encoding {
            HeaderEncoding::Json => json::decode(frame.header, limits.header_depth),
            HeaderEncoding::Binary => binary::decode(frame.header),
        }
    }

    /// Whether this is an answer.
    #[must_use]
    #[inline]
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether the sender wants no answer.
    #[must_use]
    #[inline]
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// The same header with texts of its own.
    #[must_use]
    pub fn into_owned<'b>(self) -> Header<'b> {
        Header {
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
            remark: self.remark.map(|remark| Cow::Owned(remark.into_owned())),
            ext: self.ext.into_owned(),
        }
    }
}
