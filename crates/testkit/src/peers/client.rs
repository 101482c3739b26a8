//! Producers and consumers written in other languages, with one protocol for all: see `tests/interop/README.md`.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::java::{java, mortal};
use super::process::{Process, Scratch, poll_until};
use super::{PeerError, Version, Workshop};

/// Clients that find no route try again for a while before they say that they are ready.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// An answer to a question that takes no work.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// What marks the lines of the protocol among what a library prints.
const MARK: &str = ">> ";

/// Which client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// The Java client of a version.
    Java(Version),
    /// rocketmq-client-go v2.
    Go,
    /// The C++ library in the Python package `rocketmq`.
    Cpp,
}

impl ClientKind {
    /// The tools that fetching and running it needs.
    pub fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Java(_) => &["java", "javac", "mvn"],
            Self::Go => &["go"],
            Self::Cpp => &["python3"],
        }
    }

    /// A name without spaces, for groups and topics.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Java(Version::V5) => "java5",
            Self::Java(Version::V4) => "java4",
            Self::Go => "go",
            Self::Cpp => "cpp",
        }
    }
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Java(version) => write!(f, "Java client {version}"),
            Self::Go => f.write_str("Go client"),
            Self::Cpp => f.write_str("C++ client"),
        }
    }
}

/// How a request to send messages went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Messages that the broker has stored.
    pub stored: usize,
    /// One line for each message that could not be sent.
    pub failures: Vec<String>,
}

/// What the consumer has seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Different messages.
    pub distinct: usize,
    /// Deliveries beyond the first of a message.
    pub repeated: usize,
}

/// A process with one producer and one consumer.
#[derive(Debug)]
pub struct Client {
    kind: ClientKind,
    input: ChildStdin,
    lines: Receiver<String>,
    process: Process,
    _home: Scratch,
}

impl Client {
    /// Starts the client and waits until its producer and consumer have started. The consumer reads all `topics`,
    /// which must exist.
    ///
    /// # Errors
    ///
    /// If the client cannot be fetched or built. One that does not start fails the test at once.
    pub fn start(
        workshop: &Workshop,
        kind: ClientKind,
        name_servers: &str,
        group: &str,
        topics: &[String],
    ) -> Result<Self, PeerError> {
        let home = Scratch::new(kind.slug());
        let mut command = match kind {
            ClientKind::Java(version) => {
                let mut command = java(workshop, version, home.path())?;
                command.args(["-Xmx256m", "-Drocketmq.client.logUseSlf4j=true", "Exchange"]);
                command
            }
            ClientKind::Go => mortal(workshop.go_client()?),
            ClientKind::Cpp => {
                let (interpreter, script) = workshop.python_client()?;
                let mut command = mortal(interpreter);
                command.arg(script);
                command
            }
        };
        // The libraries write logs and offsets under the home folder.
        command.env("HOME", home.path()).env_remove("NAMESRV_ADDR").current_dir(home.path());
        command.arg(name_servers).arg(group).args(topics);
        Ok(Self::run(kind, &mut command, home))
    }

    fn run(kind: ClientKind, command: &mut Command, home: Scratch) -> Self {
        let mut process = Process::start_piped(&kind.to_string(), command, &home.path().join("peer.log"));
        let (input, output) = process.pipes().expect("invariant: started with pipes");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Some(line) = line.strip_prefix(MARK) else { continue };
                if sender.send(line.to_owned()).is_err() {
                    return;
                }
            }
        });
        let client = Self { kind, input, lines, process, _home: home };
        client.expect_line("ready", START_DEADLINE);
        client
    }

    /// Which library it is.
    pub fn kind(&self) -> ClientKind {
        self.kind
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks the producer for `count` messages to `topic` with `pause` after each; [`Client::sent`] waits for the end.
    pub fn begin_sending(&mut self, topic: &str, count: usize, pause: Duration) {
        self.say(&format!("send {topic} {count} {}", pause.as_millis()));
    }

    /// Waits for the end of the oldest [`Client::begin_sending`] that is not over.
    ///
    /// # Panics
    ///
    /// If the client dies or has not sent everything within `deadline`.
    pub fn sent(&mut self, deadline: Duration) -> Sent {
        let end = Instant::now() + deadline;
        let mut failures = Vec::new();
        loop {
            let line = self.next_line("sent", end.saturating_duration_since(Instant::now()));
            if let Some(failure) = line.strip_prefix("failure ") {
                failures.push(failure.to_owned());
                continue;
            }
            let stored = line.strip_prefix("sent ").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
            let stored = stored.unwrap_or_else(|| panic!("{}: unexpected line {line:?}", self.kind));
            return Sent { stored, failures };
        }
    }

    /// What the consumer has received.
    ///
    /// # Panics
    ///
    /// If the client does not answer.
    pub fn received(&mut self) -> Received {
        self.say("received");
        let line = self.expect_line("received", ANSWER_DEADLINE);
        let numbers: Vec<usize> = line.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        let &[distinct, repeated] = numbers.as_slice() else {
            panic!("{}: unexpected line {line:?}", self.kind)
        };
        Received { distinct, repeated }
    }

    /// Waits until the consumer has received `count` different messages; what it has received at the end either way.
    pub fn wait_for_received(&mut self, count: usize, deadline: Duration) -> Received {
        let done =
            poll_until(deadline, || Some(self.received()).filter(|received| received.distinct >= count));
        done.unwrap_or_else(|| self.received())
    }

    fn say(&mut self, line: &str) {
        let sent = writeln!(self.input, "{line}");
        assert!(sent.is_ok(), "{} is gone: {sent:?}", self.kind);
    }

    fn expect_line(&self, start: &str, deadline: Duration) -> String {
        let line = self.next_line(start, deadline);
        assert!(line.starts_with(start), "{}: {line:?} instead of {start:?}", self.kind);
        line
    }

    fn next_line(&self, what: &str, deadline: Duration) -> String {
        self.lines
            .recv_timeout(deadline)
            .unwrap_or_else(|error| panic!("{}: no line {what:?} within {deadline:?} ({error})", self.kind))
    }
}
