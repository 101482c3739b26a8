//! Threads that do what would hold up route queries.
//!
//! A lane does its jobs one after the other, in the order in which they were given to it. Every
//! connection waits for its own job before it goes on, so a lane never holds more jobs than there
//! are connections.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use waypost_net::watchdog::{BEAT_PERIOD, Watch, Watchdog};

/// One piece of work. The watch is for marking progress in long work.
type Work = Box<dyn FnOnce(&mut Watch) + Send>;

/// Work, and what it is called when the watchdog reports that it hangs.
struct Job {
    note: i32,
    work: Work,
}

/// A thread and the way to give it work.
#[derive(Debug)]
pub(crate) struct Lane {
    sender: Sender<Job>,
}

/// Something that a lane does now and then between its jobs.
pub(crate) struct Chore {
    pub(crate) period: Duration,
    pub(crate) work: Box<dyn FnMut() + Send>,
}

impl Lane {
    /// Starts the thread. It ends when the lane is dropped.
    pub(crate) fn start(
        name: &'static str,
        watchdog: &Watchdog,
        prepare: impl FnOnce() + Send + 'static,
        chore: Option<Chore>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, jobs) = channel();
        let mut watch = watchdog.watch(name, 0);
        watch.begin(0);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _guard = FailByClosing(name);
            prepare();
            run(&jobs, watch, chore);
        })?;
        Ok((Self { sender }, thread))
    }

    /// Gives work to the thread. Work given after the thread has ended is dropped, which its caller
    /// sees by the channel that the work would have answered on.
    pub(crate) fn give(&self, note: i32, work: impl FnOnce(&mut Watch) + Send + 'static) {
        // Failure drops the job: see above.
        drop(self.sender.send(Job { note, work: Box::new(work) }));
    }
}

/// A lane that panicked would leave its connections without answers for ever: the process ends
/// instead, and clients go elsewhere (decision 15).
struct FailByClosing(&'static str);

impl Drop for FailByClosing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(lane = self.0, "a lane panicked: the process aborts so that clients leave it");
            std::process::abort();
        }
    }
}

/// The watch never rests: a lane that hangs while it waits would not take the next job either.
fn run(jobs: &Receiver<Job>, mut watch: Watch, mut chore: Option<Chore>) {
    let clock = waypost_net::clock::Clock::system();
    let mut due = chore.as_ref().map(|chore| clock.now().after(chore.period));
    loop {
        watch.progress(0);
        let pause = due.map_or(BEAT_PERIOD, |due| due.since(clock.now()).min(BEAT_PERIOD));
        match jobs.recv_timeout(pause) {
            Ok(job) => {
                watch.progress(job.note);
                (job.work)(&mut watch);
                watch.progress(0);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let (Some(chore), Some(at)) = (&mut chore, &mut due)
            && *at <= clock.now()
        {
            (chore.work)();
            *at = clock.now().after(chore.period);
        }
    }
}
