//! The agent's own answers.

use bytes::Bytes;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::version::V5_5_0;

use crate::remark;

/// An answer with this code and nothing else.
#[must_use]
pub(crate) fn code(code: i32) -> Answer {
    Answer { code, version: V5_5_0, remark: None, ext: None, body: Bytes::new() }
}

/// Success and nothing else.
#[must_use]
pub(crate) fn success() -> Answer {
    code(response::SUCCESS)
}

/// Code 1 and the reason, which is cut if it is long.
#[must_use]
pub(crate) fn error(remark: impl Into<String>) -> Answer {
    let remark = remark::cut(remark.into(), remark::MAX);
    Answer { remark: Some(remark), ..code(response::SYSTEM_ERROR) }
}

/// Code 1 for a field that the request must have, in the words of the NameServer.
#[must_use]
pub(crate) fn missing(request: &str, field: &str) -> Answer {
    error(format!("{request}: the header field {field} is missing or malformed"))
}

/// With a table of fields, even if it stays empty.
#[must_use]
pub(crate) fn typed(mut answer: Answer) -> Answer {
    answer.ext.get_or_insert_default();
    answer
}
