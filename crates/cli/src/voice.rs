//! What commands that go on say while they do.

use std::fmt;

use serde::Serialize;
use tokio::sync::mpsc;
use waypost_net::clock::Clock;
use waypost_net::plain::{plain, plain_json};

use crate::arguments::Output;

/// Says lines, each with the time. Clones speak to the same listener; when nobody listens any more, what is said is
/// lost.
#[derive(Clone, Debug)]
pub struct Voice {
    lines: mpsc::UnboundedSender<String>,
    form: Output,
    clock: Clock,
}

/// An event as programs get it: when, and the members of the event itself.
#[derive(Serialize)]
struct Stamped<'a, T> {
    at_ms: u64,
    #[serde(flatten)]
    event: &'a T,
}

impl Voice {
    /// A voice, and where its lines are heard, each without a line end.
    #[must_use]
    pub fn new(form: Output) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (lines, heard) = mpsc::unbounded_channel();
        (Self { lines, form, clock: Clock::system() }, heard)
    }

    /// Says an event: to people as a sentence, to programs as one JSON object.
    pub fn tell<T: Serialize + fmt::Display>(&self, event: &T) {
        let at_ms = self.clock.wall_millis();
        let line = match self.form {
            Output::Table => stamped(at_ms, &event.to_string()),
            Output::Json => plain_json(
                &serde_json::to_string(&Stamped { at_ms, event })
                    .expect("invariant: the event has no map with odd keys"),
            ),
        };
        // Whoever listened has gone, and the command is about to be told.
        let _ = self.lines.send(line);
    }

    /// Says a sentence to people.
    pub fn say(&self, text: &str) {
        // As above.
        let _ = self.lines.send(stamped(self.clock.wall_millis(), text));
    }

    /// Says a line without the time, for what is not an event.
    pub fn print(&self, text: &str) {
        // As above.
        let _ = self.lines.send(plain(text));
    }
}

/// A line with the time of day, which is that of Greenwich: what happens here is compared with logs of other machines.
fn stamped(at_ms: u64, text: &str) -> String {
    let second = at_ms / 1_000 % 86_400;
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}Z {}", plain(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    #[serde(tag = "event", rename_all = "snake_case")]
    enum Event {
        Went { broker: &'static str },
    }

    impl fmt::Display for Event {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self::Went { broker } = self;
            write!(formatter, "{broker} went\u{1b}[2J")
        }
    }

    #[test]
    fn people_get_the_time_of_day_and_no_control_characters() {
        assert_eq!(stamped(1_728_018_875_123, "x"), "05:14:35Z x");
        let (voice, mut heard) = Voice::new(Output::Table);
        voice.tell(&Event::Went { broker: "a" });
        let line = heard.try_recv().expect("a line");
        assert!(line.ends_with("Z a went\\u{1b}[2J"), "{line}");
    }

    #[test]
    fn programs_get_one_object_a_line() {
        let (voice, mut heard) = Voice::new(Output::Json);
        voice.tell(&Event::Went { broker: "a" });
        let line = heard.try_recv().expect("a line");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&value["event"], &value["broker"]), (&"went".into(), &"a".into()));
        assert!(
            value["at_ms"].as_u64().is_some_and(|at| at > 1_700_000_000_000) && !line.contains('\n'),
            "{line}"
        );
    }
}
