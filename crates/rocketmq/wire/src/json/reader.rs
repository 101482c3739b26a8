//! A pull reader as tolerant as fastjson 1.2.83, which the Java NameServers up to 5.3.3 read with.

use std::borrow::Cow;

use thiserror::Error;

/// What is wrong with a JSON text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends within a value.
    #[error("the text ends too early")]
    End,
    /// A byte that cannot stand where it stands.
    #[error("this is not what was expected here: {expected}")]
    Unexpected {
        /// What could have stood here.
        expected: &'static str,
    },
    /// An escape sequence that does not exist.
    #[error("the escape sequence is invalid")]
    Escape,
    /// A number that is none, or that its field cannot hold.
    #[error("the number is invalid or out of range")]
    Number,
    /// A text that is neither true nor false.
    #[error("the value is not a boolean")]
    Boolean,
    /// More nested objects and arrays than the limit.
    #[error("the nesting is deeper than the limit")]
    Depth,
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
}

/// What is wrong with a JSON text, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("at byte {offset}: {kind}")]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// Bytes of the text before the place.
    pub offset: usize,
}

/// A kind of value, known from its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Object,
    Array,
    Text,
    Number,
    Word,
}

/// Reads values from a text one after the other.
///
/// Every method that reads a value skips white space and comments before it and leaves the reader behind it.
/// After an error the reader stands anywhere and must not be used further.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a str,
    total: usize,
    depth_left: usize,
}

/// The most levels that any limit can allow: the reader recurses, and threads have small stacks.
const DEPTH_CEILING: usize = 512;

impl<'a> Reader<'a> {
    /// A reader of `text` that refuses more than `depth` levels of objects and arrays (at most 512).
    #[must_use]
    #[inline]
    pub fn new(text: &'a str, depth: usize) -> Self {
        Self { rest: text, total: text.len(), depth_left: depth.min(DEPTH_CEILING) }
    }

