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

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop(Stopping::Terminate),
            _ = self.interrupt.recv() => Wish::Stop(Stopping::Interrupt),
            _ = self.hang_up.recv() => Wish::Reload,
        }
    }

    /// Waits for the next signal that asks to stop. Cancel safe.
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
