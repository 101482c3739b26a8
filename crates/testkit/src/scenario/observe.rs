//! Turns what arrived into the canonical form, in which equal means equal.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::connection::Arrival;
use super::frame::Received;
use super::json;

/// What stands in for texts that differ from run to run: listeners, folders, ports.
pub(super) struct Marks {
    replacements: Vec<(String, String)>,
    port: u16,
}

/// How a body is to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    /// `key=value` lines (319).
    Properties,
}

impl Marks {
    pub(super) fn new(home: &Path, server: SocketAddr) -> Self {
        Self { replacements: vec![(home.display().to_string(), "{home}".to_owned())], port: server.port() }
    }

    pub(super) fn add_listener(&mut self, name: &str, address: SocketAddr) {
        self.replacements.push((address.to_string(), format!("{{{name}}}")));
    }

    /// Puts the real texts where a scenario wrote marks.
    pub(super) fn fill(&self, text: &str) -> String {
        self.replacements.iter().fold(text.to_owned(), |text, (real, mark)| text.replace(mark, real))
    }

    pub(super) fn hide(&self, text: &str) -> String {
        self.replacements.iter().fold(text.to_owned(), |text, (real, mark)| text.replace(real, mark))
    }

    fn hide_in(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.hide_in(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(key, value)| (self.hide(&key), self.hide_in(value))).collect()
            }
            other => other,
        }
    }
}

/// The canonical form of an arrival. `opaque` is the number that the request carried.
pub(super) fn observe(arrival: Arrival, opaque: Option<i64>, kind: BodyKind, marks: &Marks) -> Value {
    match arrival {
        Arrival::Frame(frame) => observe_frame(frame, opaque, kind, marks),
        Arrival::Garbage(reason) => json!({"event": format!("bytes that are no frame: {reason}")}),
        Arrival::Closed => json!({"event": "closed"}),
        Arrival::Nothing => json!({"event": "nothing"}),
    }
}

fn observe_frame(frame: Received, opaque: Option<i64>, kind: BodyKind, marks: &Marks) -> Value {
    let mut seen = Map::new();
    let mut put = |key: &str, value: Value| {
        seen.insert(key.to_owned(), value);
    };
    put("form", frame.form.into());
    put("code", frame.code.into());
    put("flag", frame.flag.into());
    put("language", frame.language.into());
    put("version", frame.version.into());
    // The number itself is of no interest, only whether it is the caller's.
    put("opaque", if opaque == Some(frame.opaque) { "echoed".into() } else { "another".into() });
    if let Some(remark) = &frame.remark {
        put("remark", remark_of(frame.code, &marks.hide(remark)).into());
    }
    if let Some(ext) = frame.ext {
        let fields: Map<_, _> =
            ext.into_iter().map(|(key, value)| (key, marks.hide(&value).into())).collect();
        put("ext", Value::Object(fields));
    }
    if !frame.unknown.is_empty() {
        put("unknownMembers", frame.unknown.into());
    }
    if !frame.body.is_empty() {
        let (body, dialect) = body_of(&frame.body, kind, marks);
        put("body", body);
        if let Some(dialect) =
            dialect.filter(|dialect| dialect.as_object().is_some_and(|seen| !seen.is_empty()))
        {
            put("dialect", dialect);
        }
    }
    Value::Object(seen)
}

/// Exceptions' texts depend on the JVM: only that there is one counts.
fn remark_of(code: i64, remark: &str) -> String {
    let first = remark.split([',', ':', ' ']).next().unwrap_or_default();
    let exception =
        ["java.", "com.alibaba.", "org.apache.", "io.netty."].iter().any(|prefix| first.starts_with(prefix));
    if code == 1 && exception { EXCEPTION.to_owned() } else { remark.to_owned() }
}

/// What stands for the text of an exception.
pub(super) const EXCEPTION: &str = "(exception)";

fn body_of(body: &[u8], kind: BodyKind, marks: &Marks) -> (Value, Option<Value>) {
    let Ok(text) = std::str::from_utf8(body) else {
        return (json!({"hex": super::text::to_hex(body)}), None);
    };
    if kind == BodyKind::Properties {
        return (properties(text, marks), None);
    }
    match json::parse(text) {
        Ok((value, dialect)) => (canonical(marks.hide_in(value)), Some(dialect.describe())),
        Err(_) => (json!({"text": marks.hide(text)}), None),
    }
}

fn properties(text: &str, marks: &Marks) -> Value {
    let mut members = Map::new();
    let mut keys = Vec::new();
    for line in text.lines() {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let own_port = key == "listenPort" && value == marks.port.to_string();
        let value = if own_port { "{port}".to_owned() } else { marks.hide(value) };
        members.insert(key.to_owned(), value.into());
        keys.push(key);
    }
    json!({"lines": members, "sorted": keys.is_sorted(), "endsWithNewline": text.ends_with('\n')})
}

/// Brings what the servers keep in hash order into one order: sets are sorted, lists whose items carry
/// a `brokerName` become maps by that name.
fn canonical(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| {
                let value = match (key.as_str(), canonical(value)) {
                    ("topicList", Value::Array(items)) => sorted(items),
                    ("clusterAddrTable", Value::Object(clusters)) => clusters
                        .into_iter()
                        .map(|(cluster, names)| match names {
                            Value::Array(names) => (cluster, sorted(names)),
                            other => (cluster, other),
                        })
                        .collect(),
                    ("brokerDatas" | "queueDatas", Value::Array(items)) => by_broker(items),
                    (_, other) => other,
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(canonical).collect(),
        other => other,
    }
}

fn sorted(mut items: Vec<Value>) -> Value {
    items.sort_by_cached_key(json::canonical);
    Value::Array(items)
}

fn by_broker(items: Vec<Value>) -> Value {
    let mut named = Map::new();
    for item in &items {
        let Some(name) = item.get("brokerName").and_then(Value::as_str) else { return sorted(items) };
        if named.insert(name.to_owned(), item.clone()).is_some() {
            return sorted(items); // a name twice must stay visible
        }
    }
    Value::Object(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks::new(Path::new("/home/x"), "127.0.0.1:9".parse().unwrap())
    }

    #[test]
    fn hash_order_does_not_matter() {
        let one = body_of(
            br#"{"topicList":["b","a"],"queueDatas":[{"brokerName":"y"},{"brokerName":"x"}]}"#,
            BodyKind::Json,
            &marks(),
        );
        let other = body_of(
            br#"{"queueDatas":[{"brokerName":"x"},{"brokerName":"y"}],"topicList":["a","b"]}"#,
            BodyKind::Json,
            &marks(),
        );
        assert_eq!(one, other);
    }

    #[test]
    fn the_same_broker_twice_stays_visible() {
        let (body, _) =
            body_of(br#"{"queueDatas":[{"brokerName":"x"},{"brokerName":"x"}]}"#, BodyKind::Json, &marks());
        assert_eq!(body["queueDatas"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn own_port_and_folder_become_marks() {
        let (body, _) = body_of(b"kvConfigPath=/home/x/kv\nlistenPort=9\n", BodyKind::Properties, &marks());
        assert_eq!(body["lines"], json!({"kvConfigPath": "{home}/kv", "listenPort": "{port}"}));
    }

    #[test]
    fn only_exceptions_lose_their_text() {
        assert_eq!(remark_of(1, "java.lang.NullPointerException, x.y(Z.java:1)"), EXCEPTION);
        assert_eq!(remark_of(1, "crc32 not match"), "crc32 not match");
        assert_eq!(remark_of(17, "java.lang.Y"), "java.lang.Y");
    }
}
