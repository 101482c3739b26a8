//! JSON headers.

use std::borrow::Cow;

use super::{ExtFields, Header, HeaderError};
use crate::json::{JsonError, Reader, members};
use crate::language::Language;

members::declare!(Member {
    Code = "code",
    ExtFields = "extFields",
    Flag = "flag",
    Language = "language",
    Opaque = "opaque",
    SerializeType = "serializeTypeCurrentRPC",
    Version = "version",
    Remark = "remark",
});

/// Decodes a JSON header. Bytes that are not UTF-8 become U+FFFD, as in the originals.
#[inline]
pub(super) fn decode(bytes: &[u8], depth: usize) -> Result<Header<'_>, HeaderError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(read(text, depth)?),
        Err(_) => decode_replaced(bytes, depth),
    }
}

#[cold]
fn decode_replaced<'b>(bytes: &[u8], depth: usize) -> Result<Header<'b>, HeaderError> {
    Ok(read(&String::from_utf8_lossy(bytes), depth)?.into_owned())
}

fn read(text: &str, depth: usize) -> Result<Header<'_>, JsonError> {
    let mut header = Header::default();
    let mut reader = Reader::new(text, depth);
    reader.object(|reader, key| {
        match Member::of(&key) {
            Member::Code => header.code = reader.int()?.unwrap_or_default(),
            Member::ExtFields => read_ext(reader, &mut header.ext)?,
            Member::Flag => header.flag = reader.int()?.unwrap_or_default(),
            Member::Language => header.language = read_language(reader)?,
            Member::Opaque => header.opaque = reader.int()?.unwrap_or_default(),
            Member::Version => header.version = reader.int()?.unwrap_or_default(),
            Member::Remark => header.remark = reader.text()?,
            // The frame's type byte rules.
            Member::SerializeType | Member::Unknown => reader.skip()?,
        }
        Ok::<(), JsonError>(())
    })?;
    reader.finish()?;
    Ok(header)
}

#[inline]
fn read_ext<'a>(reader: &mut Reader<'a>, ext: &mut ExtFields<'a>) -> Result<(), JsonError> {
    let present = reader.table_or_null(|reader, key| {
        let value = reader.text()?;
        ext.push(key, value);
        Ok::<(), JsonError>(())
    })?;
    if present {
        ext.set_present();
    }
    Ok(())
}

/// A name in any case or an ordinal; what is neither is unknown, which is no error.
#[inline]
fn read_language(reader: &mut Reader<'_>) -> Result<Language, JsonError> {
    let text: Option<Cow<'_, str>> = reader.text()?;
    Ok(text.map_or(Language::Unknown, |text| match text.parse() {
        Ok(number) => Language::from_number(number),
        Err(_) => Language::from_name(&text),
    }))
}
