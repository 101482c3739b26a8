//! Reads scenario files.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ScenarioError;
use super::request::Request;
use super::text::{duration, hex, words};

/// A scenario: a server's configuration and what is done to the server, step by step.
#[derive(Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// What else than its name says the scenario covers (`covers 2.4.6 K13`).
    pub covers: Vec<String>,
    /// Lines of the server's `.properties` file; `{home}` stands for the server's folder.
    pub config: Vec<(String, String)>,
    /// Files that lie in the server's folder before it starts: name and content.
    pub files: Vec<(String, String)>,
    /// Whether a server may refuse to start with what it finds (`may-not-start`).
    pub may_not_start: bool,
    /// Whether the Java server runs in a JVM of its own, with its TLS mode as shipped (`own-jvm`).
    pub own_jvm: bool,
    pub(super) steps: Vec<Step>,
}

/// One line of a scenario.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Action {
    /// Send and, unless one-way, show the answer.
    Ask {
        connection: String,
        request: Request,
    },
    /// Send and go on.
    Send {
        connection: String,
        request: Request,
    },
    /// Send bytes and go on.
    Bytes {
        connection: String,
        bytes: Vec<u8>,
    },
    /// Show the next arrival.
    Next {
        connection: String,
        within: Duration,
    },
    /// Show the answer with this number.
    Answer {
        connection: String,
        opaque: i64,
    },
    /// Show whether anything arrives within the time.
    Silence {
        connection: String,
        lasts: Duration,
    },
    /// Show whether the server closes within the time; frames before that are not shown.
    Closed {
        connection: String,
        within: Duration,
    },
    /// Show the next request of this code that a listener receives.
    Receive {
        listener: String,
        code: i64,
        within: Duration,
    },
    Open {
        connection: String,
    },
    Close {
        connection: String,
    },
    Reset {
        connection: String,
    },
    HalfClose {
        connection: String,
    },
    Listen {
        listener: String,
    },
    Wait {
        lasts: Duration,
    },
    /// Ask until the answer is as wanted; show the last answer.
    Until {
        connection: String,
        request: Request,
        wanted: Wanted,
        within: Duration,
    },
    /// Ask so many times at an interval; show the last answer.
    Repeat {
        connection: String,
        request: Request,
        times: u32,
        every: Duration,
    },
    /// Stop the server and start it again in its folder.
    Restart,
    /// Show a file of the server's folder, or the `banner` that it printed.
    Show {
        file: String,
    },
    /// A check of the last observation, made for the reference server only.
    Expect {
        wanted: Wanted,
    },
}

/// A condition on an answer.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The answer's code; `None`: any.
    pub(super) code: Option<i64>,
    /// Texts that its canonical form contains.
    pub(super) with: Vec<String>,
    /// Texts that its canonical form does not contain.
    pub(super) without: Vec<String>,
}

/// How long `next` and `closed` wait unless they say otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

impl Scenario {
    /// Reads a scenario; `name` is the file's name without its ending.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Syntax`] names the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario = Self {
            name: name.to_owned(),
            covers: Vec::new(),
            config: Vec::new(),
            files: Vec::new(),
            may_not_start: false,
            own_jvm: false,
            steps: Vec::new(),
        };
        let mut lets = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            scenario.read_line(at + 1, line.trim(), &mut lets).map_err(|reason| ScenarioError::Syntax {
                scenario: name.to_owned(),
                line: at + 1,
                reason,
                text: line.to_owned(),
            })?;
        }
        Ok(scenario)
    }

    fn read_line(
        &mut self,
        number: usize,
        line: &str,
        lets: &mut BTreeMap<String, Vec<String>>,
    ) -> Result<(), String> {
        let mut line_words = words(line)?;
        if line_words.is_empty() {
            return Ok(());
        }
        match line_words[0].as_str() {
            "may-not-start" => {
                self.may_not_start = true;
                self.own_jvm = true; // a server that refuses to start takes its JVM with it
            }
            "own-jvm" => self.own_jvm = true,
            "covers" => self.covers.extend(line_words.drain(1..)),
            "config" => {
                let (key, value) =
                    line["config".len()..].trim().split_once('=').ok_or("`config` needs key=value")?;
                self.config.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            "file" => {
                let rest = line["file".len()..].trim();
                let (name, content) = rest.split_once(' ').unwrap_or((rest, ""));
                self.files.push((name.to_owned(), content.trim().to_owned()));
            }
            "let" => {
                if line_words.get(2).map(String::as_str) != Some("=") {
                    return Err("`let` needs NAME = WORDS".to_owned());
                }
                let value = substitute(line_words.split_off(3), lets)?;
                lets.insert(line_words.swap_remove(1), value);
            }
            _ => {
                let action = action(&substitute(line_words, lets)?)?;
                self.steps.push(Step { line: number, text: line.to_owned(), action });
            }
        }
        Ok(())
    }
}

fn substitute(line_words: Vec<String>, lets: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for word in line_words {
        match word.strip_prefix('$') {
            Some(name) => {
                out.extend(lets.get(name).ok_or_else(|| format!("no `let {name}` above"))?.iter().cloned())
            }
            None => out.push(word),
        }
    }
    Ok(out)
}

