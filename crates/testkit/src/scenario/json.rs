//! A reader for the JSON that NameServers write: bare integer keys included, and telling which
//! dialect it met.

use serde_json::{Map, Number, Value};

/// The ways in which two texts with the same meaning can differ and that some client notices.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    bare_keys: bool,
    quoted_integer_keys: bool,
    plain_slash: bool,
    escaped_slash: bool,
    raw_text: bool,
    escaped_text: bool,
    blanks: bool,
}

impl Dialect {
    /// The dialect as data: only what the text gave an occasion to see.
    pub(super) fn describe(self) -> Value {
        let mut seen = Map::new();
        let mut tell = |name: &str, one: (bool, &str), other: (bool, &str)| {
            let word = match (one.0, other.0) {
                (true, true) => "mixed",
                (true, false) => one.1,
                (false, true) => other.1,
                (false, false) => return,
            };
            seen.insert(name.to_owned(), word.into());
        };
        tell("integerKeys", (self.bare_keys, "bare"), (self.quoted_integer_keys, "quoted"));
        tell("slash", (self.plain_slash, "plain"), (self.escaped_slash, "escaped"));
        tell("nonAscii", (self.raw_text, "raw"), (self.escaped_text, "escaped"));
        if self.blanks {
            seen.insert("blanks".to_owned(), true.into());
        }
        Value::Object(seen)
    }
}

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<(Value, Dialect), String> {
    let mut reader = Reader { rest: text, dialect: Dialect::default() };
    let value = reader.value()?;
    reader.skip_blanks();
    if reader.rest.is_empty() { Ok((value, reader.dialect)) } else { Err(reader.fault("the end")) }
}

/// Writes a value without blanks and with sorted members, whatever order the map keeps.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| key.as_str());
            let inner: Vec<_> = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

struct Reader<'a> {
    rest: &'a str,
    dialect: Dialect,
}

impl Reader<'_> {
    fn fault(&self, wanted: &str) -> String {
        format!("no JSON: {wanted} expected at `{}`", self.rest.chars().take(20).collect::<String>())
    }

    fn skip_blanks(&mut self) {
        let trimmed = self.rest.trim_start();
        self.dialect.blanks |= trimmed.len() != self.rest.len();
        self.rest = trimmed;
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_blanks();
        match self.rest.chars().next() {
            Some('{') => self.object(),
            Some('[') => self.array(),
            Some('"') => self.string().map(Value::String),
            Some('-' | '0'..='9') => self.number(),
            _ if self.take("true") => Ok(Value::Bool(true)),
            _ if self.take("false") => Ok(Value::Bool(false)),
            _ if self.take("null") => Ok(Value::Null),
            _ => Err(self.fault("a value")),
        }
    }

    fn object(&mut self) -> Result<Value, String> {
        self.take("{");
        let mut members = Map::new();
        if self.take("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_blanks();
            let key = if self.rest.starts_with('"') {
                let key = self.string()?;
                self.dialect.quoted_integer_keys |= key.parse::<i64>().is_ok();
                key
            } else {
                self.dialect.bare_keys = true;
                self.number()?.to_string()
            };
            if !self.take(":") {
                return Err(self.fault("`:`"));
            }
            let value = self.value()?;
            if members.insert(key.clone(), value).is_some() {
                return Err(format!("the member `{key}` stands there twice"));
            }
            if self.take("}") {
                return Ok(Value::Object(members));
            }
            if !self.take(",") {
                return Err(self.fault("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Result<Value, String> {
        self.take("[");
        let mut items = Vec::new();
        if self.take("]") {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            if self.take("]") {
                return Ok(Value::Array(items));
            }
            if !self.take(",") {
                return Err(self.fault("`,` or `]`"));
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let end = self
            .rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number: Number = serde_json::from_str(digits).map_err(|_| self.fault("a number"))?;
        self.rest = rest;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut text = String::new();
        let mut characters = self.rest[1..].char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Ok(text);
                }
                '\\' => match characters.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('b') => text.push('\u{8}'),
                    Some('f') => text.push('\u{c}'),
                    Some('/') => {
                        self.dialect.escaped_slash = true;
                        text.push('/');
                    }
                    Some('u') => {
                        let digits: String = characters.by_ref().take(4).map(|(_, c)| c).collect();
                        let unit = u32::from_str_radix(&digits, 16).map_err(|_| self.fault("\\uXXXX"))?;
                        // Halves of a pair stay visible as a mark: no scenario uses such characters.
                        let c = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
                        self.dialect.escaped_text |= !c.is_ascii();
                        text.push(c);
                    }
                    Some(c @ ('"' | '\\')) => text.push(c),
                    _ => return Err(self.fault("an escape")),
                },
                c if c < ' ' => return Err(self.fault("no raw control character")),
                c => {
                    self.dialect.plain_slash |= c == '/';
                    self.dialect.raw_text |= !c.is_ascii();
                    text.push(c);
                }
            }
        }
        Err(self.fault("the closing quote"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bare_and_quoted_keys_mean_the_same_and_are_told_apart() {
        let (bare, bare_dialect) = parse(r#"{"a":{0:"x",12:"y"}}"#).unwrap();
        let (quoted, quoted_dialect) = parse(r#"{"a":{"12":"y","0":"x"}}"#).unwrap();
        assert_eq!(bare, quoted);
        assert_eq!(bare_dialect.describe(), json!({"integerKeys": "bare"}));
        assert_eq!(quoted_dialect.describe(), json!({"integerKeys": "quoted"}));
    }

    #[test]
    fn escapes_are_read_and_told() {
        let (value, dialect) = parse(r#"["a\/b","\u00e9"]"#).unwrap();
        assert_eq!(value, json!(["a/b", "é"]));
        assert_eq!(dialect.describe(), json!({"slash": "escaped", "nonAscii": "escaped"}));
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["", "{", "{a:1}", "[1,]", "{\"a\":1,}", "{} x", "\"a", "{\"a\":1,\"a\":2}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn canonical_text_sorts_members() {
        assert_eq!(
            canonical(&json!({"b": [1, null], "a": {"d": true, "c": "x"}})),
            r#"{"a":{"c":"x","d":true},"b":[1,null]}"#
        );
    }
}
