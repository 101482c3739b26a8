//! One child process: its log, its signals, its end.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often a condition is looked at while waiting for it.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A signal stops a process within microseconds, on a machine that has a core for it.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Lines of a log that a failing test prints.
const LOG_TAIL: usize = 40;

/// Looks at `condition` until it gives a value or `deadline` has passed; `None` then.
pub fn poll_until<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// A temporary folder that goes away on drop, except when the test fails: then it stays and its name is printed.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder whose name starts with `waypost-` and `name`.
    ///
    /// # Panics
    ///
    /// If the folder cannot be made.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("waypost-{name}-{}-{number}", std::process::id()));
        let made = std::fs::create_dir_all(&path);
        assert!(made.is_ok(), "cannot make {}: {made:?}", path.display());
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "kept for inspection: {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// The signals that tests send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: stop cleanly.
    Terminate,
    /// SIGKILL: die at once.
    Kill,
    /// SIGSTOP: freeze, sockets stay open.
    Stop,
    /// SIGCONT: go on after [`Signal::Stop`].
    Continue,
}

/// A child process, killed on drop. Standard error, and standard output unless the caller pipes it, go to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`. What it writes is appended to `log`.
    ///
    /// # Panics
    ///
    /// If the program or the log file cannot be started or made: no test can go on without it.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Self {
        let file = open_log(log);
        let output = file.try_clone().unwrap_or_else(|error| panic!("cannot use {}: {error}", log.display()));
        Self::spawn(name, command.stdin(Stdio::null()).stdout(output).stderr(file), log)
    }

    /// Starts `command` with pipes to its standard input and output; only its standard error goes to `log`.
    ///
    /// # Panics
    ///
    /// As [`Process::start`].
    pub fn start_piped(name: &str, command: &mut Command, log: &Path) -> Self {
        Self::spawn(name, command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(open_log(log)), log)
    }

    fn spawn(name: &str, command: &mut Command, log: &Path) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), child, log: log.to_owned(), ended: None }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the test calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pipes, once each, if it was started with [`Process::start_piped`].
    pub fn pipes(&mut self) -> Option<(std::process::ChildStdin, std::process::ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits until `find` sees what it looks for in the log after byte `from`.
    ///
    /// # Panics
    ///
    /// After `deadline`, or as soon as the process has ended without it.
    pub fn wait_for_log<T>(
        &mut self,
        what: &str,
        from: usize,
        deadline: Duration,
        find: impl Fn(&str) -> Option<T>,
    ) -> T {
        let found = poll_until(deadline, || {
            let ended = self.ended();
            let text = self.log();
            let found = find(text.get(from..).unwrap_or_default());
            if found.is_none() {
                assert!(ended.is_none(), "{} ended ({ended:?}) before: {what}\n{}", self.name, tail(&text));
            }
            found
        });
        found.unwrap_or_else(|| panic!("{}: no {what} in its log within {deadline:?}", self.name))
    }

    /// Sends `signal` to this process and no other.
    ///
    /// # Panics
    ///
    /// If the process has ended already.
    pub fn send(&mut self, signal: Signal) {
        let ended = self.ended();
        assert!(ended.is_none(), "{} has ended already: {ended:?}", self.name);
        let pid = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw);
        let signal = match signal {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Continue => rustix::process::Signal::CONT,
        };
        let sent = pid.map(|pid| rustix::process::kill_process(pid, signal));
        assert!(matches!(sent, Some(Ok(()))), "cannot signal {}: {sent:?}", self.name);
    }

    /// SIGSTOP, and waits until every thread stands still.
    ///
    /// # Panics
    ///
    /// If the process has ended already, or does not stop.
    pub fn stand_still(&mut self) {
        self.send(Signal::Stop);
        let tasks = format!("/proc/{}/task", self.id());
        let stopped = poll_until(STOP_DEADLINE, || {
            let all = std::fs::read_dir(&tasks).ok()?.all(|task| {
                let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
                stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T')))
            });
            all.then_some(())
        });
        assert!(stopped.is_some(), "{} does not stop", self.name);
    }

    /// Kill -9, and wait until it is gone.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Panics
    ///
    /// If it still runs after `deadline`.
    pub fn terminate(&mut self, deadline: Duration) -> ExitStatus {
        self.send(Signal::Terminate);
        self.wait_until_ended(deadline)
    }

    /// Waits for the end.
    ///
    /// # Panics
    ///
    /// If it still runs after `deadline`.
    pub fn wait_until_ended(&mut self, deadline: Duration) -> ExitStatus {
        let ended = poll_until(deadline, || self.ended());
        ended.unwrap_or_else(|| panic!("{} still runs after {deadline:?}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let _ =
                writeln!(std::io::stderr(), "---- end of the log of {}:\n{}", self.name, tail(&self.log()));
        }
    }
}

fn open_log(path: &Path) -> File {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()))
}

fn tail(text: &str) -> String {
    // A Java server logs several hundred settings when it starts.
    let lines: Vec<&str> = text.lines().filter(|line| !is_setting(line)).collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

/// Whether a line ends in `name=value`.
fn is_setting(line: &str) -> bool {
    line.rsplit_once(" - ").is_some_and(|(_, what)| what.contains('=') && !what.contains(' '))
}