fn action(line: &[String]) -> Result<Action, String> {
    let texts: Vec<&str> = line.iter().map(String::as_str).collect();
    match texts[..] {
        ["listen", listener] => Ok(Action::Listen { listener: listener.to_owned() }),
        ["wait", lasts] => Ok(Action::Wait { lasts: duration(lasts)? }),
        ["restart"] => Ok(Action::Restart),
        ["show", file] => Ok(Action::Show { file: file.to_owned() }),
        ["expect", ..] => Ok(Action::Expect { wanted: Wanted::parse(&line[1..])? }),
        ["within", within, connection, ..] => {
            let arrow = texts.iter().position(|word| *word == "=>").ok_or("`within` needs `=> CODE`")?;
            Ok(Action::Until {
                connection: named(connection)?,
                request: Request::parse(&line[3..arrow])?,
                wanted: Wanted::parse(&line[arrow + 1..])?,
                within: duration(within)?,
            })
        }
        ["repeat", times, "every", every, connection, ..] => Ok(Action::Repeat {
            connection: named(connection)?,
            request: Request::parse(&line[5..])?,
            times: times.parse().map_err(|_| format!("`{times}` is no number"))?,
            every: duration(every)?,
        }),
        [connection, ..] => on_connection(named(connection)?, &line[1..]),
        [] => Err("an empty step".to_owned()),
    }
}

fn named(word: &str) -> Result<String, String> {
    word.strip_suffix(':')
        .map(str::to_owned)
        .ok_or_else(|| format!("`{word}` is neither a verb nor `connection:`"))
}

fn on_connection(connection: String, line: &[String]) -> Result<Action, String> {
    let texts: Vec<&str> = line.iter().map(String::as_str).collect();
    Ok(match texts[..] {
        ["open"] => Action::Open { connection },
        ["close"] => Action::Close { connection },
        ["reset"] => Action::Reset { connection },
        ["half-close"] => Action::HalfClose { connection },
        ["raw", ..] => Action::Bytes { connection, bytes: hex(&texts[1..].concat())? },
        ["text", text] => Action::Bytes { connection, bytes: text.as_bytes().to_vec() },
        ["next"] => Action::Next { connection, within: PATIENCE },
        ["next", "within", within] => Action::Next { connection, within: duration(within)? },
        ["answer", opaque] => {
            Action::Answer { connection, opaque: opaque.parse().map_err(|_| "`answer` needs a number")? }
        }
        ["silence", lasts] => Action::Silence { connection, lasts: duration(lasts)? },
        ["closed"] => Action::Closed { connection, within: PATIENCE },
        ["closed", "within", within] => Action::Closed { connection, within: duration(within)? },
        ["receive", code, "within", within] => Action::Receive {
            listener: connection,
            code: code.parse().map_err(|_| "`receive` needs a code")?,
            within: duration(within)?,
        },
        ["send", ..] => Action::Send { connection, request: Request::parse(&line[1..])? },
        _ => Action::Ask { connection, request: Request::parse(line)? },
    })
}

impl Wanted {
    fn parse(line: &[String]) -> Result<Self, String> {
        let mut wanted = Self { code: None, with: Vec::new(), without: Vec::new() };
        let mut rest = line.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "with" => wanted.with.push(rest.next().ok_or("`with` needs a text")?.clone()),
                "without" => wanted.without.push(rest.next().ok_or("`without` needs a text")?.clone()),
                code => {
                    wanted.code = Some(
                        code.parse().map_err(|_| format!("`{code}` is neither a code nor with/without"))?,
                    );
                }
            }
        }
        Ok(wanted)
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.code {
            Some(code) => write!(f, "code {code}")?,
            None => f.write_str("any code")?,
        }
        self.with.iter().try_for_each(|text| write!(f, " with `{text}`"))?;
        self.without.iter().try_for_each(|text| write!(f, " without `{text}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_into_steps() {
        let text = "\
            # a comment\n\
            covers 2.4.6 K13\n\
            config supportActingMaster=true\n\
            file kvConfig.json {\"configTable\":{}}\n\
            let M = cluster=C name=ba id=0\n\
            \n\
            a: 103 $M addr=x:1 topics=T:8/8/6\n\
            within 10s a: 105 topic=T => 17 without x\n\
            repeat 3 every 200ms a: 904 $M oneway\n\
            a: raw 00 01\n\
            b: silence 200ms\n";
        let scenario = Scenario::parse("x", text).unwrap();
        assert_eq!(scenario.covers, ["2.4.6", "K13"]);
        assert_eq!(scenario.config, [("supportActingMaster".to_owned(), "true".to_owned())]);
        assert_eq!(scenario.steps.len(), 5);
        assert_eq!(scenario.steps[0].line, 7);
        assert!(matches!(
            &scenario.steps[1].action,
            Action::Until { wanted: Wanted { code: Some(17), .. }, .. }
        ));
        assert!(matches!(&scenario.steps[4].action, Action::Silence { .. }));
    }

    #[test]
    fn a_mistake_names_its_line() {
        let error = Scenario::parse("x", "\na: 105 topc=T").unwrap_err().to_string();
        assert!(error.starts_with("x:2:"), "{error}");
        for line in ["wait 3", "a 105", "a: 105 $M", "within 3s a: 105 topic=T", "let M a=b"] {
            assert!(Scenario::parse("x", line).is_err(), "{line}");
        }
    }
}
