//! What the fuzz targets do, as plain functions: `fuzz/` feeds them what it makes up, and the tests of this
//! crate feed them the corpora and random bytes.
//!
//! Each reads its input, and whatever it could read it writes and reads again: from the second reading on
//! nothing may change any more. (The first may differ from the second: a text that is absent in one spelling
//! has its default in the next.)

use std::fmt::Debug;

use crate::body::{
    BodyForm, BodyLimits, BrokerMemberGroup, ClusterInfo, DataVersion, Dialect, KvConfigTable, KvTable,
    RegisterBrokerBody, TopicList, TopicRouteData, inflate, is_deflated,
};
use crate::frame::{Frame, FrameLimits, HeaderEncoding, decode_frame};
use crate::header::Header;
use crate::properties;
use crate::renumber::renumber;

/// Small, so that a bomb is one soon.
const LIMITS: BodyLimits = BodyLimits { inflated_max: 1 << 20, json_depth: 64, entries_max: 100_000 };

/// A stream of frames.
pub fn frame(input: &[u8]) {
    let limits = FrameLimits::default();
    let mut rest = input;
    while let Ok(Some((frame, consumed))) = decode_frame(rest, &limits) {
        settle(frame);
        rest = rest.get(consumed..).unwrap_or_default();
    }
}

/// One header, taken for each of the two kinds.
pub fn header(input: &[u8]) {
    for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
        settle(Frame { encoding, header: input, body: b"body" });
    }
}

/// Checks that another opaque is all that a frame under another opaque has.
fn renumbered(frame: &Frame<'_>, header: &Header<'_>) {
    let limits = FrameLimits::default();
    let length = u32::try_from(frame.header.len().saturating_add(frame.body.len()).saturating_add(4));
    let header_length = u32::try_from(frame.header.len()).unwrap_or_default();
    let [_, high, middle, low] = header_length.to_be_bytes();
    let mut bytes = length.unwrap_or_default().to_be_bytes().to_vec();
    bytes.extend_from_slice(&[frame.encoding.type_byte(), high, middle, low]);
    bytes.extend_from_slice(frame.header);
    bytes.extend_from_slice(frame.body);
    let Some(renumbered) = renumber(&bytes, 123_456_789, &limits) else { return };
    let body = bytes.get(renumbered.body_at..).unwrap_or_default();
    assert_eq!(body, frame.body);
    let whole = [&renumbered.head[..], body].concat();
    let again = decode_frame(&whole, &limits).ok().flatten();
    let (again, length) = again.unwrap_or_else(|| panic!("no frame any more: {whole:?}"));
    assert_eq!((length, again.body), (whole.len(), body));
    let expected = Header { opaque: 123_456_789, ..header.clone().into_owned() };
    assert_eq!(Header::decode(&again, &limits).map(Header::into_owned), Ok(expected));
}

/// One body, taken for each of all kinds.
pub fn bodies(input: &[u8]) {
    stable(input, |input| DataVersion::decode(input, &LIMITS).ok(), DataVersion::encode);
    stable(input, |input| KvTable::decode(input, &LIMITS).ok(), KvTable::encode);
    stable(input, |input| TopicList::decode(input, &LIMITS).ok(), TopicList::encode);
    for dialect in [Dialect::Standard, Dialect::Legacy] {
        let route = |input: &[u8]| TopicRouteData::decode(input, &LIMITS).ok();
        stable(input, route, |route, out| route.encode(dialect, out));
        let info = |input: &[u8]| ClusterInfo::decode(input, &LIMITS).ok();
        stable(input, info, |info, out| info.encode(dialect, out));
        let group = |input: &[u8]| BrokerMemberGroup::decode(input, &LIMITS).ok();
        stable(input, group, |group, out| group.encode(dialect, out));
    }
    registration(input);
    for claimed in [false, true] {
        if is_deflated(input, claimed)
            && let Ok(inflated) = inflate(input, LIMITS.inflated_max)
        {
            registration(&inflated);
        }
    }
}

/// A `.properties` text.
pub fn properties(input: &[u8]) {
    let parse = |input: &[u8]| properties::parse(std::str::from_utf8(input).ok()?).ok();
    stable(input, parse, |pairs, out| {
        let mut text = String::new();
        for (key, value) in pairs {
            properties::write(&mut text, key, value);
        }
        out.extend_from_slice(text.as_bytes());
    });
    // Nothing has a default here: already the first reading is the last.
    if let Some(pairs) = parse(input) {
        let mut text = String::new();
        for (key, value) in &pairs {
            properties::write(&mut text, key, value);
        }
        assert_eq!(properties::parse(&text).as_ref(), Ok(&pairs));
    }
}

/// The file of the key-value configuration.
pub fn kv_file(input: &[u8]) {
    stable(input, |input| KvConfigTable::decode(input, &LIMITS).ok(), KvConfigTable::encode);
}

fn registration(input: &[u8]) {
    fn read(input: &[u8], form: BodyForm) -> Option<RegisterBrokerBody<'static>> {
        RegisterBrokerBody::decode(input, form, &LIMITS).ok().map(RegisterBrokerBody::into_owned)
    }
    stable(input, |input| read(input, BodyForm::Json), RegisterBrokerBody::encode_json);
    stable(input, |input| read(input, BodyForm::Legacy), RegisterBrokerBody::encode_legacy);
    for mappings in [false, true] {
        let form = BodyForm::Binary { mappings };
        stable(input, |input| read(input, form), |body, out| body.encode_binary(mappings, out));
    }
}

/// Reads, writes and reads again until nothing may change any more.
fn stable<T: PartialEq + Debug>(
    input: &[u8],
    read: impl Fn(&[u8]) -> Option<T>,
    write: impl Fn(&T, &mut Vec<u8>),
) {
    let Some(first) = read(input) else { return };
    let again = |value: &T| {
        let mut out = Vec::new();
        write(value, &mut out);
        read(&out)
    };
    let second = again(&first);
    assert!(second.is_some(), "what was written cannot be read: {first:?}");
    assert_eq!(second.as_ref().and_then(again), second, "from {first:?}");
}

fn settle(frame: Frame<'_>) {
    let limits = FrameLimits::default();
    let Ok(first) = Header::decode(&frame, &limits) else { return };
    renumbered(&frame, &first);
    let _ =
        (first.is_response(), first.is_oneway(), first.ext.get_bool("topic"), first.ext.get_i64("brokerId"));
    let again = |header: &Header<'_>| {
        let mut out = Vec::new();
        header.write(frame.encoding, frame.body, &mut out);
        let limits = FrameLimits { frame_max: usize::MAX, header_max: usize::MAX, ..limits };
        let decoded = decode_frame(&out, &limits);
        let Ok(Some((written, consumed))) = decoded else {
            panic!("a written frame is refused: {decoded:?}")
        };
        assert_eq!(consumed, out.len());
        assert_eq!(written.body, frame.body);
        match Header::decode(&written, &limits) {
            Ok(header) => header.into_owned(),
            Err(error) => panic!("a written header is refused: {error}"),
        }
    };
    let second: Header<'_> = again(&first);
    assert_eq!(
        (second.code, second.version, second.opaque, second.flag),
        (first.code, first.version, first.opaque, first.flag)
    );
    for (name, value) in first.ext.iter().filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
        if first.ext.get(name) == Some(value) {
            assert_eq!(second.ext.get(name), Some(value));
        }
    }
    assert_eq!(again(&second), second);
}
