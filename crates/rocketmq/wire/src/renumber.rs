//! A frame of somebody else under an opaque of our own.
//!
//! Whoever passes frames of several senders on over one connection, or does not wait for each answer, must give them
//! opaques of its own: else a late answer to one is taken for the answer to another.

use crate::frame::{FrameLimits, decode_frame};
use crate::header;

/// The longest header that the 24 bits of a frame's header length can say.
const HEADER_LENGTH_MAX: usize = 0x00FF_FFFF;

/// A frame with another opaque: all of its other bytes are as they were, but for the lengths in front of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renumbered {
    /// Everything in front of the body.
    pub head: Vec<u8>,
    /// Where the body begins in the frame that was given; it goes to the end.
    pub body_at: usize,
}

/// Gives `frame` another opaque. A JSON header that has none gets one; bytes of it that are not UTF-8 become U+FFFD,
/// which is what its reader makes of them.
///
/// `None` if `frame` is not exactly one whole frame, or if it would be over `limits`, which it can be by the digits of a
/// larger number.
#[must_use]
pub fn renumber(frame: &[u8], opaque: i32, limits: &FrameLimits) -> Option<Renumbered> {
    let (decoded, total) = decode_frame(frame, limits).ok()??;
    if total != frame.len() {
        return None;
    }
    let header = header::with_opaque(&decoded, opaque, limits)?;
    let body_at = total.saturating_sub(decoded.body.len());
    let following = header.len().saturating_add(decoded.body.len()).saturating_add(4);
    if following.saturating_add(4) > limits.frame_max
        || header.len() > limits.header_max.min(HEADER_LENGTH_MAX)
    {
        return None;
    }
    let mut head = Vec::with_capacity(header.len().saturating_add(8));
    head.extend_from_slice(&i32::try_from(following).ok()?.to_be_bytes());
    let [_, high, middle, low] = u32::try_from(header.len()).ok()?.to_be_bytes();
    head.extend_from_slice(&[decoded.encoding.type_byte(), high, middle, low]);
    head.extend_from_slice(&header);
    Some(Renumbered { head, body_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HeaderEncoding;
    use crate::header::Header;

    const LIMITS: FrameLimits = FrameLimits { frame_max: 4_096, header_max: 1_024, header_depth: 8 };

    fn frame(encoding: HeaderEncoding, header: &[u8], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(header.len() + body.len() + 4).unwrap();
        let kind = u32::from(encoding.type_byte()) << 24 | u32::try_from(header.len()).unwrap();
        [&length.to_be_bytes(), &kind.to_be_bytes(), header, body].concat()
    }

    /// The header of a JSON frame with the opaque 1234.
    fn json(header: &[u8]) -> String {
        let bytes = frame(HeaderEncoding::Json, header, b"body");
        let renumbered = renumber(&bytes, 1234, &LIMITS).expect("a frame");
        assert_eq!(&bytes[renumbered.body_at..], b"body");
        let whole = [&renumbered.head[..], b"body"].concat();
        let (decoded, length) = decode_frame(&whole, &LIMITS).expect("a frame").expect("whole");
        assert_eq!((length, decoded.body), (whole.len(), &b"body"[..]));
        assert_eq!(Header::decode(&decoded, &LIMITS).expect("a header").opaque, 1234);
        String::from_utf8(decoded.header.to_vec()).expect("UTF-8")
    }

    #[test]
    fn nothing_but_the_opaque_of_a_json_header_changes() {
        let cases = [
            (r#"{"code":103,"opaque":7,"version":479}"#, r#"{"code":103,"opaque":1234,"version":479}"#),
            (r#"{"opaque":-2147483648}"#, r#"{"opaque":1234}"#),
            // As another peer may write it.
            ("{ \"code\" : 103 , \"opaque\" : 99 , }\n", "{ \"code\" : 103 , \"opaque\" : 1234 , }\n"),
            (r#"{"opaque":"5","code":103}"#, r#"{"opaque":1234,"code":103}"#),
            (r#"{"opaque":null,"code":103}"#, r#"{"opaque":1234,"code":103}"#),
            (r#"{'opaque':/* 5 */6,code:103}"#, r#"{'opaque':/* 5 */1234,code:103}"#),
            // The last one counts, whoever reads.
            (r#"{"opaque":1,"code":103,"opaque":2}"#, r#"{"opaque":1234,"code":103,"opaque":1234}"#),
            // A text that looks like one, and a field of that name.
            (
                r#"{"code":103,"extFields":{"opaque":"7","x":"\"opaque\":7"},"opaque":7}"#,
                r#"{"code":103,"extFields":{"opaque":"7","x":"\"opaque\":7"},"opaque":1234}"#,
            ),
        ];
        for (header, expected) in cases {
            assert_eq!(json(header.as_bytes()), expected);
        }
    }

    #[test]
    fn a_json_header_without_an_opaque_gets_one() {
        assert_eq!(json(br#"{"code":103}"#), r#"{"opaque":1234,"code":103}"#);
        // Newer Java peers take no other spelling.
        assert_eq!(json(br#"{"code":103,"OPAQUE":7}"#), r#"{"opaque":1234,"code":103,"OPAQUE":1234}"#);
        assert_eq!(json(br#" /* { */ {"code":103}"#), r#" /* { */ {"opaque":1234,"code":103}"#);
    }

    #[test]
    fn what_is_not_utf_8_is_what_its_reader_makes_of_it() {
        let header = [br#"{"code":103,"remark":""#, &b"\xFF\xFE"[..], br#"","opaque":7}"#].concat();
        assert_eq!(json(&header), "{\"code\":103,\"remark\":\"\u{FFFD}\u{FFFD}\",\"opaque\":1234}");
    }

    #[test]
    fn nothing_but_the_opaque_of_a_binary_header_changes() {
        let header = |opaque: i32| {
            let fixed = [&103_i16.to_be_bytes()[..], &[0], &479_i16.to_be_bytes(), &opaque.to_be_bytes()];
            [fixed.concat(), vec![0; 12]].concat()
        };
        let bytes = frame(HeaderEncoding::Binary, &header(77), b"body");
        let renumbered = renumber(&bytes, -1, &LIMITS).expect("a frame");
        let expected = frame(HeaderEncoding::Binary, &header(-1), b"body");
        assert_eq!([&renumbered.head, &bytes[renumbered.body_at..]].concat(), expected);
    }

    #[test]
    fn what_is_no_frame_or_would_be_too_long_is_left_alone() {
        let whole = frame(HeaderEncoding::Json, br#"{"opaque":7}"#, b"");
        assert_eq!(renumber(&whole[..whole.len() - 1], 1, &LIMITS), None);
        assert_eq!(renumber(&[&whole[..], b"more"].concat(), 1, &LIMITS), None);
        assert_eq!(renumber(&frame(HeaderEncoding::Json, b"[]", b""), 1, &LIMITS), None);
        assert_eq!(renumber(&frame(HeaderEncoding::Binary, b"short", b""), 1, &LIMITS), None);
        let full = vec![0; LIMITS.frame_max - 8 - 12];
        let largest = frame(HeaderEncoding::Json, br#"{"opaque":7}"#, &full);
        assert!(renumber(&largest, 9, &LIMITS).is_some());
        assert_eq!(renumber(&largest, 10, &LIMITS), None);
    }
}
