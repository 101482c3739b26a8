//! Data to standard output, talk to standard error.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use waypost_cli::exit::Exit;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Yellow.on_default();

/// Prints data. Who stops reading (`| head`) has what he wanted; any other failure is one.
pub(crate) fn data(data: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => {
            error(&format!("standard output cannot be written: {failure}"));
            ExitCode::from(Exit::No.code())
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints what went wrong.
pub(crate) fn error(text: &str) {
    talk("error", ERROR, text);
}

/// Prints what is done and probably not wanted.
pub(crate) fn warning(text: &str) {
    talk("warning", NOTE, text);
}

/// Prints a remark.
pub(crate) fn note(text: &str) {
    talk("note", NOTE, text);
}

fn talk(kind: &str, style: Style, text: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(anstream::stderr(), "{style}{kind}:{style:#} {text}");
}
