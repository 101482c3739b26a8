//! A pull reader as tolerant as fastjson 1.2.83, which the Java NameServers up to 5.3.3 read with: objects,
//! arrays and what is between them.

use std::borrow::Cow;

use super::{JsonError, JsonErrorKind};

/// A kind of value, known from its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
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
    pub(super) rest: &'a str,
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

    /// Where the next value begins: as [`offset`](Self::offset), behind white space and comments.
    #[must_use]
    pub(crate) fn value_offset(&mut self) -> usize {
        let _ = self.peek();
        self.offset()
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
    pub(super) fn unexpected(&self, expected: &'static str) -> JsonError {
        self.error(JsonErrorKind::Unexpected { expected })
    }

    /// The next byte that is neither white space nor part of a comment.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
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
    pub(super) fn bump(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Splits off `count` bytes, which must end at a character's end.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> &'a str {
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
    pub(super) fn kind(&mut self) -> Result<Kind, JsonError> {
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

    /// The letters, digits, `_` and `$` that come next.
    pub(super) fn word(&mut self) -> &'a str {
        let bytes = self.rest.as_bytes();
        let length = bytes
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')))
            .unwrap_or(bytes.len());
        self.take(length)
    }

    /// A bare word that is a value.
    pub(super) fn known_word(&mut self) -> Result<&'a str, JsonError> {
        let before = self.clone();
        match self.word() {
            word @ ("true" | "false") => Ok(word),
            word if is_null(word) => Ok(word),
            _ => Err(before.unexpected("a value")),
        }
    }
}

/// Whether a bare word stands for no value.
pub(super) fn is_null(word: &str) -> bool {
    matches!(word, "null" | "undefined" | "NaN")
}
