//! Traffic of real peers: brokers 4.9.7 and 5.5.0, clients in Java, Go and C++, and mqadmin, talking to a
//! NameServer 5.5.0.

use serde_json::Value;
use waypost_rocketmq_wire::body::{
    BodyForm, BodyLimits, BrokerMemberGroup, ClusterInfo, DataVersion, Dialect, KvTable, RegisterBrokerBody,
    TopicList, TopicRouteData, inflate, is_deflated, properties,
};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{Frame, FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::version::V5_0_0;

struct Captured {
    request_code: i32,
    peer: String,
    bytes: Vec<u8>,
}

fn captured() -> Vec<Captured> {
    let lines = include_str!("data/captured-rocketmq.jsonl").lines();
    lines
        .map(|line| {
            let entry: Value = serde_json::from_str(line).unwrap();
            let hex = entry["hex"].as_str().unwrap();
            Captured {
                request_code: i32::try_from(entry["request_code"].as_i64().unwrap()).unwrap(),
                peer: entry["peer"].as_str().unwrap().to_owned(),
                bytes: (0..hex.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                    .collect(),
            }
        })
        .collect()
}

/// Decodes a body, writes it and decodes that again: the meaning must be the same, and for what the NameServer
/// wrote in a fixed order the bytes too.
fn check_body(code: i32, header: &Header<'_>, frame: &Frame<'_>) -> Option<&'static str> {
    let limits = BodyLimits::default();
    let body = frame.body;
    let mut out = Vec::new();
    Some(match code {
        request::REGISTER_BROKER if !header.is_response() => {
            check_registration(header, body);
            "registration"
        }
        request::REGISTER_BROKER | request::GET_KVLIST_BY_NAMESPACE => {
            KvTable::decode(body, &limits).unwrap().encode(&mut out);
            assert_eq!(out, body);
            "table"
        }
        request::GET_ROUTEINFO_BY_TOPIC | request::REGISTER_TOPIC_IN_NAMESRV => {
            let route = TopicRouteData::decode(body, &limits).unwrap();
            // The dialect shows in the first key of the first address table.
            let text = std::str::from_utf8(body).unwrap();
            let dialect =
                if text.contains("\"brokerAddrs\":{\"") { Dialect::Standard } else { Dialect::Legacy };
            route.encode(dialect, &mut out);
            assert_eq!(out, body);
            "route"
        }
        request::GET_BROKER_CLUSTER_INFO => {
            let info = ClusterInfo::decode(body, &limits).unwrap();
            for dialect in [Dialect::Standard, Dialect::Legacy] {
                out.clear();
                info.encode(dialect, &mut out);
                assert_eq!(ClusterInfo::decode(&out, &limits).unwrap(), info);
            }
            assert_eq!(out.len(), body.len(), "only the order of the tables may differ");
            "clusters"
        }
        request::GET_BROKER_MEMBER_GROUP => {
            BrokerMemberGroup::decode(body, &limits).unwrap().encode(Dialect::Legacy, &mut out);
            assert_eq!(out, body);
            "group"
        }
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER => {
            TopicList::decode(body, &limits).unwrap().encode(&mut out);
            assert_eq!(out, body);
            "topics"
        }
        request::UPDATE_NAMESRV_CONFIG | request::GET_NAMESRV_CONFIG => {
            assert!(!properties::parse(std::str::from_utf8(body).unwrap()).unwrap().is_empty());
            "properties"
        }
        _ => return None,
    })
}

fn check_registration(header: &Header<'_>, body: &[u8]) {
    let limits = BodyLimits::default();
    if let Some(sum) = header.ext.get_i32("bodyCrc32").filter(|&sum| sum != 0) {
        assert_eq!(body_crc32(body), sum);
    }
    let claimed = header.ext.get_bool("compressed").unwrap_or(false);
    let (plain, form) = if is_deflated(body, claimed) {
        let inflated = inflate(body, limits.inflated_max).unwrap();
        (inflated, BodyForm::Binary { mappings: header.version >= V5_0_0 })
    } else {
        (body.to_vec(), BodyForm::Json)
    };
    let registration = RegisterBrokerBody::decode(&plain, form, &limits).unwrap();
    assert_ne!(registration.data_version, DataVersion::default());
    for topic in &registration.topics {
        assert_eq!(topic.topic_name.as_deref(), Some(topic.key.as_ref()));
        assert!(topic.read_queue_nums > 0 && topic.perm > 0);
    }
    let mut out = Vec::new();
    match form {
        BodyForm::Binary { mappings } => registration.encode_binary(mappings, &mut out),
        _ => registration.encode_json(&mut out),
    }
    assert_eq!(RegisterBrokerBody::decode(&out, form, &limits).unwrap(), registration);
}

#[test]
fn every_frame_and_body_is_understood() {
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for Captured { request_code, peer, bytes } in captured() {
        let limits = FrameLimits::default();
        let (frame, consumed) = decode_frame(&bytes, &limits).unwrap().unwrap();
        assert_eq!(consumed, bytes.len());
        let header = Header::decode(&frame, &limits).unwrap_or_else(|error| panic!("{peer}: {error}"));
        if !header.is_response() {
            assert_eq!(header.code, request_code, "{peer}");
        }
        if frame.body.is_empty() {
            continue;
        }
        match check_body(request_code, &header, &frame) {
            Some(kind) => *seen.entry(kind).or_default() += 1,
            None => panic!("{peer}: no reader for the body of {request_code}"),
        }
    }
    let kinds: Vec<&str> = seen.keys().copied().collect();
    assert_eq!(kinds, ["clusters", "group", "properties", "registration", "route", "table", "topics"]);
}

#[test]
fn what_java_wrote_is_written_again_byte_by_byte() {
    let mut count = 0;
    for Captured { peer, bytes, .. } in captured() {
        if matches!(peer.as_str(), "client-go" | "client-cpp") && bytes[9] != b'"' {
            continue;
        }
        let limits = FrameLimits::default();
        let (frame, _) = decode_frame(&bytes, &limits).unwrap().unwrap();
        let header = Header::decode(&frame, &limits).unwrap();
        if !frame.header.windows(24).any(|window| window == br#""serializeTypeCurrentRPC"#) {
            continue;
        }
        let mut again = Vec::new();
        header.write(frame.encoding, frame.body, &mut again);
        assert_eq!(again, bytes, "{peer}");
        count += 1;
    }
    assert!(count > 120, "{count} frames of Java peers");
}
