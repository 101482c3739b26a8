//! Words of a scenario line: blanks separate, quotes keep together, durations carry their unit.

use std::time::Duration;

/// Splits a line at blanks. `'...'` is literal; `"..."` knows `\n \r \t \0 \\ \" \uXXXX`. A quoted part
/// may stand inside a word (`key="a b"`). `#` at the start of a word begins a comment.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    loop {
        while characters.next_if(|c| c.is_whitespace()).is_some() {}
        match characters.peek() {
            None | Some('#') => return Ok(words),
            Some(_) => words.push(word(&mut characters)?),
        }
    }
}

fn word(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let mut word = String::new();
    while let Some(c) = characters.next_if(|c| !c.is_whitespace()) {
        match c {
            '\'' => loop {
                match characters.next().ok_or("a quote is not closed")? {
                    '\'' => break,
                    other => word.push(other),
                }
            },
            '"' => loop {
                match characters.next().ok_or("a quote is not closed")? {
                    '"' => break,
                    '\\' => word.push(escape(characters)?),
                    other => word.push(other),
                }
            },
            other => word.push(other),
        }
    }
    Ok(word)
}

fn escape(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, String> {
    Ok(match characters.next().ok_or("a backslash ends the line")? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '0' => '\0',
        'u' => {
            let digits: String = characters.by_ref().take(4).collect();
            let number = u32::from_str_radix(&digits, 16).map_err(|_| "\\u needs four hex digits")?;
            char::from_u32(number).ok_or("\\u names half a character")?
        }
        other => other,
    })
}

/// Reads `300ms` or `2s`.
pub(super) fn duration(word: &str) -> Result<Duration, String> {
    let (digits, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len()));
    let number: u64 = digits.parse().map_err(|_| format!("`{word}` is not a duration (300ms, 2s)"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err(format!("`{word}` is not a duration (300ms, 2s)")),
    }
}

/// Reads hex digits; blanks are allowed between bytes.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| {
            c.to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
                .ok_or_else(|| format!("`{c}` is not a hex digit"))
        })
        .collect::<Result<_, _>>()?;
    if !digits.len().is_multiple_of(2) {
        return Err("an odd number of hex digits".to_owned());
    }
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Writes bytes as hex digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together_and_comments_end_the_line() {
        assert_eq!(
            words(r#"a: 105 topic="a \"b\" \u00e9" body='{"x": 1}' # why"#),
            Ok(["a:", "105", "topic=a \"b\" é", "body={\"x\": 1}"].map(str::to_owned).to_vec())
        );
        assert!(words("a 'b").is_err());
    }

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert!(duration("2").is_err());
    }

    #[test]
    fn hex_allows_blanks_between_bytes() {
        assert_eq!(hex("00 ff0a"), Ok(vec![0, 255, 10]));
        assert!(hex("0").is_err());
    }
}
