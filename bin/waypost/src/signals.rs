//! The signals of a program that goes on.
//!
//! A thread of its own takes them: whatever the others wait for (a disk that hangs, a reader that does not read), the
//! second signal that asks for the end ends the process.

use std::io;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal as Kind, getpid, kill_process};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::logs;

/// How long an orderly exit may take after the second signal: it waits for locks that others may hold.
const EXIT_LIMIT: Duration = Duration::from_secs(1);

/// What signals wished for. From its creation on none is lost.
pub(crate) struct Signals {
    wishes: UnboundedReceiver<Wish>,
}

/// A signal that asks the program to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopping {
    Terminate,
    Interrupt,
}

/// What a signal wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// The end.
    Stop(Stopping),
    /// Files to be read again (SIGHUP).
    Reload,
}

impl Stopping {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// What a shell sees of a process that the signal ended.
    const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        }
    }
}

impl Signals {
    /// Catches what a server is sent: SIGTERM, SIGINT and SIGHUP.
    pub(crate) fn of_server() -> io::Result<Self> {
        Self::start(true)
    }

    /// Catches what asks a command to stop. SIGHUP ends it: its terminal is gone.
    pub(crate) fn of_command() -> io::Result<Self> {
        Self::start(false)
    }

    fn start(with_hang_up: bool) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let caught = {
            let _inside = runtime.enter();
            Caught {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hang_up: if with_hang_up { Some(signal(SignalKind::hangup())?) } else { None },
            }
        };
        let (sender, wishes) = unbounded_channel();
        thread::Builder::new().name("signals".into()).spawn(move || pass_on(&runtime, caught, &sender))?;
        Ok(Self { wishes })
    }

    /// Waits for the next signal; the second that asks for the end never comes here. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        match self.wishes.recv().await {
            Some(wish) => wish,
            // The thread ends with the process only.
            None => std::future::pending().await,
        }
    }

    /// Waits for the signal that asks to stop. Cancel safe.
    pub(crate) async fn stopping(&mut self) -> Stopping {
        loop {
            match self.next().await {
                Wish::Stop(signal) => return signal,
                // A terminal that closes must not take the server with it.
                Wish::Reload => {
                    tracing::info!(
                        "SIGHUP changes nothing: certificates are reloaded by themselves, settings by `waypost config set`"
                    );
                }
            }
        }
    }
}

struct Caught {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl Caught {
    async fn next(&mut self) -> Wish {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop(Stopping::Terminate),
            _ = self.interrupt.recv() => Wish::Stop(Stopping::Interrupt),
            _ = hang_up => Wish::Reload,
        }
    }
}

/// Says on what is caught; ends the process when it is asked to stop for the second time.
fn pass_on(runtime: &Runtime, mut caught: Caught, wishes: &UnboundedSender<Wish>) {
    let mut asked = false;
    loop {
        let wish = runtime.block_on(caught.next());
        if let Wish::Stop(signal) = wish {
            if asked {
                end(signal);
            }
            asked = true;
        }
        // Whoever does not listen any more is about to end.
        let _ = wishes.send(wish);
    }
}

/// Ends the process now, and not later than in some seconds.
fn end(signal: Stopping) -> ! {
    tracing::warn!(signal = signal.name(), "ended at once");
    logs::flush();
    // If there is no thread for it, the exit alone has to do.
    let _ = thread::Builder::new().name("end".into()).spawn(|| {
        thread::sleep(EXIT_LIMIT);
        kill_process(getpid(), Kind::KILL)
    });
    std::process::exit(signal.exit_code().into())
}
