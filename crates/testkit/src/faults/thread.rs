//! One thread of a child that no longer runs, while all others do.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::peers::poll_until;

/// How often it looks whether the process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A thread names itself once it runs.
const NAMED_WITHIN: Duration = Duration::from_secs(20);

/// A thread that is stopped, as by a debugger, until this value is dropped or its process ends.
#[derive(Debug)]
pub struct HeldThread {
    released: Arc<AtomicBool>,
    holder: Option<JoinHandle<()>>,
}

impl HeldThread {
    /// Stops the thread `name` of the child `process`, and waits until it stands. Of several with one name it is the
    /// first.
    ///
    /// # Panics
    ///
    /// If there is no such thread, or the kernel does not let it be stopped.
    pub fn hold(process: u32, name: &str) -> Self {
        let thread = poll_until(NAMED_WITHIN, || thread_of(process, name));
        let thread = thread.unwrap_or_else(|| panic!("{process} has no thread {name}"));
        let released = Arc::new(AtomicBool::new(false));
        let (stands, standing) = channel();
        let holder = {
            let released = Arc::clone(&released);
            // The kernel ties what is traced to the thread that traces.
            std::thread::spawn(move || hold(thread, &stands, &released))
        };
        let held = Self { released, holder: Some(holder) };
        assert!(standing.recv().is_ok(), "the thread {name} of {process} cannot be stopped");
        held
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Relaxed);
        let _ = self.holder.take().map(JoinHandle::join);
    }
}

fn hold(thread: Pid, stands: &Sender<()>, released: &AtomicBool) {
    let stopped = ptrace::seize(thread, ptrace::Options::empty()).and_then(|()| ptrace::interrupt(thread));
    assert!(stopped.is_ok(), "thread {thread} cannot be traced: {stopped:?}");
    let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
    while !released.load(Ordering::Relaxed) {
        // A traced thread that ends is waited for by whoever traces it.
        match waitpid(thread, Some(flags)) {
            Ok(WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)) => drop(stands.send(())),
            Ok(WaitStatus::StillAlive) => {}
            Ok(_) | Err(_) => return,
        }
        std::thread::sleep(LOOK);
    }
    // The end of this thread lets it go on.
}

fn thread_of(process: u32, name: &str) -> Option<Pid> {
    // The kernel keeps 15 bytes of a name.
    let name = name.get(..15).unwrap_or(name);
    let tasks = format!("/proc/{process}/task");
    let mut threads: Vec<i32> = std::fs::read_dir(&tasks)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|thread| {
            let comm = std::fs::read_to_string(Path::new(&tasks).join(format!("{thread}/comm")));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        })
        .collect();
    threads.sort_unstable();
    threads.first().copied().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::peers::Process;

    #[test]
    fn a_held_thread_stands_until_it_is_released() {
        let folder = crate::peers::Scratch::new("thread");
        let process = Process::start("sleeper", Command::new("sleep").arg("60"), &folder.path().join("log"));
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it lives");
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
        };
        let exec = poll_until(Duration::from_secs(20), || {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.id())).ok()?;
            (comm.trim() == "sleep").then_some(())
        });
        assert!(exec.is_some(), "it does not start");
        let held = HeldThread::hold(process.id(), "sleep");
        assert_eq!(state(), Some('t'));
        drop(held);
        assert_ne!(state(), Some('t'));
    }
}