    /// Bytes that were read so far.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.total.saturating_sub(self.rest.len())
    }

    /// Checks that nothing but white space is left.
    ///
    /// # Errors
    /// [`JsonErrorKind::Trailing`] otherwise.
    #[inline]
    pub fn finish(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonErrorKind::Trailing)),
        }
    }

    /// Whether an object comes next.
    #[must_use]
    #[inline]
    pub fn at_object(&mut self) -> bool {
        self.peek() == Some(b'{')
    }

    /// Reads an object; `member` is called with each key and has to read the value.
    ///
    /// # Errors
    /// When there is no well-formed object, and what `member` returns.
    #[inline]
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open(b'{', "an object")?;
        let mut separated = true;
        loop {
            match self.peek() {
                Some(b'"') if separated => {}
                Some(b',') => {
                    // Any number of commas is one comma.
                    self.bump(1);
                    separated = true;
                    continue;
                }
                Some(b'}') => {
                    self.close();
                    return Ok(());
                }
                Some(_) if separated => {}
                Some(_) => return Err(self.unexpected("a comma or the end of the object").into()),
                None => return Err(self.error(JsonErrorKind::End).into()),
            }
            let key = self.key()?;
            match self.peek() {
                Some(b':') => self.bump(1),
                Some(_) => return Err(self.unexpected("a colon").into()),
                None => return Err(self.error(JsonErrorKind::End).into()),
            }
            member(self, key)?;
            separated = false;
        }
    }

    /// Reads an array; `element` is called in front of each element and has to read it. Commas are not needed.
    ///
    /// # Errors
    /// When there is no well-formed array, and what `element` returns.
    #[inline]
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.open(b'[', "an array")?;
        loop {
            match self.peek() {
                Some(b',') => self.bump(1),
                Some(b']') => {
                    self.close();
                    return Ok(());
                }
                Some(_) => element(self)?,
                None => return Err(self.error(JsonErrorKind::End).into()),
            }
        }
    }

    /// Reads an object, or something that stands for none: `null`, an empty text, an empty array. The result
    /// says whether there was an object.
    ///
    /// # Errors
    /// When something else is there, when the object is malformed, and what `member` returns.
    #[inline]
    pub fn object_or_null<E: From<JsonError>>(
        &mut self,
        member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.peek() != Some(b'{') && self.nothing()? {
            return Ok(false);
        }
        self.object(member)?;
        Ok(true)
    }

    /// Reads a table of objects, or `null`, which stands for none. A reference (`{"$ref":"$.a.b"}`, which a
    /// writer may put in place of an object that it wrote before) stands for an empty table.
    ///
    /// # Errors
    /// When something else is there, when the table is malformed, and what `entry` returns.
    #[inline]
    pub fn table_or_null<E: From<JsonError>>(
        &mut self,
        mut entry: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.peek() != Some(b'{') && self.null() {
            return Ok(false);
        }
        self.object(|reader, key| {
            if key.starts_with('$') && key == "$ref" && matches!(reader.peek(), Some(b'"' | b'\'')) {
                return reader.skip().map_err(E::from);
            }
            entry(reader, key)
        })?;
        Ok(true)
    }

    /// Reads a table of texts, or `null`, which stands for none; every key is an ordinary one.
    ///
    /// # Errors
    /// As [`table_or_null`](Self::table_or_null).
    #[inline]
    pub fn texts_or_null<E: From<JsonError>>(
        &mut self,
        mut entry: impl FnMut(Cow<'a, str>, Option<Cow<'a, str>>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.peek() != Some(b'{') && self.null() {
            return Ok(false);
        }
        self.object(|reader, key| {
            let value = reader.text()?;
            entry(key, value)
        })?;
        Ok(true)
    }

    /// Reads an array, or `null` or an empty text, which stand for none.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    #[inline]
    pub fn array_or_null<E: From<JsonError>>(
        &mut self,
        element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.peek() != Some(b'[') && self.nothing()? {
            return Ok(false);
        }
        self.array(element)?;
        Ok(true)
    }

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

    /// Reads a 32-bit number: a number (a fraction is cut off), a text with a whole one, or a boolean (1 or 0). `null`,
    /// an empty text and the text `null` are `None`.
    ///
    /// # Errors
    /// When the value is none of these or out of range.
    #[inline]
    pub fn int(&mut self) -> Result<Option<i32>, JsonError> {
        let before = self.offset();
        match self.long()? {
            None => Ok(None),
            Some(number) => match i32::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(JsonError { kind: JsonErrorKind::Number, offset: before }),
            },
        }
    }

    /// Reads a 64-bit number: as [`int`](Self::int).
    ///
    /// # Errors
    /// As [`int`](Self::int).
    #[inline]
    pub fn long(&mut self) -> Result<Option<i64>, JsonError> {
        if let Some(b'0'..=b'9') = self.peek()
            && let Some(number) = self.plain_number()
        {
            return Ok(Some(number));
        }
        self.uncommon_long()
    }

    /// Reads a boolean: `true`, `false`, a number (true if it is 1), or a text (`true`, `1`, `Y`, `T` or
    /// `false`, `0`, `N`, `F`). `null`, an empty text and the text `null` are `None`.
    ///
    /// # Errors
    /// When the value is none of these.
    #[inline]
    pub fn boolean(&mut self) -> Result<Option<bool>, JsonError> {
        let offset = self.offset();
        match self.kind()? {
            Kind::Word => match self.word() {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                word if is_null(word) => Ok(None),
                _ => Err(JsonError { kind: JsonErrorKind::Boolean, offset }),
            },
            Kind::Number => Ok(self.long()?.map(|number| number == 1)),
            Kind::Text => {
                let text = self.quoted_any()?;
                match text.as_ref() {
                    "" | "null" | "NULL" => Ok(None),
                    "1" | "Y" | "T" => Ok(Some(true)),
                    "0" | "N" | "F" => Ok(Some(false)),
                    text if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
                    text if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
                    _ => Err(JsonError { kind: JsonErrorKind::Boolean, offset }),
                }
            }
            Kind::Object | Kind::Array => Err(JsonError { kind: JsonErrorKind::Boolean, offset }),
        }
    }

    /// Reads any value and forgets it.
    ///
    /// # Errors
    /// When there is no well-formed value.
    pub fn skip(&mut self) -> Result<(), JsonError> {
        match self.kind()? {
            Kind::Object => self.object(|reader, _| reader.skip()),
            Kind::Array => self.array(Self::skip),
            Kind::Text => self.quoted_any().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::Word => self.known_word().map(drop),
        }
    }

    /// Reads `null` if it is next; says whether it was.
    #[must_use]
    pub fn null(&mut self) -> bool {
        match self.peek() {
            Some(b'n' | b'u' | b'N') => {
                let mut ahead = self.clone();
                if is_null(ahead.word()) {
                    *self = ahead;
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Whether the text goes on with exactly these bytes, which are then consumed.
    #[inline]
    pub(crate) fn literal(&mut self, literal: &str) -> bool {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// One to 18 digits with a comma or a bracket behind them: nearly every number of the protocol. Nothing is
    /// consumed if there is anything else.
    #[inline]
    pub(crate) fn plain_number(&mut self) -> Option<i64> {
        let mut number: i64 = 0;
        let mut digits: usize = 0;
        for &byte in self.rest.as_bytes() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return if matches!(byte, b',' | b'}' | b']') && (1..=18).contains(&digits) {
                    self.bump(digits);
                    Some(number)
                } else {
                    None
                };
            }
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
            digits = digits.wrapping_add(1);
            if digits > 18 {
                return None;
            }
        }
        None
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

    /// Whether `levels` more objects or arrays may be opened.
    #[inline]
    pub(crate) fn has_depth(&self, levels: usize) -> bool {
        self.depth_left >= levels
    }

    /// What was not read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// An error at the place where the reader stands.
    #[must_use]
    #[cold]
    pub fn error(&self, kind: JsonErrorKind) -> JsonError {
        // A text without end is noticed at its beginning, but it is the end of everything that is missing.
        let offset = if kind == JsonErrorKind::End { self.total } else { self.offset() };
        JsonError { kind, offset }
    }

    #[cold]
    fn unexpected(&self, expected: &'static str) -> JsonError {
        self.error(JsonErrorKind::Unexpected { expected })
    }

    /// The next byte that is neither white space nor part of a comment.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        match self.rest.as_bytes().first() {
            Some(&byte) if byte > b' ' && byte != b'/' => Some(byte),
            None => None,
            Some(_) => self.peek_after_space(),
        }
    }

    #[cold]
    fn peek_after_space(&mut self) -> Option<u8> {
        loop {
            let bytes = self.rest.as_bytes();
            match bytes {
                [b' ' | b'\n' | b'\r' | b'\t' | 0x0C | 0x08, ..] => self.bump(1),
                [b'/', b'*', rest @ ..] => {
                    // A comment without end swallows the rest, which then ends too early.
                    let body = memchr::memmem::find(rest, b"*/").map(|end| end.saturating_add(4));
                    self.bump(body.unwrap_or(bytes.len()));
                }
                [b'/', b'/', ..] => {
                    let end = memchr::memchr(b'\n', bytes).map(|end| end.saturating_add(1));
                    self.bump(end.unwrap_or(bytes.len()));
                }
                _ => return bytes.first().copied(),
            }
        }
    }

    /// Goes on by `count` bytes, which must end at a character's end.
    #[inline]
    fn bump(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Splits off `count` bytes, which must end at a character's end.
    #[inline]
    fn take(&mut self, count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(count).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    #[inline]
    fn open(&mut self, bracket: u8, expected: &'static str) -> Result<(), JsonError> {
        match self.peek() {
            Some(byte) if byte == bracket => {}
            Some(_) => return Err(self.unexpected(expected)),
            None => return Err(self.error(JsonErrorKind::End)),
        }
        match self.depth_left.checked_sub(1) {
            Some(left) => self.depth_left = left,
            None => return Err(self.error(JsonErrorKind::Depth)),
        }
        self.bump(1);
        Ok(())
    }

    #[inline]
    fn close(&mut self) {
        self.bump(1);
        self.depth_left = self.depth_left.saturating_add(1);
    }

    #[inline]
    fn kind(&mut self) -> Result<Kind, JsonError> {
        match self.peek() {
            Some(b'"' | b'\'') => Ok(Kind::Text),
            Some(b'0'..=b'9' | b'-' | b'+' | b'.') => Ok(Kind::Number),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$') => Ok(Kind::Word),
            Some(_) => Err(self.unexpected("a value")),
            None => Err(self.error(JsonErrorKind::End)),
        }
    }

    /// Reads what may stand for no object or array, and says whether it was there.
    fn nothing(&mut self) -> Result<bool, JsonError> {
        if self.null() {
            return Ok(true);
        }
        let mut ahead = self.clone();
        let nothing = match ahead.peek() {
            Some(quote @ (b'"' | b'\'')) => ahead.quoted(quote)?.is_empty(),
            Some(b'[') => {
                ahead.bump(1);
                let empty = ahead.peek() == Some(b']');
                ahead.bump(1);
                empty
            }
            _ => false,
        };
        if nothing {
            *self = ahead;
        }
        Ok(nothing)
    }

    /// A key: quoted either way, a bare identifier or a bare number.
    #[inline]
    fn key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.rest.as_bytes().first() == Some(&b'"') {
            return self.quoted(b'"');
        }
        self.unusual_key()
    }

    fn unusual_key(&mut self) -> Result<Cow<'a, str>, JsonError> {
        match self.kind()? {
            Kind::Text => self.quoted_any(),
            Kind::Number => self.number().map(Cow::Borrowed),
            Kind::Word => Ok(Cow::Borrowed(self.word())),
            Kind::Object | Kind::Array => Err(self.unexpected("a key")),
        }
    }

    fn quoted_any(&mut self) -> Result<Cow<'a, str>, JsonError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote),
            _ => Err(self.unexpected("a text")),
        }
    }

    /// Reads a text whose opening `quote` is the next byte.
    #[inline]
    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, str>, JsonError> {
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
    fn escaped(&mut self, quote: u8) -> Result<String, JsonError> {
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
    fn escape(&mut self) -> Result<char, JsonError> {
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
    fn utf16(&mut self) -> Result<char, JsonError> {
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

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, JsonError> {
        let number = self
            .rest
            .get(..digits)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|text| u32::from_str_radix(text, 16).ok());
        let Some(number) = number else { return Err(self.error(JsonErrorKind::Escape)) };
        self.bump(digits);
        Ok(number)
    }

    /// The characters of a number, and behind it the letter of a type, which is dropped.
    fn number(&mut self) -> Result<&'a str, JsonError> {
        let bytes = self.rest.as_bytes();
        let length = bytes
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(bytes.len());
        let start = self.clone();
        let text = self.take(length);
        if !text.bytes().any(|byte| byte.is_ascii_digit()) || text.parse::<f64>().is_err() {
            return Err(start.error(JsonErrorKind::Number));
        }
        if let Some(b'L' | b'S' | b'B' | b'F' | b'D') = self.rest.as_bytes().first() {
            self.bump(1);
        }
        Ok(text)
    }

    #[cold]
    fn uncommon_long(&mut self) -> Result<Option<i64>, JsonError> {
        let offset = self.offset();
        let parsed = match self.kind()? {
            Kind::Number => integer(self.number()?),
            Kind::Text => {
                let text = self.quoted_any()?;
                if matches!(text.as_ref(), "" | "null" | "NULL") {
                    return Ok(None);
                }
                // Digits may be grouped by commas, but there can be no fraction.
                if text.contains(',') { text.replace(',', "").parse().ok() } else { text.parse().ok() }
            }
            Kind::Word => match self.word() {
                "true" => Some(1),
                "false" => Some(0),
                word if is_null(word) => return Ok(None),
                _ => None,
            },
            Kind::Object | Kind::Array => None,
        };
        match parsed {
            Some(number) => Ok(Some(number)),
            None => Err(JsonError { kind: JsonErrorKind::Number, offset }),
        }
    }

    /// The letters, digits, `_` and `$` that come next.
    fn word(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let length = bytes
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')))
            .unwrap_or(bytes.len());
        self.take(length)
    }

    /// A bare word that is a value.
    fn known_word(&mut self) -> Result<&'a str, JsonError> {
        let before = self.clone();
        match self.word() {
            word @ ("true" | "false") => Ok(word),
            word if is_null(word) => Ok(word),
            _ => Err(before.unexpected("a value")),
        }
    }

    #[cold]
    fn other_as_text(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
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
    fn copy(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        match self.kind()? {
            Kind::Object => {
                out.push(b'{');
                let mut first = true;
                self.object(|reader, key| {
                    if !std::mem::take(&mut first) {
                        out.push(b',');
                    }
                    super::write_string(out, &key);
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
            Kind::Text => super::write_string(out, &self.quoted_any()?),
            Kind::Number => out.extend_from_slice(self.number()?.as_bytes()),
            Kind::Word => {
                let word = self.known_word()?;
                out.extend_from_slice(if is_null(word) { b"null" } else { word.as_bytes() });
            }
        }
        Ok(())
    }
}

fn is_null(word: &str) -> bool {
    matches!(word, "null" | "undefined" | "NaN")
}

/// A number's text as an integer; a fraction is cut off.
fn integer(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    if !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return None;
    }
    // 2^63 itself is out of range.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    let number = text.parse::<f64>().ok().filter(|number| (-BOUND..BOUND).contains(number))?;
    #[expect(clippy::cast_possible_truncation, reason = "in range, and the fraction is to be cut off")]
    Some(number as i64)
}

/// Where the first of two bytes is. Eight bytes are looked at together: most texts here are shorter than what a
/// call into a vectorised search costs.
#[inline]
pub(super) fn find_either(bytes: &[u8], one: u8, other: u8) -> Option<usize> {
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

/// Declares an enum of the members that a reader of an object knows.
///
/// Keys are matched exactly first, and then as fastjson does: without regard to case, `-` and `_`.
macro_rules! members {
    ($name:ident { $($variant:ident = $key:literal),+ $(,)? }) => {
        #[derive(Clone, Copy)]
        enum $name { $($variant,)+ Unknown }

        impl $name {
            #[inline]
            fn of(key: &str) -> Self {
                match key {
                    $($key => Self::$variant,)+
                    _ => Self::similar(key),
                }
            }

            #[cold]
            fn similar(key: &str) -> Self {
                $(if $crate::json::members::is_similar(key, $key) { return Self::$variant; })+
                Self::Unknown
            }
        }
    };
}

pub(crate) use members as declare;

/// The macro that declares the members of an object, and what it needs.
pub(crate) mod members {
    pub(crate) use super::declare;

    /// Whether two keys differ only in case, `-` and `_`.
    pub(crate) fn is_similar(key: &str, known: &str) -> bool {
        let simple = |text: &str| -> Vec<u8> {
            text.bytes()
                .filter(|byte| !matches!(byte, b'-' | b'_'))
                .map(|byte| byte.to_ascii_lowercase())
                .collect()
        };
        key.len() <= known.len().saturating_mul(2) && simple(key) == simple(known)
    }
}
