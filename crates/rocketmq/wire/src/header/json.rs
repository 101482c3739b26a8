//! JSON headers.

use std::borrow::Cow;

use super::{ExtFields, Header, HeaderError};
use crate::json::{JsonError, Reader, members, write_integer};
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
    let Ok(text) = std::str::from_utf8(bytes) else { return decode_replaced(bytes, depth) };
    // A header is large, so it is filled in place.
    let mut header = Header::default();
    if read_ordinary(Reader::new(text, depth), &mut header).is_none() {
        header = Header::default();
        read(text, depth, &mut header)?;
    }
    Ok(header)
}

#[cold]
fn decode_replaced<'b>(bytes: &[u8], depth: usize) -> Result<Header<'b>, HeaderError> {
    let text = String::from_utf8_lossy(bytes);
    let mut header = Header::default();
    read(&text, depth, &mut header)?;
    Ok(header.into_owned())
}

/// Reads the headers that Java and C++ peers write: members in alphabetical order, no white space, no escapes.
/// These are most of all headers. On anything else, including anything wrong, it gives up.
#[inline]
fn read_ordinary<'a>(mut reader: Reader<'a>, header: &mut Header<'a>) -> Option<()> {
    if !reader.has_depth(2) || !reader.literal("{\"code\":") {
        return None;
    }
    header.code = plain_int(&mut reader)?;
    if reader.literal(",\"extFields\":{") {
        header.ext.set_present();
        if !reader.literal("}") {
            loop {
                let key = reader.plain_text()?;
                if !reader.literal(":") {
                    return None;
                }
                let value = reader.plain_text()?;
                header.ext.push(Cow::Borrowed(key), Some(Cow::Borrowed(value)));
                if reader.literal("}") {
                    break;
                }
                if !reader.literal(",") {
                    return None;
                }
            }
        }
    }
    if !reader.literal(",\"flag\":") {
        return None;
    }
    header.flag = plain_int(&mut reader)?;
    if !reader.literal(",\"language\":") {
        return None;
    }
    header.language = Language::from_name(reader.plain_text()?);
    if !reader.literal(",\"opaque\":") {
        return None;
    }
    header.opaque = plain_int(&mut reader)?;
    if reader.literal(",\"remark\":") {
        header.remark = Some(Cow::Borrowed(reader.plain_text()?));
    }
    // The frame's type byte rules, so what this says means nothing.
    let _ = reader.literal(",\"serializeTypeCurrentRPC\":\"JSON\"");
    if !reader.literal(",\"version\":") {
        return None;
    }
    header.version = plain_int(&mut reader)?;
    // C++ peers end their headers with a line feed.
    matches!(reader.rest(), "}" | "}\n").then_some(())
}

#[inline]
fn plain_int(reader: &mut Reader<'_>) -> Option<i32> {
    reader.plain_number()?.try_into().ok()
}

/// Reads any header that there is.
fn read<'a>(text: &'a str, depth: usize, header: &mut Header<'a>) -> Result<(), JsonError> {
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
            Member::SerializeType | Member::Unknown => reader.skip()?,
        }
        Ok::<(), JsonError>(())
    })?;
    reader.finish()
}

/// The same header with another opaque, in every spelling that some reader knows.
pub(super) fn with_opaque(bytes: &[u8], depth: usize, opaque: i32) -> Result<Vec<u8>, JsonError> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = Reader::new(&text, depth);
    let is_object = reader.at_object();
    let members_at = reader.offset().saturating_add(usize::from(is_object));
    let (mut values, mut is_named) = (Vec::new(), false);
    reader.object(|reader, key| {
        if !matches!(Member::of(&key), Member::Opaque) {
            return reader.skip();
        }
        is_named |= key == "opaque";
        let value_at = reader.value_offset();
        reader.int()?;
        values.push(value_at..reader.offset());
        Ok(())
    })?;
    reader.finish()?;
    let part = |from: usize, to: usize| text.as_bytes().get(from..to).unwrap_or_default();
    let mut patched = Vec::with_capacity(text.len().saturating_add(32));
    let mut copied = 0;
    if !is_named {
        patched.extend_from_slice(part(0, members_at));
        patched.extend_from_slice(b"\"opaque\":");
        write_integer(&mut patched, i64::from(opaque));
        patched.push(b',');
        copied = members_at;
    }
    for value in values {
        patched.extend_from_slice(part(copied, value.start));
        write_integer(&mut patched, i64::from(opaque));
        copied = value.end;
    }
    patched.extend_from_slice(part(copied, text.len()));
    Ok(patched)
}

#[inline]
fn read_ext<'a>(reader: &mut Reader<'a>, ext: &mut ExtFields<'a>) -> Result<(), JsonError> {
    let present = reader.texts_or_null(|key, value| {
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

#[cfg(test)]
mod tests;
