//! The remarks of the agent's own errors.

use waypost_rocketmq_discovery::error::LookupError;

/// Clients write it to their logs with every call that fails.
pub(crate) const MAX: usize = 500;

/// The longest name of what was asked for; no topic of a broker is longer.
const SUBJECT_MAX: usize = 160;

const ELLIPSIS: &str = "...";

/// Why a lookup has no answer: each server once.
#[must_use]
pub(crate) fn of_lookup(error: &LookupError) -> String {
    let LookupError::NoAnswer { subject, limit, said } = error else { return cut(error.to_string(), MAX) };
    let subject = cut(subject.clone(), SUBJECT_MAX);
    let words: Vec<String> = said.iter().map(ToString::to_string).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let head = format!("{subject}: no name server answered within {limit:?}");
    let advice = "; check the servers and the network";
    if words.is_empty() {
        return cut(format!("{head}{advice}"), MAX);
    }
    listed(&format!("{head} ("), &words, &format!("){advice}"))
}

/// `head`, the `words` separated by semicolons, and `tail`, in no more than [`MAX`] bytes: long words are cut alike,
/// and only where their beginnings are still too many the last ones are counted instead.
#[must_use]
pub(crate) fn listed(head: &str, words: &[&str], tail: &str) -> String {
    // What a server's name and the beginning of its reason take.
    const LEAST: usize = 48;
    let room = MAX.saturating_sub(head.len()).saturating_sub(tail.len());
    for shown in (1..=words.len()).rev() {
        let (first, rest) = words.split_at(shown);
        let more = if rest.is_empty() { String::new() } else { format!("; and {} more", rest.len()) };
        let length = |cap: usize| -> usize {
            let words: usize = first.iter().map(|word| word.len().min(cap).saturating_add(2)).sum();
            words.saturating_sub(2).saturating_add(more.len())
        };
        if let Some(cap) = (LEAST..=MAX).rev().find(|cap| length(*cap) <= room) {
            let words: Vec<String> = first.iter().map(|word| cut((*word).to_owned(), cap)).collect();
            return format!("{head}{}{more}{tail}", words.join("; "));
        }
    }
    cut(format!("{head}{}{tail}", words.join("; ")), MAX)
}

/// The text in no more than `max` bytes.
#[must_use]
pub(crate) fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len())));
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;
    use waypost_rocketmq_discovery::error::Said;

    fn no_answer(subject: String, servers: u8, what: &str) -> LookupError {
        let said = (1..=servers).map(|number| Said {
            server: SocketAddr::from(([10, 0, 0, number], 9_876)).into(),
            what: format!("10.0.0.{number}:9876 {what}"),
            after: Duration::from_millis(2_871),
        });
        LookupError::NoAnswer { subject, limit: Duration::from_millis(2_900), said: said.collect() }
    }

    #[test]
    fn a_remark_names_every_server_in_500_bytes() {
        let reason =
            "refused the connection: nothing listens there; start the name server, or check the address";
        let remark = of_lookup(&no_answer(format!("topic \"{}\"", "t".repeat(127)), 3, reason));
        assert!(remark.len() <= MAX, "{} {remark}", remark.len());
        for number in 1..=3 {
            assert!(remark.contains(&format!("10.0.0.{number}:9876 after 2871 ms: ")), "{remark}");
        }
        assert!(remark.ends_with("); check the servers and the network"), "{remark}");
    }

    #[test]
    fn a_short_remark_is_whole() {
        let error = no_answer("topic \"T\"".to_owned(), 2, "refused");
        assert_eq!(of_lookup(&error), error.to_string());
    }

    #[test]
    fn servers_that_find_no_room_are_counted() {
        let remark = of_lookup(&no_answer("topic \"T\"".to_owned(), 40, "refused the connection"));
        assert!(remark.len() <= MAX, "{} {remark}", remark.len());
        assert!(remark.contains(" more); check"), "{remark}");
    }

    #[test]
    fn whatever_a_caller_asks_for_the_remark_is_short_and_whole_characters() {
        for length in 1..600 {
            let remark =
                of_lookup(&no_answer("\u{4e2d}".repeat(length), 3, "\u{e9}\u{1f600}".repeat(99).as_str()));
            assert!(remark.len() <= MAX, "{} {remark}", remark.len());
        }
    }
}
