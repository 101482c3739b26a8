//! Frames to send.

use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Request;

/// A request with a JSON header.
pub(crate) fn json(request: &Request<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    request.write(HeaderEncoding::Json, &mut frame);
    frame
}

/// A request with a binary header.
pub(crate) fn binary(request: &Request<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    request.write(HeaderEncoding::Binary, &mut frame);
    frame
}

/// The two length words around a header and a body that may be anything.
pub(crate) fn envelope(kind: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).expect("a test frame is small").to_be_bytes();
    let mut frame = word(4 + header.len() + body.len()).to_vec();
    let [_, high, middle, low] = word(header.len());
    frame.extend([kind, high, middle, low]);
    frame.extend(header);
    frame.extend(body);
    frame
}

/// A 105 for `topic`.
pub(crate) fn route_query(topic: &str, opaque: i32) -> Vec<u8> {
    json(&Request { opaque, ext: &[("topic", topic)], ..Request::new(105) })
}
