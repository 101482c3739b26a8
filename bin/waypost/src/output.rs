//! Data to standard output, talk to standard error.

use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use waypost_cli::exit::Exit;
use waypost_net::plain::{plain, plain_lines};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Yellow.on_default();

/// Prints data that is text. What others chose in it cannot harm a terminal.
pub(crate) fn text(text: &str) -> ExitCode {
    data(plain_lines(text).as_bytes())
}

/// Prints data as it is: what this program itself makes. Who stops reading (`| head`) has what he wanted; any other failure is one.
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

/// Prints that a command broke down.
pub(crate) fn panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    error(&format!("panic at {place}: {message}; please report it"));
}

fn talk(kind: &str, style: Style, text: &str) {
    // Nobody is left to be told that standard error is closed.
    let _ = writeln!(anstream::stderr(), "{style}{kind}:{style:#} {}", plain(text));
}
