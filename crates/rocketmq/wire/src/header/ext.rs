//! The named fields of a header.

use std::borrow::Cow;

use smallvec::SmallVec;

/// A header's table of named texts. Up to eight fields need no allocation.
///
/// A field whose value is `null` is absent, and so is one with an empty value in a binary header, which cannot say
/// "empty". In a JSON header an empty value is a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExtFields<'a> {
    present: bool,
    entries: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 8]>,
}

impl<'a> ExtFields<'a> {
    /// Whether the header has the table at all; an empty table is present.
    #[must_use]
    #[inline]
    pub fn is_present(&self) -> bool {
        self.present
    }

    /// The text of a field; of several with the same name the last one.
    #[must_use]
    #[inline]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// A field as a decimal 64-bit number; `None` also if it is none.
    #[must_use]
    #[inline]
    pub fn get_i64(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// A field as a decimal 32-bit number; `None` also if it is none.
    #[must_use]
    #[inline]
    pub fn get_i32(&self, name: &str) -> Option<i32> {
        self.get(name)?.parse().ok()
    }

    /// A field as a boolean: true only for the text `true` in any case; `None` if it is absent.
    #[must_use]
    #[inline]
    pub fn get_bool(&self, name: &str) -> Option<bool> {
        Some(self.get(name)?.eq_ignore_ascii_case("true"))
    }

    /// The fields in the order of the header; a name may come several times.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// How many fields there are, those with the same name counted one by one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The same fields with texts of their own.
    #[must_use]
    pub fn into_owned<'b>(self) -> ExtFields<'b> {
        ExtFields {
            present: self.present,
            entries: self
                .entries
                .into_iter()
                .map(|(key, value)| (Cow::Owned(key.into_owned()), Cow::Owned(value.into_owned())))
                .collect(),
        }
    }

    /// Says that the header has the table.
    #[inline]
    pub(super) fn set_present(&mut self) {
        self.present = true;
    }

    /// Adds a field. One without value removes those of that name before it: it counts as absent.
    #[inline]
    pub(super) fn push(&mut self, key: Cow<'a, str>, value: Option<Cow<'a, str>>) {
        match value {
            Some(value) => self.entries.push((key, value)),
            None => self.entries.retain(|(earlier, _)| *earlier != key),
        }
    }
}
