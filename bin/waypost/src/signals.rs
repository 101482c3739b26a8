//! The signals of a server.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from its creation on: no signal is lost between it and the first wait.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// A signal that asks the server to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopping {
    Terminate,
    Interrupt,
}

impl Stopping {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// What a shell sees of a process that the signal ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        })
    }
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal that asks to stop. Cancel safe.
    pub(crate) async fn stopping(&mut self) -> Stopping {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Stopping::Terminate,
                _ = self.interrupt.recv() => return Stopping::Interrupt,
                // A terminal that closes must not take the server with it.
                _ = self.hang_up.recv() => {
                    tracing::info!("SIGHUP changes nothing: certificates are reloaded by themselves, settings by `waypost config set`");
                }
            }
        }
    }
}
