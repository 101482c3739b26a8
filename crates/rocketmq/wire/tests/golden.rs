//! The golden vectors: bytes that were made and checked with a JVM, not with this crate.

use serde_json::Value;
use waypost_rocketmq_wire::body::{
    BodyForm, BodyLimits, DataVersion, Dialect, KvTable, RegisterBrokerBody, TopicRouteData, inflate,
    is_deflated,
};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame, frame_length};
use waypost_rocketmq_wire::header::{Header, Language};
use waypost_rocketmq_wire::message::{Request, Response};

const LIMITS: BodyLimits = BodyLimits { inflated_max: 1 << 20, json_depth: 64, entries_max: 100_000 };

struct Vector {
    name: String,
    bytes: Vec<u8>,
    header: Value,
}

fn vectors() -> Vec<Vector> {
    let file: Value = serde_json::from_str(include_str!("data/golden-remoting.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 22);
    vectors
        .iter()
        .map(|vector| Vector {
            name: vector["name"].as_str().unwrap().to_owned(),
            bytes: bytes(vector["hex"].as_str().unwrap()),
            header: vector["header"].clone(),
        })
        .collect()
}

fn vector(name: &str) -> Vec<u8> {
    vectors().into_iter().find(|vector| vector.name == name).unwrap().bytes
}

fn body(name: &str) -> Vec<u8> {
    let bytes = vector(name);
    let (frame, _) = decode_frame(&bytes, &FrameLimits::default()).unwrap().unwrap();
    frame.body.to_vec()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The member as text, whether the vector has it as text, number or boolean.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_vector_decodes_to_its_fields() {
    for Vector { name, bytes, header: expected } in vectors() {
        let limits = FrameLimits::default();
        assert_eq!(frame_length(&bytes, &limits), Ok(Some(bytes.len())), "{name}");
        let (frame, consumed) = decode_frame(&bytes, &limits).unwrap().unwrap();
        assert_eq!(consumed, bytes.len(), "{name}");
        let header = Header::decode(&frame, &limits).unwrap_or_else(|error| panic!("{name}: {error}"));
        let number = |member: &str| expected[member].as_i64().unwrap();
        assert_eq!(i64::from(header.code), number("code"), "{name}");
        assert_eq!(i64::from(header.version), number("version"), "{name}");
        assert_eq!(i64::from(header.opaque), number("opaque"), "{name}");
        assert_eq!(i64::from(header.flag), number("flag"), "{name}");
        assert_eq!(header.remark.as_deref(), expected["remark"].as_str(), "{name}");
        match &expected["language"] {
            Value::String(language) => assert_eq!(header.language.name(), language, "{name}"),
            number => assert_eq!(Some(u64::from(header.language.number())), number.as_u64(), "{name}"),
        }
        let empty = serde_json::Map::new();
        let ext = expected["extFields"].as_object().unwrap_or(&empty);
        assert_eq!(header.ext.len(), ext.len(), "{name}");
        for (key, value) in ext {
            assert_eq!(header.ext.get(key), Some(text(value).as_str()), "{name}: {key}");
        }
    }
}

#[test]
fn what_java_wrote_is_written_again_byte_by_byte() {
    for Vector { name, bytes, .. } in vectors() {
        // Three were not written by Java: the orders and spellings of Go, C++ and Node.
        if matches!(name.as_str(), "G18" | "G19" | "G20") {
            continue;
        }
        let limits = FrameLimits::default();
        let (frame, _) = decode_frame(&bytes, &limits).unwrap().unwrap();
        let header = Header::decode(&frame, &limits).unwrap();
        let fields: Vec<(&str, &str)> = header.ext.iter().collect();
        let mut again = Vec::new();
        if header.is_response() {
            Response {
                code: header.code,
                opaque: header.opaque,
                version: header.version,
                remark: header.remark.as_deref(),
                ext: header.ext.is_present().then_some(&fields),
                body: frame.body,
            }
            .write(frame.encoding, &mut again);
        } else {
            Request {
                code: header.code,
                language: header.language,
                version: header.version,
                opaque: header.opaque,
                oneway: header.is_oneway(),
                remark: header.remark.as_deref(),
                ext: &fields,
                body: frame.body,
            }
            .write(frame.encoding, &mut again);
        }
        assert_eq!(again, bytes, "{name}");
        again.clear();
        header.write(frame.encoding, frame.body, &mut again);
        assert_eq!(again, bytes, "{name}");
    }
}

#[test]
fn a_route_is_written_in_both_dialects_byte_by_byte() {
    let (standard, legacy) = (body("G03"), body("G04"));
    let route = TopicRouteData::decode(&standard, &LIMITS).unwrap();
    assert_eq!(TopicRouteData::decode(&legacy, &LIMITS).unwrap(), route);
    assert_eq!(route.broker_datas[0].broker_addrs[&1], "10.0.0.2:10911");
    let mut out = Vec::new();
    route.encode(Dialect::Standard, &mut out);
    assert_eq!(out, standard);
    out.clear();
    route.encode(Dialect::Legacy, &mut out);
    assert_eq!(out, legacy);
    let single = body("G21");
    out.clear();
    TopicRouteData::decode(&single, &LIMITS).unwrap().encode(Dialect::Legacy, &mut out);
    assert_eq!(out, single);
}

#[test]
fn small_bodies_are_written_again_byte_by_byte() {
    let mut out = Vec::new();
    KvTable::decode(&body("G08"), &LIMITS).unwrap().encode(&mut out);
    assert_eq!(out, body("G08"));
    out.clear();
    let version = DataVersion::decode(&body("G12"), &LIMITS).unwrap();
    assert_eq!(version, DataVersion { state_version: 0, timestamp: 1_700_000_000_000, counter: 2 });
    version.encode(&mut out);
    assert_eq!(out, body("G12"));
}

#[test]
fn registrations_decode_to_the_same_topics_deflated_and_plain() {
    let (deflated, plain) = (body("G07"), body("G22"));
    assert_eq!(body_crc32(&deflated), 1_221_798_891);
    assert_eq!(body_crc32(&plain), 1_842_443_376);
    assert!(is_deflated(&deflated, true) && is_deflated(&deflated, false));
    assert!(!is_deflated(&plain, true) && !is_deflated(&plain, false));
    let inflated = inflate(&deflated, LIMITS.inflated_max).unwrap();
    let file: Value = serde_json::from_str(include_str!("data/golden-remoting.json")).unwrap();
    assert_eq!(inflated, bytes(file["extra"]["zraw"].as_str().unwrap()));
    let one = RegisterBrokerBody::decode(&inflated, BodyForm::Binary { mappings: true }, &LIMITS).unwrap();
    let mut other = RegisterBrokerBody::decode(&plain, BodyForm::Json, &LIMITS).unwrap();
    let mut out = Vec::new();
    one.encode_binary(true, &mut out);
    assert_eq!(out, inflated);
    other.topics.sort_by(|a, b| b.key.cmp(&a.key));
    assert_eq!(one, other);
}

#[test]
fn bad_frames_are_refused() {
    let refused = [
        ("N1", "00fffffd", "frame_too_long"),
        ("N2", "ffffffff", "frame_negative"),
        ("N3", "00000000 00000000", "frame_too_short"),
        ("N4", "00000004 00000001", "header_overrun"),
        ("N5", "00000006 02000002 7b7d", "header_type"),
        ("N6", "00000006 00000002 7b5d", "header_json"),
        ("N7", "00000019 01000015 0069 00 01df 00000001 00000000 7fffffff 00000000", "header_truncated"),
        ("N8", "0000000c 00000008 6e756c6c20202020", "header_json"),
        ("length 4", "00000004 00000000", "header_json"),
        ("length 3", "00000003 000000", "frame_too_short"),
        ("an array", "00000006 00000002 5b5d", "header_json"),
        ("HTTP", "47455420 2f204854", "frame_too_long"),
        (
            "bytes behind the ext fields",
            "00000023 0100001f 0069 00 01df 00000001 00000000 00000000 00000008 0001 74 00000001 41 0000",
            "header_trailing",
        ),
        (
            "an entry that crosses the end of the ext fields",
            "00000021 0100001d 0069 00 01df 00000001 00000000 00000000 00000007 0001 74 00000001 41",
            "header_truncated",
        ),
        (
            "a negative length",
            "00000019 01000015 0069 00 01df 00000001 00000000 ffffffff 00000000",
            "header_negative",
        ),
    ];
    for (name, hex, kind) in refused {
        let bytes = bytes(hex);
        let limits = FrameLimits::default();
        let found = match decode_frame(&bytes, &limits) {
            Err(error) => error.kind(),
            Ok(Some((frame, _))) => {
                Header::decode(&frame, &limits).map_or_else(|error| error.kind(), |_| "no error")
            }
            Ok(None) => "not whole",
        };
        assert_eq!(found, kind, "{name}");
    }
}

#[test]
fn an_empty_object_is_a_request_of_code_0() {
    let bytes = bytes("00000006 00000002 7b7d");
    let limits = FrameLimits::default();
    let (frame, _) = decode_frame(&bytes, &limits).unwrap().unwrap();
    assert_eq!(Header::decode(&frame, &limits), Ok(Header::default()));
}

#[test]
fn a_frame_that_is_not_whole_waits() {
    let whole = vector("G01");
    let limits = FrameLimits::default();
    for end in 0..whole.len() {
        assert_eq!(decode_frame(&whole[..end], &limits), Ok(None), "{end} bytes");
    }
    let mut two = whole.clone();
    two.extend_from_slice(&whole);
    let (frame, consumed) = decode_frame(&two, &limits).unwrap().unwrap();
    assert_eq!((consumed, frame.encoding), (whole.len(), HeaderEncoding::Json));
}

#[test]
fn limits_are_kept_to_the_byte() {
    let whole = vector("G01");
    let header = whole.len() - 8;
    let exact = FrameLimits { frame_max: whole.len(), header_max: header, ..FrameLimits::default() };
    assert!(decode_frame(&whole, &exact).unwrap().is_some());
    let frame = FrameLimits { frame_max: whole.len() - 1, ..exact };
    assert_eq!(frame_length(&whole[..4], &frame).unwrap_err().kind(), "frame_too_long");
    let header = FrameLimits { header_max: header - 1, ..exact };
    assert_eq!(decode_frame(&whole[..8], &header).unwrap_err().kind(), "header_too_long");
    // The largest frame of the originals: 16 MiB with its length field.
    let limits = FrameLimits::default();
    assert_eq!(frame_length(&0x00FF_FFFC_u32.to_be_bytes(), &limits), Ok(Some(16 << 20)));
    assert!(frame_length(&0x00FF_FFFD_u32.to_be_bytes(), &limits).is_err());
}

#[test]
fn a_binary_header_has_no_empty_texts() {
    let mut out = Vec::new();
    let request = Request {
        remark: Some(""),
        language: Language::Rust,
        ext: &[("topic", ""), ("", "x"), ("a", "b")],
        ..Request::new(-2)
    };
    request.write(HeaderEncoding::Binary, &mut out);
    let limits = FrameLimits::default();
    let (frame, _) = decode_frame(&out, &limits).unwrap().unwrap();
    let header = Header::decode(&frame, &limits).unwrap();
    assert_eq!((header.code, header.language, header.remark), (-2, Language::Rust, None));
    assert_eq!(header.ext.iter().collect::<Vec<_>>(), [("a", "b")]);
    // What another peer sends with zero lengths reads the same: absent.
    let foreign = bytes(
        "00000028 01000024 0069 0d 01df 00000001 00000000 00000000 0000000f 0001 74 00000000 0001 75 00000001 41",
    );
    let (frame, _) = decode_frame(&foreign, &limits).unwrap().unwrap();
    let header = Header::decode(&frame, &limits).unwrap();
    assert_eq!(header.language, Language::NodeJs);
    assert_eq!((header.ext.get("t"), header.ext.get("u")), (None, Some("A")));
}

#[test]
fn a_header_that_24_bits_cannot_measure_is_written_bare() {
    let remark = "r".repeat(16 << 20);
    for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
        let mut out = Vec::from(*b"before");
        Response { opaque: 9, remark: Some(&remark), body: b"body", ..Response::new(1) }
            .write(encoding, &mut out);
        let limits = FrameLimits::default();
        let (frame, consumed) = decode_frame(&out[6..], &limits).unwrap().unwrap();
        assert_eq!((consumed, frame.body), (out.len() - 6, b"body".as_slice()));
        let header = Header::decode(&frame, &limits).unwrap();
        assert_eq!((header.code, header.opaque, header.remark), (1, 9, None));
    }
}
