//! mqadmin, in one JVM for many commands.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::java::java;
use super::process::{Process, Scratch};
use super::{PeerError, Version, Workshop};

/// The slowest command waits for several time-outs of its own.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// What ends the output of a command; see `Admin.java`.
const END_MARK: &str = "\u{4}";

/// What one command printed, standard error included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The command with its arguments.
    pub command: Vec<String>,
    /// Its text.
    pub text: String,
}

/// A JVM that runs mqadmin commands, one after the other.
#[derive(Debug)]
pub struct Mqadmin {
    version: Version,
    input: ChildStdin,
    lines: Receiver<String>,
    _process: Process,
    _home: Scratch,
}

impl Mqadmin {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If the jars cannot be had. A JVM that does not start fails the test at once.
    pub fn start(workshop: &Workshop, version: Version) -> Result<Self, PeerError> {
        let home = Scratch::new(&format!("mqadmin-{version}"));
        let mut command = java(workshop, version, home.path())?;
        command.args(["-Xmx256m", "-Dpeer.log.level=OFF", "Admin"]);
        let mut process =
            Process::start_piped(&format!("mqadmin-{version}"), &mut command, &home.path().join("peer.log"));
        let (input, output) = process.pipes().expect("invariant: started with pipes");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut admin = Self { version, input, lines, _process: process, _home: home };
        admin.read_output("start");
        Ok(admin)
    }

    /// Runs `commands` in a JVM of their own.
    ///
    /// # Errors
    ///
    /// As [`Mqadmin::start`].
    pub fn batch<S: AsRef<str>>(
        workshop: &Workshop,
        version: Version,
        commands: &[&[S]],
    ) -> Result<Vec<Output>, PeerError> {
        let mut admin = Self::start(workshop, version)?;
        Ok(commands.iter().map(|command| admin.run(command)).collect())
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Runs one command. No argument may contain a tab or a line end.
    ///
    /// # Panics
    ///
    /// If the JVM dies or does not answer in time.
    pub fn run<S: AsRef<str>>(&mut self, command: &[S]) -> Output {
        let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let sent = writeln!(self.input, "{}", command.join("\t"));
        assert!(sent.is_ok(), "mqadmin {} is gone: {sent:?}", self.version);
        let text = self.read_output(&command.join(" "));
        Output { command, text }
    }

    fn read_output(&mut self, command: &str) -> String {
        let end = Instant::now() + COMMAND_DEADLINE;
        let mut text = String::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                // Some commands do not end their last line.
                Ok(line) if line.ends_with(END_MARK) => {
                    text.push_str(line.trim_end_matches(END_MARK));
                    return text;
                }
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "mqadmin {} {command}: no end within {COMMAND_DEADLINE:?}, but\n{text}",
                        self.version
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("mqadmin {} {command}: its JVM ended after\n{text}", self.version)
                }
            }
        }
    }
}
