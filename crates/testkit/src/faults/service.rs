//! What systemd does with a unit of type `notify`: waits for `READY=1`, kills a process whose `WATCHDOG=1` stays away,
//! starts what ended again.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Supervised;
use crate::peers::{Scratch, Signal};

/// How often it looks whether a sign of life is overdue.
const LOOK: Duration = Duration::from_millis(20);

/// The lines of a unit file that say when its process is killed and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// `WatchdogSec=`.
    pub watchdog: Duration,
    /// `RestartSec=`.
    pub restart_after: Duration,
}

/// A process under a service manager.
#[derive(Debug)]
pub struct Service {
    // Before the thread that reads what it says.
    process: Arc<Supervised>,
    heard: Arc<Heard>,
    thread: Option<JoinHandle<()>>,
    _folder: Scratch,
}

#[derive(Debug, Default)]
struct Heard {
    ready: AtomicU32,
    signs: AtomicU32,
    kills: AtomicU32,
    ended: AtomicBool,
}

impl Unit {
    /// Reads a unit file.
    ///
    /// # Panics
    ///
    /// If it is not of type `notify`, has no watchdog that kills at once, or is not restarted always: systemd would not
    /// do what is played here.
    pub fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file);
        let text = text.unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("no {key}= in {}", file.display()))
        };
        assert_eq!((value("Type"), value("Restart")), ("notify", "always"), "{}", file.display());
        // A stopped process keeps SIGABRT, systemd's choice, until it is continued.
        assert_eq!(value("WatchdogSignal"), "SIGKILL", "{}", file.display());
        Self { watchdog: span(value("WatchdogSec")), restart_after: span(value("RestartSec")) }
    }
}

/// A span as in a unit file: seconds, or with the unit `ms` or `s`.
fn span(text: &str) -> Duration {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000),
    };
    let number: u64 = number.trim().parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Duration::from_millis(number * unit)
}

impl Service {
    /// Starts the command that `command` makes, as `unit` says. What it writes is appended to `log`.
    ///
    /// # Panics
    ///
    /// If the program or the socket for its notices cannot be started or made.
    pub fn start(
        name: &str,
        unit: Unit,
        log: &Path,
        mut command: impl FnMut() -> Command + Send + 'static,
    ) -> Self {
        let folder = Scratch::new("service");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path);
        let socket = socket.unwrap_or_else(|error| panic!("no socket at {}: {error}", path.display()));
        let granted = unit.watchdog.as_micros().to_string();
        let process = Arc::new(Supervised::start_with(name, log, unit.restart_after, move || {
            let mut command = command();
            command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", &granted).env_remove("WATCHDOG_PID");
            command
        }));
        let heard = Arc::new(Heard::default());
        let thread = {
            let (process, heard) = (Arc::clone(&process), Arc::clone(&heard));
            std::thread::spawn(move || heard.listen(&socket, unit.watchdog, &process))
        };
        Self { process, heard, thread: Some(thread), _folder: folder }
    }

    /// How often it has said that it is ready.
    pub fn ready(&self) -> u32 {
        self.heard.ready.load(Ordering::Relaxed)
    }

    /// How many signs of life it gave.
    pub fn signs(&self) -> u32 {
        self.heard.signs.load(Ordering::Relaxed)
    }

    /// How often it was killed for silence.
    pub fn kills(&self) -> u32 {
        self.heard.kills.load(Ordering::Relaxed)
    }

    /// Sends a signal to the process that runs now.
    ///
    /// # Panics
    ///
    /// If none runs at this moment.
    pub fn send(&self, signal: Signal) {
        self.process.send(signal);
    }

    /// What its processes have logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.heard.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Heard {
    fn listen(&self, socket: &UnixDatagram, granted: Duration, process: &Supervised) {
        let mut overdue_at = None;
        let mut notice = [0; 4_096];
        let set = socket.set_read_timeout(Some(LOOK));
        assert!(set.is_ok(), "no limit for reading: {set:?}");
        while !self.ended.load(Ordering::Relaxed) {
            match socket.recv(&mut notice) {
                Ok(length) => {
                    for line in String::from_utf8_lossy(&notice[..length]).lines() {
                        match line {
                            "READY=1" => {
                                self.ready.fetch_add(1, Ordering::Relaxed);
                                overdue_at = Some(Instant::now() + granted);
                            }
                            // One of a process that has been killed since counts for nothing.
                            "WATCHDOG=1" if overdue_at.is_some() => {
                                self.signs.fetch_add(1, Ordering::Relaxed);
                                overdue_at = Some(Instant::now() + granted);
                            }
                            _ => {}
                        }
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("the notices cannot be read: {error}"),
            }
            if overdue_at.is_some_and(|overdue_at| Instant::now() >= overdue_at) {
                overdue_at = None;
                self.kills.fetch_add(1, Ordering::Relaxed);
                process.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_systemd_reads_them() {
        assert_eq!(span("100ms"), Duration::from_millis(100));
        assert_eq!(span("10"), Duration::from_secs(10));
        assert_eq!(span("1s"), Duration::from_secs(1));
    }
}
