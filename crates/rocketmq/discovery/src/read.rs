//! A request that any healthy server can answer.

use std::time::Duration;

use bytes::Bytes;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::request_name;
use waypost_rocketmq_wire::language::Language;
use waypost_rocketmq_wire::message::Request;

/// A request that changes nothing, so that it may be put to one server after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// One of [`code::request`](waypost_rocketmq_wire::code::request).
    pub code: i32,
    /// What the asker is written in.
    pub language: Language,
    /// The ordinal of the asker's version; answers depend on it.
    pub version: i32,
    /// Named fields.
    pub ext: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Bytes,
}

/// What is asked for with this code, for errors.
pub(crate) fn request_subject(code: i32) -> String {
    match request_name(code) {
        Some(name) => format!("{name} ({code})"),
        None => format!("request {code}"),
    }
}

impl Read {
    /// A read with these fields, in the newest version.
    #[must_use]
    pub fn new(code: i32, ext: &[(&str, &str)]) -> Self {
        let newest = Request::new(code);
        Self {
            code,
            language: Language::Other,
            version: newest.version,
            ext: ext.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            body: Bytes::new(),
        }
    }

    pub(crate) async fn call(&self, connection: &Connection, limit: Duration) -> Result<Answer, CallError> {
        let ext: Vec<(&str, &str)> =
            self.ext.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let request = Request {
            language: self.language,
            version: self.version,
            ext: &ext,
            body: &self.body,
            ..Request::new(self.code)
        };
        connection.call(&request, limit).await
    }
}
