//! Bytes that should be text.

use std::borrow::Cow;

/// Bytes as text; what is not UTF-8 becomes U+FFFD, as in the originals.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    // The check alone is several times faster than the search for what has to be replaced.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
