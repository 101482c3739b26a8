//! Texts, and values of other kinds taken as texts.

use std::borrow::Cow;

use super::reader::{Kind, is_null};
use super::{JsonError, JsonErrorKind, Reader, write_string};

impl<'a> Reader<'a> {
    /// Reads a text. Numbers, booleans, objects and arrays become their JSON text, `null` becomes `None`.
    ///
    /// # Errors
    /// When there is no well-formed value.
    #[inline]
    pub fn text(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
        if self.peek() == Some(b'"') {
            return self.quoted(b'"').map(Some);
        }
        self.other_as_text()
    }

    /// Reads a text that is kept: as [`text`](Self::text), owned.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn owned_text(&mut self) -> Result<Option<String>, JsonError> {
        Ok(self.text()?.map(Cow::into_owned))
    }

    /// A text in double quotes and without escapes, borrowed. Nothing is consumed if there is anything else.
    #[inline]
    pub(crate) fn plain_text(&mut self) -> Option<&'a str> {
        let content = self.rest.strip_prefix('"')?;
        let end = find_either(content.as_bytes(), b'"', b'\\')?;
        let (text, rest) = content.split_at_checked(end)?;
        self.rest = rest.strip_prefix('"')?;
        Some(text)
    }

    pub(super) fn quoted_any(&mut self) -> Result<Cow<'a, str>, JsonError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote),
            _ => Err(self.unexpected("a text")),
        }
    }

    /// Reads a text whose opening `quote` is the next byte.
    #[inline]
    pub(super) fn quoted(&mut self, quote: u8) -> Result<Cow<'a, str>, JsonError> {
        self.bump(1);
        match find_either(self.rest.as_bytes(), quote, b'\\') {
            Some(end) if self.rest.as_bytes().get(end) == Some(&quote) => {
                let text = self.take(end);
                self.bump(1);
                Ok(Cow::Borrowed(text))
            }
            Some(_) => self.escaped(quote).map(Cow::Owned),
            None => Err(self.error(JsonErrorKind::End)),
        }
    }

    /// Reads the rest of a text that has escapes.
    #[cold]
    pub(super) fn escaped(&mut self, quote: u8) -> Result<String, JsonError> {
        let mut text = String::new();
        loop {
            let Some(end) = find_either(self.rest.as_bytes(), quote, b'\\') else {
                return Err(self.error(JsonErrorKind::End));
            };
            text.push_str(self.take(end));
            let closing = self.rest.as_bytes().first() == Some(&quote);
            self.bump(1);
            if closing {
                return Ok(text);
            }
            text.push(self.escape()?);
        }
    }

    /// The character that an escape stands for; the reader is behind its backslash.
    pub(super) fn escape(&mut self) -> Result<char, JsonError> {
        let Some(&letter) = self.rest.as_bytes().first() else {
            return Err(self.error(JsonErrorKind::End));
        };
        let character = match letter {
            b'"' | b'\'' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b't' => '\t',
            b'n' => '\n',
            b'v' => '\u{b}',
            b'f' | b'F' => '\u{c}',
            b'r' => '\r',
            b'0'..=b'7' => char::from(letter.wrapping_sub(b'0')),
            b'x' => {
                self.bump(1);
                return self.hexadecimal(2).map(|unit| char::from_u32(unit).unwrap_or_default());
            }
            b'u' => {
                self.bump(1);
                return self.utf16();
            }
            _ => return Err(self.error(JsonErrorKind::Escape)),
        };
        self.bump(1);
        Ok(character)
    }

    /// One or two UTF-16 units; the reader is behind the first `\u`. Half a pair becomes U+FFFD.
    pub(super) fn utf16(&mut self) -> Result<char, JsonError> {
        let first = self.hexadecimal(4)?;
        if !(0xD800..0xDC00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let mut ahead = self.clone();
        if ahead.literal("\\u")
            && let Ok(second @ 0xDC00..0xE000) = ahead.hexadecimal(4)
        {
            *self = ahead;
            let pair = ((first & 0x3FF) << 10) | (second & 0x3FF);
            return Ok(char::from_u32(pair.wrapping_add(0x1_0000)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    pub(super) fn hexadecimal(&mut self, digits: usize) -> Result<u32, JsonError> {
        let number = self
            .rest
            .get(..digits)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| u32::from_str_radix(text, 16).ok());
        let Some(number) = number else { return Err(self.error(JsonErrorKind::Escape)) };
        self.bump(digits);
        Ok(number)
    }

    #[cold]
    pub(super) fn other_as_text(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
        match self.kind()? {
            Kind::Text => self.quoted_any().map(Some),
            Kind::Number => self.number().map(|text| Some(Cow::Borrowed(text))),
            Kind::Word => Ok(Some(self.known_word()?).filter(|word| !is_null(word)).map(Cow::Borrowed)),
            Kind::Object | Kind::Array => {
                let mut text = Vec::new();
                self.copy(&mut text)?;
                // What was copied is text: each piece of it was.
                Ok(Some(Cow::Owned(String::from_utf8(text).unwrap_or_default())))
            }
        }
    }

    /// Reads any value and writes it without white space, its keys and texts in double quotes.
    pub(super) fn copy(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        match self.kind()? {
            Kind::Object => {
                out.push(b'{');
                let mut first = true;
                self.object(|reader, key| {
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    write_string(out, &key);
                    out.push(b':');
                    reader.copy(out)
                })?;
                out.push(b'}');
            }
            Kind::Array => {
                out.push(b'[');
                let mut first = true;
                self.array(|reader| {
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    reader.copy(out)
                })?;
                out.push(b']');
            }
            Kind::Text => write_string(out, &self.quoted_any()?),
            Kind::Number => out.extend_from_slice(self.number()?.as_bytes()),
            Kind::Word => {
                let word = self.known_word()?;
                out.extend_from_slice(if is_null(word) { b"null" } else { word.as_bytes() });
            }
        }
        Ok(())
    }
}

/// Where the first of two bytes is. Eight bytes are looked at together: most texts here are shorter than what a
/// call into a vectorised search costs.
#[inline]
fn find_either(bytes: &[u8], one: u8, other: u8) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (one_mask, other_mask) = (LOW.wrapping_mul(u64::from(one)), LOW.wrapping_mul(u64::from(other)));
    let mut rest = bytes;
    let mut passed: usize = 0;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let (a, b) = (word ^ one_mask, word ^ other_mask);
        // The lowest flagged byte is exact; flags above it may be false.
        let hits = ((a.wrapping_sub(LOW) & !a) | (b.wrapping_sub(LOW) & !b)) & HIGH;
        if hits != 0 {
            return Some(passed.wrapping_add((hits.trailing_zeros() / 8) as usize));
        }
        passed = passed.wrapping_add(8);
        rest = after;
    }
    rest.iter().position(|&byte| byte == one || byte == other).map(|at| passed.wrapping_add(at))
}
