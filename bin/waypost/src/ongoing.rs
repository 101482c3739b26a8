//! Commands that go on: what they say is printed as they say it, a signal ends them.

use std::future::pending;
use std::io;
use std::process::ExitCode;

use tokio::sync::mpsc::UnboundedReceiver;
use waypost_cli::arguments::Output;
use waypost_cli::run::Report;
use waypost_cli::voice::Voice;
use waypost_net::tasks::Stop;

use crate::output;
use crate::signals::Signals;

/// Runs `command` until it ends. The first SIGINT or SIGTERM asks it to end, a second one ends it at once; so does
/// a reader that went away.
pub(crate) fn go_on(form: Output, command: impl AsyncFnOnce(&Voice, &Stop) -> Report) -> ExitCode {
    let started = tokio::runtime::Builder::new_multi_thread().thread_name("waypost").enable_all().build();
    let runtime = match started {
        Ok(runtime) => runtime,
        Err(error) => return crate::report(Err(error)),
    };
    let ended = runtime.block_on(async {
        let mut signals = Signals::of_command()?;
        let (voice, mut heard) = Voice::new(form);
        let stop = Stop::new();
        let (voice, asked) = (&voice, &stop);
        let command = async move { command(voice, asked).await };
        let report = tokio::select! {
            report = command => Ok(report),
            () = pass_on(&mut signals, &stop) => Err(ExitCode::SUCCESS),
            () = print(&mut heard) => Err(ExitCode::SUCCESS),
        };
        // What was said last.
        while let Ok(line) = heard.try_recv() {
            if !print_line(&line) {
                break;
            }
        }
        Ok(report)
    });
    runtime.shutdown_background();
    match ended {
        Ok(Ok(report)) => crate::report(Ok(report)),
        Ok(Err(code)) => code,
        Err(error) => crate::report(Err(error)),
    }
}

/// Passes the signal on that asks to stop.
async fn pass_on(signals: &mut Signals, stop: &Stop) {
    signals.stopping().await;
    stop.request();
    pending().await
}

/// Prints what is heard, as long as somebody reads it.
async fn print(heard: &mut UnboundedReceiver<String>) {
    while let Some(line) = heard.recv().await {
        if !print_line(&line) {
            return;
        }
    }
    pending().await
}

fn print_line(line: &str) -> bool {
    let mut out = io::stdout().lock();
    let written = io::Write::write_all(&mut out, format!("{line}\n").as_bytes());
    match written.and_then(|()| io::Write::flush(&mut out)) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != io::ErrorKind::BrokenPipe {
                output::error(&format!("standard output cannot be written: {error}"));
            }
            false
        }
    }
}
