//! Binary headers (`rocketmq-remoting` section 5).

use std::borrow::Cow;

use super::{ExtFields, Header, HeaderError};
use crate::language::Language;
use crate::utf8;

/// Decodes a binary header. Texts of length zero are absent: the layout cannot say "empty", and the originals
/// read them as null. Bytes that follow the ext fields are refused; no peer sends them.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> Result<Header<'_>, HeaderError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<13>() else {
        return Err(HeaderError::Truncated { field: "fixed part" });
    };
    let [c0, c1, language, v0, v1, o0, o1, o2, o3, f0, f1, f2, f3] = *fixed;
    // A header is large, so it is filled in place.
    let mut header = Header {
        code: i32::from(i16::from_be_bytes([c0, c1])),
        language: Language::from_number(i64::from(language.cast_signed())),
        version: i32::from(i16::from_be_bytes([v0, v1])),
        opaque: i32::from_be_bytes([o0, o1, o2, o3]),
        flag: i32::from_be_bytes([f0, f1, f2, f3]),
        ..Header::default()
    };
    let mut cursor = Cursor { rest };
    header.remark = cursor.long_text("remark")?;
    // The originals take a negative length of the ext fields for none.
    if let Ok(length @ 1..) = usize::try_from(cursor.integer("ext fields")?) {
        read_ext(Cursor { rest: cursor.take(length, "ext fields")? }, &mut header.ext)?;
    }
    if !cursor.rest.is_empty() {
        return Err(HeaderError::Trailing { count: cursor.rest.len() });
    }
    Ok(header)
}

/// The same header with another opaque.
pub(super) fn with_opaque(bytes: &[u8], opaque: i32) -> Option<Vec<u8>> {
    let mut patched = bytes.to_vec();
    patched.first_chunk_mut::<13>()?.get_mut(5..9)?.copy_from_slice(&opaque.to_be_bytes());
    Some(patched)
}

#[inline]
fn read_ext<'a>(mut cursor: Cursor<'a>, ext: &mut ExtFields<'a>) -> Result<(), HeaderError> {
    ext.set_present();
    while !cursor.rest.is_empty() {
        let key = cursor.short_text("ext key")?;
        let value = cursor.long_text("ext value")?;
        if let Some(key) = key {
            ext.push(key, value);
        }
    }
    Ok(())
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], HeaderError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(HeaderError::Truncated { field });
        };
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn integer(&mut self, field: &'static str) -> Result<i32, HeaderError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<4>() else {
            return Err(HeaderError::Truncated { field });
        };
        self.rest = rest;
        Ok(i32::from_be_bytes(*bytes))
    }

    /// A text behind a length of four bytes.
    #[inline]
    fn long_text(&mut self, field: &'static str) -> Result<Option<Cow<'a, str>>, HeaderError> {
        let length = self.integer(field)?;
        self.text(length, field)
    }

    /// A text behind a length of two bytes.
    #[inline]
    fn short_text(&mut self, field: &'static str) -> Result<Option<Cow<'a, str>>, HeaderError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<2>() else {
            return Err(HeaderError::Truncated { field });
        };
        self.rest = rest;
        self.text(i32::from(i16::from_be_bytes(*bytes)), field)
    }

    /// A text of `length` bytes, `None` for zero. What is not UTF-8 becomes U+FFFD, as in the originals.
    #[inline]
    fn text(&mut self, length: i32, field: &'static str) -> Result<Option<Cow<'a, str>>, HeaderError> {
        match usize::try_from(length) {
            Ok(0) => Ok(None),
            Ok(length) => Ok(Some(utf8::text(self.take(length, field)?))),
            Err(_) => Err(HeaderError::NegativeLength { field, length }),
        }
    }
}
