//! Texts that others choose (names, remarks, addresses), made harmless for terminals and logs.
//!
//! Escaped is what moves the cursor, ends the line or turns the direction of writing around: control characters (C0,
//! DEL, C1), line and paragraph separators, and the marks and overrides of bidirectional text. All other characters of
//! all scripts stay as they are. The logs and the output of commands pass through here as a whole, so that nobody has to
//! think of it where a text is made.

use std::fmt::Write as _;

/// A text on one line: `\n`, `\t`, `\u{1b}`.
#[must_use]
pub fn plain(text: &str) -> String {
    escaped(text, |character, out| out.extend(character.escape_default()))
}

/// A text of many lines: as [`plain`], but line ends stay.
#[must_use]
pub fn plain_lines(text: &str) -> String {
    escaped(text, |character, out| match character {
        '\n' => out.push('\n'),
        _ => out.extend(character.escape_default()),
    })
}

/// A JSON text, which stays the same value: `\u001b`. Line ends stay, because they can only stand between its tokens.
#[must_use]
pub fn plain_json(text: &str) -> String {
    escaped(text, |character, out| match character {
        '\n' => out.push('\n'),
        // All of them are in the basic plane. Writing to a text cannot fail.
        _ => drop(write!(out, "\\u{:04x}", u32::from(character))),
    })
}

fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((harmless, character)) =
        rest.find(is_harmful).and_then(|at| Some((rest.get(..at)?, rest.get(at..)?.chars().next()?)))
    {
        out.push_str(harmless);
        escape(character, &mut out);
        rest = rest.get(harmless.len().saturating_add(character.len_utf8())..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

fn is_harmful(character: char) -> bool {
    let separates = matches!(character, '\u{2028}' | '\u{2029}');
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || separates || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARMFUL: [char; 14] = [
        '\0', '\n', '\r', '\t', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}', '\u{61c}', '\u{200f}', '\u{202e}',
        '\u{2028}', '\u{2029}', '\u{2067}',
    ];

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        assert_eq!(plain("a\r\nb\u{1b}[2J\u{7f}\u{9b}\u{202e}"), "a\\r\\nb\\u{1b}[2J\\u{7f}\\u{9b}\\u{202e}");
        for character in HARMFUL {
            let text = format!("ä{character}ö");
            assert!(!plain(&text).contains(character), "{character:?}");
            assert_eq!(plain_lines(&text).contains(character), character == '\n', "{character:?}");
        }
    }

    #[test]
    fn other_scripts_stay_readable() {
        let text = "Größe Тема 订单 طلبات سفارش\u{200c}ها คำสั่ง 👩\u{200d}💻 C:\\x";
        assert_eq!(
            (plain(text), plain_lines(text), plain_json(text)),
            (text.into(), text.into(), text.into())
        );
    }

    #[test]
    fn a_json_text_keeps_its_value() {
        for character in HARMFUL {
            let value = serde_json::json!({ "a": format!("x{character}y") });
            let text = plain_json(&serde_json::to_string_pretty(&value).unwrap());
            assert!(text.chars().all(|it| it == '\n' || !is_harmful(it)), "{text:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }
}
