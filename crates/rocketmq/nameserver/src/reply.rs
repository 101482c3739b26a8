//! The answer to one request, before it is put into a frame.

use std::borrow::Cow;
use std::sync::Arc;

use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Response;

/// What to answer. The opaque and the form of the header come from the request.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) code: i32,
    pub(crate) remark: Option<Cow<'static, str>>,
    /// `None` leaves `extFields` out; an empty list writes `{}`, as originals do for typed headers.
    pub(crate) ext: Option<Vec<(&'static str, Arc<str>)>>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Success and nothing else.
    pub(crate) fn success() -> Self {
        Self { code: response::SUCCESS, ..Self::default() }
    }

    /// Success with a body.
    pub(crate) fn body(body: Vec<u8>) -> Self {
        Self { body, ..Self::success() }
    }

    /// An error with its reason.
    pub(crate) fn error(code: i32, remark: impl Into<Cow<'static, str>>) -> Self {
        Self { code, remark: Some(remark.into()), ..Self::default() }
    }

    /// Code 1 for a field that the request must have.
    pub(crate) fn missing(request: &'static str, field: &'static str) -> Self {
        Self::error(
            response::SYSTEM_ERROR,
            format!("{request}: the header field {field} is missing or malformed"),
        )
    }

    /// Adds one field to the header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Arc<str>>) -> Self {
        self.ext.get_or_insert_default().push((name, value.into()));
        self
    }

    /// Makes the header have `extFields` even if it stays empty.
    pub(crate) fn with_typed_header(mut self) -> Self {
        self.ext.get_or_insert_default();
        self
    }

    pub(crate) fn write(&self, opaque: i32, encoding: HeaderEncoding, output: &mut Vec<u8>) {
        let ext: Option<Vec<(&str, &str)>> =
            self.ext.as_ref().map(|fields| fields.iter().map(|(name, value)| (*name, &**value)).collect());
        Response {
            code: self.code,
            opaque,
            remark: self.remark.as_deref(),
            ext: ext.as_deref(),
            body: &self.body,
            ..Response::new(self.code)
        }
        .write(encoding, output);
    }
}
