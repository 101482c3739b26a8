//! Short answers.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The server has too much to do to look now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

impl IntoResponse for Busy {
    fn into_response(self) -> Response {
        let mut response =
            say(StatusCode::SERVICE_UNAVAILABLE, "others are reading the table; try again in a moment\n");
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        response
    }
}

/// A sentence.
pub(crate) fn say(status: StatusCode, text: &str) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, text.to_owned()).into_response()
}
