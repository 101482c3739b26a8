//! Numbers and booleans, and values of other kinds taken as such.

use super::reader::{Kind, is_null};
use super::{JsonError, JsonErrorKind, Reader};

impl<'a> Reader<'a> {
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

    /// The characters of a number, and behind it the letter of a type, which is dropped.
    pub(super) fn number(&mut self) -> Result<&'a str, JsonError> {
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
    pub(super) fn uncommon_long(&mut self) -> Result<Option<i64>, JsonError> {
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
