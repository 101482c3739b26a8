//! Files of the Java server as text. It reads them as Latin-1, in which every byte is a character, so that a file
//! with comments in GBK starts it; editors write UTF-8, some with a byte order mark.

use std::borrow::Cow;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A file's content as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decoded<'a> {
    /// The text, without a byte order mark.
    pub(crate) text: Cow<'a, str>,
    /// Why it was read as Latin-1, if it was.
    pub(crate) not_utf8: Option<NotUtf8>,
    /// The length of the byte order mark.
    mark: usize,
}

/// The first byte of a content that does not belong to UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotUtf8 {
    /// Bytes before it.
    pub(crate) offset: usize,
    /// Its line, from 1.
    pub(crate) line: usize,
}

/// The content is UTF-16, of which Latin-1 would make keys that nobody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is UTF-16 text, which the Java server cannot read either; save it as UTF-8")]
pub(crate) struct Utf16;

/// Reads UTF-8 where the content is that, else Latin-1.
///
/// # Errors
///
/// A content with the byte order mark of UTF-16.
pub(crate) fn decode(content: &[u8]) -> Result<Decoded<'_>, Utf16> {
    if content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]) {
        return Err(Utf16);
    }
    let marked = content.strip_prefix(BYTE_ORDER_MARK);
    let mark = if marked.is_some() { BYTE_ORDER_MARK.len() } else { 0 };
    let rest = marked.unwrap_or(content);
    let (text, not_utf8) = match std::str::from_utf8(rest) {
        Ok(text) => (Cow::Borrowed(text), None),
        Err(error) => {
            let good = rest.iter().take(error.valid_up_to());
            let line = good.filter(|byte| **byte == b'\n').count() + 1;
            let first = NotUtf8 { offset: mark + error.valid_up_to(), line };
            (Cow::Owned(rest.iter().copied().map(char::from).collect()), Some(first))
        }
    };
    Ok(Decoded { text, not_utf8, mark })
}

impl Decoded<'_> {
    /// Where in the content the byte `offset` of the text comes from.
    pub(crate) fn source_offset(&self, offset: usize) -> usize {
        let before = match self.not_utf8 {
            // One byte each.
            Some(_) => self.text.char_indices().take_while(|(at, _)| *at < offset).count(),
            None => offset,
        };
        self.mark + before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let decoded = decode(b"\xef\xbb\xbfa=\xc3\xbc").unwrap();
        assert_eq!((&*decoded.text, decoded.not_utf8), ("a=ü", None));
        assert_eq!(decoded.source_offset(2), 5);
        assert_eq!(decode(b"\xef\xbb\xbf").unwrap().text, "");
        assert_eq!(decode(b"").unwrap().text, "");
    }

    #[test]
    fn what_is_not_utf8_is_latin_1_and_the_first_such_byte_is_located() {
        // "# 端口" in GBK, and a value in Latin-1.
        let decoded = decode(b"a=b\n# \xb6\xcb\xbf\xda\nc=\xfc\n").unwrap();
        assert_eq!(decoded.text, "a=b\n# ¶Ë¿Ú\nc=ü\n");
        assert_eq!(decoded.not_utf8, Some(NotUtf8 { offset: 6, line: 2 }));
        let of_ue = decoded.text.find('ü').unwrap();
        assert_eq!(decoded.source_offset(of_ue), 13);
        assert_eq!(decode(b"\xef\xbb\xbf\n\xff").unwrap().not_utf8, Some(NotUtf8 { offset: 4, line: 2 }));
    }

    #[test]
    fn utf_16_is_refused() {
        assert_eq!(decode(b"\xff\xfea\0"), Err(Utf16));
        assert_eq!(decode(b"\xfe\xff\0a"), Err(Utf16));
    }
}
