//! Java `.properties` texts: the body of the configuration requests 318 and 319, and the files of the originals.

use std::fmt::Write as _;

use thiserror::Error;

/// Why a text is not a `.properties` text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PropertiesError {
    /// A `\u` is not followed by four hexadecimal digits.
    #[error("line {line}: \\u needs four hexadecimal digits")]
    Escape {
        /// The line, from 1.
        line: usize,
    },
}

/// The pairs of a `.properties` text in their order, duplicates included (the last one counts).
///
/// Comments begin with `#` or `!`. A key ends at `=`, `:` or white space. `\` continues a line or escapes the
/// next character: `\t`, `\n`, `\f`, `\r`, `\uXXXX`; before any other character it is dropped.
///
/// # Errors
/// When an escape is malformed: the only thing that Java refuses.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, PropertiesError> {
    let mut pairs = Vec::new();
    let mut lines = (1..).zip(natural_lines(text));
    while let Some((line, natural)) = lines.next() {
        let first = natural.trim_start_matches(is_space);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = String::from(first);
        while continues(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_space));
        }
        if logical.is_empty() {
            continue;
        }
        let (key, value) = split(&logical);
        let error = || PropertiesError::Escape { line };
        pairs.push((unescape(key).ok_or_else(error)?, unescape(value).ok_or_else(error)?));
    }
    Ok(pairs)
}

/// Appends one `key=value` line to `out`, escaped so that [`parse`] reads the same pair.
///
/// What is not printable ASCII becomes `\uXXXX`: admin tools give the bytes of a 319 to `java.util.Properties`, which
/// takes them for Latin-1. No short escape but `\\` and a space is written, so that [`read_answer`] can tell these
/// texts from raw ones.
pub fn write(out: &mut String, key: &str, value: &str) {
    escape(out, key, true);
    out.push('=');
    escape(out, value, false);
    out.push('\n');
}

/// The pairs of the answer to 319 (spec 4.4), whether its server escapes as [`write()`] does or nothing, as the originals.
///
/// A text is escaped if [`write()`] would make the same text of what [`parse`] reads in it. So `C:\rocketmq` is taken as
/// it is; what is mistaken is a raw text whose every backslash happens to begin an escape that [`write()`] makes, such as
/// `C:\\rocketmq`. Lines without `=` are left out of raw texts.
#[must_use]
pub fn read_answer(text: &str) -> Vec<(String, String)> {
    if let Ok(pairs) = parse(text) {
        let mut again = String::with_capacity(text.len());
        for (key, value) in &pairs {
            write(&mut again, key, value);
        }
        if again == text {
            return pairs;
        }
    }
    let raw = text.lines().filter_map(|line| line.split_once('='));
    raw.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\u{c}')
}

/// Lines as Java counts them: ended by `\n`, `\r` or `\r\n`.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        match text.find(['\n', '\r']) {
            None => rest = None,
            Some(end) => {
                let (line, after) = text.split_at_checked(end)?;
                rest = Some(after.strip_prefix("\r\n").or_else(|| after.get(1..)).unwrap_or_default());
                return Some(line);
            }
        }
        Some(text)
    })
}

/// Whether a line ends in an odd number of backslashes.
fn continues(line: &str) -> bool {
    !line.bytes().rev().take_while(|&byte| byte == b'\\').count().is_multiple_of(2)
}

/// Key and value of a logical line, still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|&(_, character)| {
        let ends = !escaped && (matches!(character, '=' | ':') || is_space(character));
        escaped = character == '\\' && !escaped;
        ends
    });
    let Some((key, rest)) = end.and_then(|(end, _)| line.split_at_checked(end)) else { return (line, "") };
    let value = rest.trim_start_matches(is_space);
    let value = value.strip_prefix(['=', ':']).unwrap_or(value);
    (key, value.trim_start_matches(is_space))
}

fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(String::from(text));
    }
    // Escapes are UTF-16 units: two of them can be one character.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let character = match character {
            '\\' => match characters.next()? {
                't' => '\t',
                'n' => '\n',
                'f' => '\u{c}',
                'r' => '\r',
                'u' => {
                    let digits = characters.as_str().get(..4)?;
                    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                        return None;
                    }
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    characters = characters.as_str().get(4..)?.chars();
                    continue;
                }
                other => other,
            },
            other => other,
        };
        units.extend_from_slice(character.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

fn escape(out: &mut String, text: &str, key: bool) {
    for (index, character) in text.char_indices() {
        match character {
            '\\' => out.push_str("\\\\"),
            ' ' if key || index == 0 => out.push_str("\\ "),
            '=' | ':' | '#' | '!' if key => {
                out.push('\\');
                out.push(character);
            }
            ' '..='~' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a text cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PropertiesError, parse, read_answer, write};

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.into(), value.into())
    }

    #[test]
    fn keys_end_at_equals_signs_colons_and_blanks() {
        for text in
            ["k=v", "k:v", "k v", "  k \t= v", "k\u{c}:\tv", "k  v", "\r\n\nk=v\r", "k = \\\n   v", "\\k=\\v"]
        {
            assert_eq!(pairs(text), [pair("k", "v")], "{text:?}");
        }
        assert_eq!(pairs("k==v"), [pair("k", "=v")]);
        assert_eq!(pairs("k : = v "), [pair("k", "= v ")]);
        assert_eq!(pairs("a\\ b\\=c\\:d=e f"), [pair("a b=c:d", "e f")]);
        assert_eq!(pairs("k\n=v\n:"), [pair("k", ""), pair("", "v"), pair("", "")]);
    }

    #[test]
    fn comments_and_blank_lines_are_no_pairs() {
        assert_eq!(pairs("# a=b\n  ! c=d\n\n \t\na=#b\n"), [pair("a", "#b")]);
        assert_eq!(pairs("# no continuation \\\na=b"), [pair("a", "b")]);
        assert_eq!(pairs("a=b\\\n#c"), [pair("a", "b#c")]);
    }

    #[test]
    fn backslashes_continue_lines_and_escape() {
        assert_eq!(pairs("a=b\\\r\n  c\\\n\td"), [pair("a", "bcd")]);
        assert_eq!(pairs("a=b\\\\\nc=d"), [pair("a", "b\\"), pair("c", "d")]);
        assert_eq!(pairs("a=b\\"), [pair("a", "b")]);
        assert_eq!(pairs("a=\\t\\n\\r\\f\\q\\\"\\u00e9\\uD83D\\uDE00"), [pair("a", "\t\n\r\u{c}q\"é😀")]);
    }

    #[test]
    fn malformed_escapes_are_refused_with_their_line() {
        for text in ["a=b\n\nc=\\u12", "a=b\n#\nc=\\u12g4", "\n\n\\u=a", "\n\nc=\\uü00"] {
            assert_eq!(parse(text), Err(PropertiesError::Escape { line: 3 }), "{text:?}");
        }
        assert_eq!(
            PropertiesError::Escape { line: 3 }.to_string(),
            "line 3: \\u needs four hexadecimal digits"
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (key, value) in [
            ("listenPort", "9876"),
            ("", ""),
            (" a b ", "  c d "),
            ("#a!=:", "#b!=:"),
            ("\\\t\n\r\u{c}", "\\\t\n\r\u{c}\\"),
            ("é😀", "é😀"),
        ] {
            let mut text = String::new();
            write(&mut text, key, value);
            assert_eq!(pairs(&text), [pair(key, value)], "{text:?}");
        }
        let mut text = String::new();
        write(&mut text, "kvConfigPath", "/home/rocketmq/namesrv/kvConfig.json");
        assert_eq!(text, "kvConfigPath=/home/rocketmq/namesrv/kvConfig.json\n");
    }

    #[test]
    fn what_is_written_is_plain_ascii() {
        let mut text = String::new();
        write(&mut text, "sch\u{f6}n", "C:\\users\t\u{1f600} \u{85}");
        assert_eq!(text, "sch\\u00f6n=C:\\\\users\\u0009\\ud83d\\ude00 \\u0085\n");
    }

    #[test]
    fn answers_are_read_whether_their_server_escapes_or_not() {
        let raw = "a=1\nempty=\nlist=a;b=c\npath=C:\\rocketmq\\temp\nschön=é\nspace= x\nusers=C:\\users\n";
        let expected = [
            pair("a", "1"),
            pair("empty", ""),
            pair("list", "a;b=c"),
            pair("path", "C:\\rocketmq\\temp"),
            pair("schön", "é"),
            pair("space", " x"),
            pair("users", "C:\\users"),
        ];
        assert_eq!(read_answer(raw), expected);
        let mut escaped = String::new();
        for (key, value) in &expected {
            write(&mut escaped, key, value);
        }
        assert_ne!(escaped, raw);
        assert_eq!(read_answer(&escaped), expected);
        for path in
            ["C:\\rocketmq", "C:\\temp", "C:\\new", "C:\\data", "C:\\u0041", "\\\\server\\share", "D:\\"]
        {
            assert_eq!(read_answer(&format!("path={path}\n")), [pair("path", path)]);
        }
        assert_eq!(read_answer("a=1\n\nnonsense\nb=2"), [pair("a", "1"), pair("b", "2")]);
    }
}
