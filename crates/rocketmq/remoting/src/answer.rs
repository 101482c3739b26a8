//! What a server answered.

use bytes::Bytes;

use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Response;

/// An answer, taken off the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// One of [`response`].
    pub code: i32,
    /// The ordinal of the server's version.
    pub version: i32,
    /// Text for people.
    pub remark: Option<String>,
    /// Named fields in their order; `None` when the header has no table.
    pub ext: Option<Vec<(String, String)>>,
    /// The body; empty for none.
    pub body: Bytes,
}

impl Answer {
    /// Whether the code is that of success.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.code == response::SUCCESS
    }

    /// The text of a field; the last one counts where a name comes twice.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.ext.iter().flatten().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Appends the frame to `out`, as an answer to another request.
    pub fn write(&self, opaque: i32, encoding: HeaderEncoding, out: &mut Vec<u8>) {
        let fields: Option<Vec<(&str, &str)>> = self
            .ext
            .as_ref()
            .map(|ext| ext.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect());
        let response = Response {
            opaque,
            version: self.version,
            remark: self.remark.as_deref(),
            ext: fields.as_deref(),
            body: &self.body,
            ..Response::new(self.code)
        };
        response.write(encoding, out);
    }
}
