//! What systemd does with `Restart=always`, for a child of a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::peers::{Process, Signal};

/// From the end of a child to the start of the next, unless said otherwise: systemd's default.
const RESTART_AFTER: Duration = Duration::from_millis(100);

/// How often it looks whether the child lives.
const POLL: Duration = Duration::from_millis(5);

/// A child process that is started again after its end, until this value is dropped.
#[derive(Debug)]
pub struct Supervised {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    log: PathBuf,
    stopping: AtomicBool,
    restart_after: Duration,
    restarts: AtomicU32,
    process: Mutex<Option<Process>>,
}

impl Supervised {
    /// Starts the command that `command` makes, now and 100 ms after each end. What it writes is appended to `log`.
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    pub fn start(name: &str, log: &Path, command: impl FnMut() -> Command + Send + 'static) -> Self {
        Self::start_with(name, log, RESTART_AFTER, command)
    }

    pub(crate) fn start_with(
        name: &str,
        log: &Path,
        restart_after: Duration,
        mut command: impl FnMut() -> Command + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            log: log.to_owned(),
            stopping: AtomicBool::new(false),
            restart_after,
            restarts: AtomicU32::new(0),
            process: Mutex::new(None),
        });
        let watched = Arc::clone(&shared);
        // The first start too is the thread's: the kernel may tie a child to the thread that started it.
        let thread = std::thread::spawn(move || watched.watch(&mut command));
        let supervised = Self { shared, thread: Some(thread) };
        while supervised.shared.with(|process| process.is_none()) {
            let ended = supervised.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "{name} cannot be started");
            std::thread::sleep(POLL);
        }
        supervised
    }

    /// Kill -9 of the child that runs now; when it was dead.
    pub fn kill(&self) -> Instant {
        self.shared.with(|process| process.iter_mut().for_each(Process::kill));
        Instant::now()
    }

    /// Sends a signal to the child that runs now.
    ///
    /// # Panics
    ///
    /// If none runs at this moment.
    pub fn send(&self, signal: Signal) {
        self.shared.with(|process| process.as_mut().expect("started").send(signal));
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.shared.restarts.load(Ordering::Relaxed)
    }

    /// The process id of the child that runs now, or ran last.
    pub fn id(&self) -> u32 {
        self.shared.with(|process| process.as_ref().map_or(0, Process::id))
    }

    /// What its children have logged so far.
    pub fn log(&self) -> String {
        self.shared.with(|process| process.as_ref().map(Process::log)).unwrap_or_default()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn with<T>(&self, look: impl FnOnce(&mut Option<Process>) -> T) -> T {
        look(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn watch(&self, command: &mut dyn FnMut() -> Command) {
        self.with(|slot| *slot = Some(Process::start(&self.name, &mut command(), &self.log)));
        while !self.stopping.load(Ordering::Relaxed) {
            let ended = self.with(|slot| slot.as_mut().is_some_and(|process| process.ended().is_some()));
            if ended {
                std::thread::sleep(self.restart_after);
                self.with(|slot| *slot = Some(Process::start(&self.name, &mut command(), &self.log)));
                self.restarts.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(POLL);
        }
        self.with(|slot| drop(slot.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Scratch, poll_until};

    #[test]
    fn what_is_killed_is_started_again() {
        let folder = Scratch::new("supervisor");
        let supervised = Supervised::start("sleeper", &folder.path().join("log"), || {
            let mut command = Command::new("sleep");
            command.arg("60");
            command
        });
        let first = supervised.id();
        let killed = supervised.kill();
        let again =
            poll_until(Duration::from_secs(5), || (supervised.restarts() == 1).then(|| killed.elapsed()));
        assert!(again.is_some_and(|took| took >= RESTART_AFTER), "{again:?}");
        let second = supervised.id();
        assert_ne!(first, second);
        drop(supervised);
        assert!(!Path::new(&format!("/proc/{second}")).exists());
    }
}
