//! Logs: one line an event, to standard error.
//!
//! A thread of its own writes the lines: standard error may be a pipe that nobody reads, and a server that
//! waits for it would hang. Lines that find no room are dropped and counted.

mod fields;

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use waypost_net::plain::{plain, plain_json};
use waypost_rocketmq_nameserver::config::{LogFormat, Logs};

use self::fields::TextFields;

/// Lines that may wait: some seconds of the worst log, a few megabytes.
const LINES_MAX: usize = 8_192;

static QUEUE: OnceLock<SyncSender<Item>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

enum Item {
    Line(Vec<u8>),
    /// Answered once everything before it is written.
    Mark(SyncSender<()>),
}

/// Starts logging. `RUST_LOG` narrows or widens what the setting says.
///
/// # Errors
///
/// When there is no thread for it.
pub(crate) fn start(logs: &Logs) -> io::Result<()> {
    let (sender, lines) = sync_channel(LINES_MAX);
    let format = logs.format;
    thread::Builder::new().name("logs".into()).spawn(move || write_all(&lines, format))?;
    // It is called once, by the one command that serves.
    let _ = QUEUE.set(sender);
    let (filter, complaint) = filter(logs);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(ToQueue);
    match format {
        LogFormat::Text => builder.fmt_fields(TextFields).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    if let Some(error) = complaint {
        tracing::warn!(%error, "RUST_LOG is ignored");
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn filter(logs: &Logs) -> (EnvFilter, Option<String>) {
    let by_setting = || EnvFilter::new(logs.level.word());
    match std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty()) {
        None => (by_setting(), None),
        Some(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (by_setting(), Some(error.to_string())),
        },
    }
}

/// How often and how long apart a full queue is tried before the last lines are given up: a second in all.
const MARK_TRIES: u32 = 200;
const MARK_PAUSE: Duration = Duration::from_millis(5);

/// Waits until what was logged is written, but not for long: whoever reads may be the one who hangs.
pub(crate) fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let (sender, written) = sync_channel(1);
    let mut mark = Item::Mark(sender);
    for _ in 0..MARK_TRIES {
        match queue.try_send(mark) {
            Ok(()) => break,
            Err(TrySendError::Full(back)) => mark = back,
            Err(TrySendError::Disconnected(_)) => return,
        }
        thread::sleep(MARK_PAUSE);
    }
    // What is not written by then is lost.
    let _ = written.recv_timeout(Duration::from_secs(1));
}

fn write_all(lines: &Receiver<Item>, format: LogFormat) {
    let mut out = io::stderr();
    while let Ok(item) = lines.recv() {
        // Nobody is left to be told that standard error cannot be written.
        let _ = match item {
            Item::Line(line) => out.write_all(harmless(&line, format).as_bytes()),
            Item::Mark(done) => done.try_send(()).map_err(io::Error::other),
        };
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = "log lines were lost: standard error is read too slowly";
            let _ = match format {
                LogFormat::Text => writeln!(out, "WARN waypost::logs: {text} lines={lost}"),
                LogFormat::Json => {
                    writeln!(
                        out,
                        "{{\"level\":\"WARN\",\"target\":\"waypost::logs\",\"message\":\"{text}\",\"lines\":{lost}}}"
                    )
                }
            };
        }
    }
}

/// The line with its end and no other. Names of brokers and topics are in it, and whatever else peers send: an event must
/// stay one line, and nothing in it may move a terminal's cursor. (The JSON formatter escapes C0 characters only.)
fn harmless(line: &[u8], format: LogFormat) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    let mut line = match format {
        LogFormat::Text => plain(line),
        LogFormat::Json => plain_json(line),
    };
    line.push('\n');
    line
}

/// One line in the log instead of several on standard error; the thread's work is lost, the process goes on.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current().name().unwrap_or("unnamed").to_owned();
    tracing::error!(place, thread, message = %format_args!("panic: {message}; please report it"));
    flush();
}

struct ToQueue;

impl<'a> MakeWriter<'a> for ToQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for ToQueue {
    /// Takes a whole line: that is how the formatter writes.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(queue) = QUEUE.get()
            && let Err(TrySendError::Full(_)) = queue.try_send(Item::Line(line.to_vec()))
        {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
