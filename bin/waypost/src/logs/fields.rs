//! The fields of an event in the text format.

use std::fmt::{self, Debug};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use waypost_net::plain::plain;

/// `message name=value name="text"`. The stock formatter writes texts as `Debug` does, which escapes the vowel signs and
/// accents of many scripts; here they stay readable.
pub(super) struct TextFields;

impl<'a> FormatFields<'a> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { writer, first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct Visitor<'a> {
    writer: Writer<'a>,
    first: bool,
    result: fmt::Result,
}

impl Visitor<'_> {
    fn write(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_err() {
            return;
        }
        let pause = if self.first { "" } else { " " };
        self.first = false;
        self.result = match field.name() {
            "message" => write!(self.writer, "{pause}{value}"),
            name => write!(self.writer, "{pause}{}={value}", name.strip_prefix("r#").unwrap_or(name)),
        };
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return self.write(field, format_args!("{value}"));
        }
        let quoted = plain(&value.replace('\\', "\\\\").replace('"', "\\\""));
        self.write(field, format_args!("\"{quoted}\""));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn texts_are_quoted_and_readable() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(TextFields)
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(topic = "คำสั่ง \"a\" \\\n", peer = %"x", count = 3, "it is so");
        });
        let text = String::from_utf8(lines.0.lock().expect("not poisoned").clone()).expect("text");
        let (_, fields) = text.split_once(": ").expect("a target");
        assert_eq!(fields, "it is so topic=\"คำสั่ง \\\"a\\\" \\\\\\n\" peer=x count=3\n");
    }
}
