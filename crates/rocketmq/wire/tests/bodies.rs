//! Bodies: exact bytes from the specification, deflated registrations, limits.

use std::collections::{BTreeMap, BTreeSet};

use waypost_rocketmq_wire::body::{
    BodyError, BodyForm, BodyLimits, BrokerData, BrokerMemberGroup, ClusterInfo, DataVersion, Dialect,
    KvConfigTable, KvTable, QueueData, RegisterBrokerBody, TopicList, TopicQueueMapping, TopicRouteData,
    deflate, inflate, is_deflated,
};
use waypost_rocketmq_wire::checksum::body_crc32;

const LIMITS: BodyLimits = BodyLimits { inflated_max: 1 << 20, json_depth: 64, entries_max: 100_000 };

/// A registration with two topics and a static topic, deflated by a JVM.
const VECTOR_A: &str = "78da554fc1aac230108c7e86a7b2e7a895f750c94d41a5a04fe489179190c6558b6d5392f420a5e0a7bbad077187ddc3cc323b\
cb189b56a04d997bb4207e3838af3c1ed0bac4e420420e3ec990c8ac00319a849faa19635deadede14899e0553c238f88ffe56eb85dccf5641d56c0c5b751efc12be55\
205ba7ae38f08f0241c0325a6ea1353d9e6876a89f15c4b9ca1a35b6e68eb6af80832ead8dce1b4581aa508435877362fd03c445a50e396061f4ed3bec88fed2a63d23\
e53535b14aa5242bdf8423f21db225bc4a772596e8c8a17e011a135149";
/// The same without the mapping, as brokers of 4.x deflate.
const VECTOR_B: &str = "78da636060b0a8564ace2fcd2b492d52b232d6512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae6162859199a1b2040\
2d03030313104b85e41764263b2a5800a19942b0a79fbb8f6b7c88a3bb423548853e58d649c1040851659580c61627a6a7ea955416a42a5929b979baf92b810d8d8e05\
003ad22868";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn mapping() -> TopicQueueMapping {
    TopicQueueMapping {
        bname: Some("broker-a".into()),
        topic: Some("TopicB".into()),
        scope: Some("__global__".into()),
        total_queues: 1,
        epoch: 1_700_000_000_001,
        dirty: false,
        curr_id_map: BTreeMap::from([(0, 0)]),
    }
}

fn broker() -> BrokerData {
    BrokerData {
        cluster: "DefaultCluster".into(),
        broker_name: "broker-a".into(),
        broker_addrs: BTreeMap::from([(0, "10.0.0.1:10911".into()), (1, "10.0.0.2:10911".into())]),
        zone_name: None,
        enable_acting_master: false,
    }
}

fn text(encode: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    encode(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn deflated_registrations_of_java_are_read() {
    let (a, b) = (bytes(VECTOR_A), bytes(VECTOR_B));
    assert_eq!((a.len(), body_crc32(&a)), (214, 427_416_182));
    assert_eq!((b.len(), body_crc32(&b)), (124, 1_898_464_311));
    assert!(is_deflated(&a, false) && is_deflated(&b, false));
    let (inflated_a, inflated_b) = (inflate(&a, 287).unwrap(), inflate(&b, 1000).unwrap());
    assert_eq!(inflated_a.len(), 287);
    let body = RegisterBrokerBody::decode(&inflated_a, BodyForm::Binary { mappings: true }, &LIMITS).unwrap();
    assert_eq!(body.data_version, DataVersion { state_version: 0, timestamp: 1_700_000_000_000, counter: 3 });
    let topics: Vec<_> = body
        .topics
        .iter()
        .map(|topic| {
            (topic.topic_name.as_deref().unwrap(), topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        })
        .collect();
    assert_eq!(topics, [("TopicA", 8, 8, 6), ("TopicB", 4, 4, 6)]);
    assert_eq!(body.filter_servers, Some(Vec::new()));
    assert_eq!(body.mappings, [("TopicB".into(), mapping())]);

    let older = BodyForm::Binary { mappings: false };
    let without = RegisterBrokerBody::decode(&inflated_b, older, &LIMITS).unwrap();
    assert_eq!(without.topics, body.topics);
    assert_eq!(without.mappings, []);
    // A newer body under an older version: what follows is not looked at. The other way round it is missing.
    assert_eq!(RegisterBrokerBody::decode(&inflated_a, older, &LIMITS).unwrap(), without);
    let error = RegisterBrokerBody::decode(&inflated_b, BodyForm::Binary { mappings: true }, &LIMITS);
    assert_eq!(error, Err(BodyError::Truncated { section: "mappings", offset: inflated_b.len() }));
}

#[test]
fn what_is_deflated_here_inflates_to_the_same() {
    let inflated = inflate(&bytes(VECTOR_A), 1000).unwrap();
    let deflated = deflate(&inflated);
    assert_eq!(&deflated[..2], &[0x78, 0xDA], "level 9, as Java deflates");
    assert!(is_deflated(&deflated, false));
    assert_eq!(inflate(&deflated, 1000).unwrap(), inflated);
    let body = RegisterBrokerBody::decode(&inflated, BodyForm::Binary { mappings: true }, &LIMITS).unwrap();
    let mut again = Vec::new();
    body.encode_binary(true, &mut again);
    // Attributes of topics are not kept; everything else is the same.
    let original = String::from_utf8_lossy(&inflated).replace("{\"message.type\":\"FIFO\"}", "{}");
    let original = original.replace("\u{0}\u{0}\u{0}/TopicB", "\u{0}\u{0}\u{0}\u{1a}TopicB");
    assert_eq!(String::from_utf8_lossy(&again), original);
}

#[test]
fn the_checksum_loses_its_top_bit() {
    let body = br#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{}}}"#;
    assert_eq!((body.len(), body_crc32(body), body_crc32(b"")), (148, 1_736_737_077, 0));
    let decoded = RegisterBrokerBody::decode(body, BodyForm::Json, &LIMITS).unwrap();
    assert_eq!((decoded.data_version.counter, decoded.topics.len()), (3, 0));
}

#[test]
fn a_bomb_is_refused_without_memory() {
    let bomb = deflate(&vec![0; 64 << 20]);
    assert!(bomb.len() < 100_000);
    assert_eq!(inflate(&bomb, 1 << 20), Err(BodyError::InflatedTooLong { limit: 1 << 20 }));
    assert_eq!(inflate(&bomb, 32 << 20), Err(BodyError::InflatedTooLong { limit: 32 << 20 }));
    assert_eq!(inflate(&bomb, (64 << 20) - 1), Err(BodyError::InflatedTooLong { limit: (64 << 20) - 1 }));
    assert_eq!(inflate(&bomb, 64 << 20).unwrap().len(), 64 << 20);
}

#[test]
fn inflating_keeps_its_limit_to_the_byte() {
    for length in [0, 1, 255, 256, 257, 4096, 100_000] {
        let plain: Vec<u8> = (0..length).map(|index: usize| (index % 251) as u8).collect();
        let deflated = deflate(&plain);
        assert_eq!(inflate(&deflated, length).unwrap(), plain, "{length}");
        if let Some(less) = length.checked_sub(1) {
            assert_eq!(inflate(&deflated, less), Err(BodyError::InflatedTooLong { limit: less }));
        }
    }
}

#[test]
fn damaged_streams_are_refused() {
    let whole = bytes(VECTOR_A);
    for end in 0..whole.len() {
        assert_eq!(inflate(&whole[..end], 1000), Err(BodyError::Deflate), "{end} bytes");
    }
    let mut trailing = whole.clone();
    trailing.extend_from_slice(b"more");
    assert!(inflate(&trailing, 1000).is_ok(), "Java does not look behind the end of the stream");
    assert_eq!(inflate(b"{}", 1000), Err(BodyError::Deflate));
    let mut damaged = whole;
    damaged[100] ^= 0x55;
    assert!(inflate(&damaged, 1000).is_err());
}

#[test]
fn what_is_deflated_is_seen_whatever_is_claimed() {
    assert!(!is_deflated(b"", false) && !is_deflated(b"", true));
    assert!(!is_deflated(b"{\"a\":1}", false) && !is_deflated(b" {\"a\":1}", true));
    assert!(!is_deflated(b"x", false));
    assert!(!is_deflated(b"xyz", false), "0x78 but no zlib header");
    assert!(is_deflated(&[0x58, 0x85, 0], true), "a smaller window, as claimed");
    assert!(!is_deflated(&[0x58, 0x85, 0], false));
    assert!(is_deflated(b"garbage", true), "fails as what it claims to be");
}

#[test]
fn every_truncation_of_the_inflated_layout_is_refused() {
    let inflated = inflate(&bytes(VECTOR_A), 1000).unwrap();
    let form = BodyForm::Binary { mappings: true };
    for end in 1..inflated.len() {
        let error = RegisterBrokerBody::decode(&inflated[..end], form, &LIMITS);
        assert!(matches!(error, Err(BodyError::Truncated { .. })), "{end} bytes: {error:?}");
    }
}

/// Thirteen bytes of an inflated body are a topic that takes a hundred: a small frame could take gigabytes.
#[test]
fn more_entries_than_the_limit_are_refused_in_every_form() {
    let limits = BodyLimits { entries_max: 1, ..LIMITS };
    let json = |topics: &str, mappings: &str| {
        format!(
            r#"{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}},"topicQueueMappingInfoMap":{{{mappings}}}}}}}"#
        )
    };
    let decode = |body: &[u8], form| {
        RegisterBrokerBody::decode(body, form, &limits).map(|body| (body.topics.len(), body.mappings.len()))
    };
    let too_many = |section| Err(BodyError::TooManyEntries { section, limit: 1 });
    assert_eq!(decode(json(r#""a":{}"#, r#""a":{}"#).as_bytes(), BodyForm::Json), Ok((1, 1)));
    assert_eq!(decode(json(r#""a":{},"b":{}"#, "").as_bytes(), BodyForm::Json), too_many("topics"));
    assert_eq!(decode(json("", r#""a":{},"b":{}"#).as_bytes(), BodyForm::Json), too_many("mappings"));
    assert_eq!(decode(br#"{"topicConfigTable":{"a":{},"b":{}}}"#, BodyForm::Legacy), too_many("topics"));
    let form = BodyForm::Binary { mappings: true };
    let two_topics = b"\0\0\0\x02{}\0\0\0\x02\0\0\0\x09a 1 1 6 S\0\0\0\x09b 1 1 6 S\0\0\0\0\0\0\0\0";
    assert_eq!(decode(two_topics, form), too_many("topics"));
    let two_mappings = b"\0\0\0\x02{}\0\0\0\0\0\0\0\x02[]\0\0\0\x02\0\0\0\x02{}\0\0\0\x02{}";
    assert_eq!(decode(two_mappings, form), too_many("mappings"));
    for (member, section) in [("queueDatas", "queues"), ("brokerDatas", "brokers")] {
        let route = |entries: &str| {
            TopicRouteData::decode(format!("{{\"{member}\":[{entries}]}}").as_bytes(), &limits)
        };
        assert!(route("{}").is_ok());
        assert_eq!(route("{},{}"), Err(BodyError::TooManyEntries { section, limit: 1 }));
    }
}

#[test]
fn counts_that_a_peer_only_claims_reserve_nothing() {
    let claims = |count: i32| [&b"\0\0\0\x02{}"[..], &count.to_be_bytes()].concat();
    let form = BodyForm::Binary { mappings: true };
    let (over, at) = (claims(100_001), claims(100_000));
    let error = RegisterBrokerBody::decode(&over, form, &LIMITS);
    assert_eq!(error, Err(BodyError::TooManyEntries { section: "topics", limit: 100_000 }));
    let error = RegisterBrokerBody::decode(&at, form, &LIMITS);
    assert_eq!(error, Err(BodyError::Truncated { section: "topics", offset: 10 }));
    let error = RegisterBrokerBody::decode(&[255, 255, 255, 255, 0], form, &LIMITS);
    assert_eq!(error, Err(BodyError::NegativeLength { section: "data version", length: -1, offset: 0 }));
    let topic = b"\0\0\0\x02{}\0\0\0\x01\0\0\0\x0bTopicA 8 8 \0\0\0\0";
    assert_eq!(RegisterBrokerBody::decode(topic, form, &LIMITS), Err(BodyError::Topic { offset: 14 }));
}

#[test]
fn no_body_is_a_broker_without_topics() {
    let legacy = RegisterBrokerBody::decode(b"", BodyForm::Legacy, &LIMITS).unwrap();
    assert_eq!((legacy.filter_servers, legacy.topics.len()), (None, 0));
    for form in [BodyForm::Json, BodyForm::Binary { mappings: true }] {
        let body = RegisterBrokerBody::decode(b"", form, &LIMITS).unwrap();
        assert_eq!((body.filter_servers, body.topics.len()), (Some(Vec::new()), 0));
    }
}

#[test]
fn bodies_of_old_brokers_are_the_bare_table() {
    let body = br#"{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"TopicA":{"order":true,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":1,"writeQueueNums":4}}}"#;
    let decoded = RegisterBrokerBody::decode(body, BodyForm::Legacy, &LIMITS).unwrap();
    assert_eq!(decoded.filter_servers, None);
    let topic = &decoded.topics[0];
    assert_eq!((topic.read_queue_nums, topic.write_queue_nums, topic.topic_sys_flag), (8, 4, 1));
    assert!(topic.order);
}

#[test]
fn a_registration_is_written_as_a_broker_writes_it() {
    let expected = r#"{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{"TopicA":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"TopicB":{"bname":"broker-a","currIdMap":{0:0},"dirty":false,"epoch":1700000000001,"scope":"__global__","topic":"TopicB","totalQueues":1}}}}"#;
    let body = RegisterBrokerBody::decode(expected.as_bytes(), BodyForm::Json, &LIMITS).unwrap();
    assert_eq!(text(|out| body.encode_json(out)), expected);
    assert_eq!(body.mappings[0].1, mapping());
}

#[test]
fn the_quick_way_and_the_thorough_way_read_the_same_topics() {
    let quick = r#"{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"attributes":{"a":"b"},"order":true,"perm":7,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"N","topicSysFlag":2,"writeQueueNums":3},"U":{"order":false,"perm":2,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"U","topicSysFlag":0,"writeQueueNums":5}}}}"#;
    let one = RegisterBrokerBody::decode(quick.as_bytes(), BodyForm::Json, &LIMITS).unwrap();
    for (from, to) in
        [(":", " : "), ("\"", "'"), ("\"perm\"", "perm"), (",", ",,"), ("SINGLE_TAG", "MULTI_TAG")]
    {
        let other = quick.replace(from, to);
        let other = RegisterBrokerBody::decode(other.as_bytes(), BodyForm::Json, &LIMITS).unwrap();
        assert_eq!(one, other, "{from} as {to}");
    }
    assert_eq!(one.topics[0].topic_name.as_deref(), Some("N"));
    assert_eq!(one.topics[0].key, "T");
}

#[test]
fn a_route_with_every_member_is_written_in_both_dialects() {
    let mut queue_mapping = mapping();
    queue_mapping.topic = Some("TopicA".into());
    queue_mapping.total_queues = 2;
    queue_mapping.curr_id_map = BTreeMap::from([(0, 0), (1, 1)]);
    let route = TopicRouteData {
        order_topic_conf: Some("broker-a:8;broker-b:8".into()),
        broker_datas: vec![BrokerData {
            zone_name: Some("zone1".into()),
            enable_acting_master: true,
            ..broker()
        }],
        queue_datas: vec![QueueData {
            broker_name: "broker-a".into(),
            read_queue_nums: 8,
            write_queue_nums: 8,
            perm: 6,
            topic_sys_flag: 0,
        }],
        filter_server_table: BTreeMap::from([("10.0.0.1:10911".into(), vec!["10.0.0.1:20000".into()])]),
        topic_queue_mapping_by_broker: Some(BTreeMap::from([("broker-a".into(), queue_mapping)])),
    };
    let standard = r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":true,"zoneName":"zone1"}],"filterServerTable":{"10.0.0.1:10911":["10.0.0.1:20000"]},"orderTopicConf":"broker-a:8;broker-b:8","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{"0":0,"1":1},"dirty":false,"epoch":1700000000001,"scope":"__global__","topic":"TopicA","totalQueues":2}}}"#;
    assert_eq!(text(|out| route.encode(Dialect::Standard, out)), standard);
    let legacy = standard.replace("{\"0\":", "{0:").replace(",\"1\":", ",1:");
    assert_eq!(text(|out| route.encode(Dialect::Legacy, out)), legacy);
    for body in [standard, &legacy] {
        assert_eq!(TopicRouteData::decode(body.as_bytes(), &LIMITS).unwrap(), route);
    }
}

#[test]
fn integer_keys_are_in_numeric_order_and_texts_in_the_5_5_0_form() {
    let mut group = broker();
    group.broker_addrs = [10, 2, 1, -1].into_iter().map(|id| (id, id.to_string())).collect();
    group.cluster = "a/b\"\\\u{1}\n\u{7f}é😀".into();
    assert_eq!(
        text(|out| group.encode(Dialect::Standard, out)),
        "{\"brokerAddrs\":{\"-1\":\"-1\",\"1\":\"1\",\"2\":\"2\",\"10\":\"10\"},\"brokerName\":\"broker-a\",\"cluster\":\"a/b\\\"\\\\\\u0001\\n\u{7f}é😀\",\"enableActingMaster\":false}"
    );
}

#[test]
fn the_other_bodies_are_written_as_the_catalogue_says() {
    let clusters = ClusterInfo {
        broker_addr_table: BTreeMap::from([(
            "broker-a".into(),
            BrokerData { zone_name: Some("zone1".into()), ..broker() },
        )]),
        cluster_addr_table: BTreeMap::from([("DefaultCluster".into(), BTreeSet::from(["broker-a".into()]))]),
    };
    let expected = r#"{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false,"zoneName":"zone1"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}"#;
    assert_eq!(text(|out| clusters.encode(Dialect::Legacy, out)), expected);
    assert_eq!(ClusterInfo::decode(expected.as_bytes(), &LIMITS).unwrap(), clusters);
    assert_eq!(
        text(|out| ClusterInfo::default().encode(Dialect::Legacy, out)),
        r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#
    );

    let group = BrokerMemberGroup {
        cluster: "DefaultCluster".into(),
        broker_name: "broker-a".into(),
        broker_addrs: broker().broker_addrs,
    };
    let expected = r#"{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}}"#;
    assert_eq!(text(|out| group.encode(Dialect::Legacy, out)), expected);
    assert_eq!(BrokerMemberGroup::decode(expected.as_bytes(), &LIMITS).unwrap(), group);

    let list =
        TopicList { broker_addr: Some("10.0.0.1:10911".into()), topic_list: vec!["C".into(), "b".into()] };
    let expected = r#"{"brokerAddr":"10.0.0.1:10911","topicList":["C","b"]}"#;
    assert_eq!(text(|out| list.encode(out)), expected);
    assert_eq!(TopicList::decode(expected.as_bytes(), &LIMITS).unwrap(), list);
    assert_eq!(text(|out| TopicList::default().encode(out)), r#"{"topicList":[]}"#);
    assert_eq!(text(|out| KvTable::default().encode(out)), r#"{"table":{}}"#);
}

#[test]
fn the_key_value_file_says_where_it_is_damaged() {
    let content =
        r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:8;broker-b:8"},"ns2":{"k":"v"}}}"#;
    let config = KvConfigTable::decode(content.as_bytes(), &LIMITS).unwrap();
    assert_eq!(config.table["ns2"]["k"].as_deref(), Some("v"));
    assert_eq!(text(|out| config.encode(out)), content);
    let null = KvConfigTable::decode(br#"{"configTable":{"n":{"k":null,"l":5}}}"#, &LIMITS).unwrap();
    assert_eq!(text(|out| null.encode(out)), r#"{"configTable":{"n":{"l":"5"}}}"#);
    let offset = |content: &[u8]| match KvConfigTable::decode(content, &LIMITS) {
        Err(BodyError::Json(error)) => error.offset,
        other => panic!("{other:?}"),
    };
    assert_eq!(offset(b"{}"), 2);
    assert_eq!(offset(b""), 0);
    assert_eq!(offset(&content.as_bytes()[..60]), 60);
    assert_eq!(offset(b"{\"configTable\":{\"n\":{\"k\":\"\xff\"}}}"), 26);
    assert_eq!(offset(br#"{"configTable":{"n":[1]}}"#), 20);
}

#[test]
fn deep_json_is_refused_and_does_not_overflow_the_stack() {
    for open in ["[", "{\"a\":", "{\"topicConfigSerializeWrapper\":", "{\"brokerDatas\":["] {
        let mut bomb = String::from("{\"x\":");
        bomb.push_str(&open.repeat(1_000_000));
        let limits = BodyLimits { json_depth: usize::MAX, ..LIMITS };
        for limits in [LIMITS, limits] {
            let error = RegisterBrokerBody::decode(bomb.as_bytes(), BodyForm::Json, &limits).unwrap_err();
            assert_eq!(error.kind(), "body_json");
            assert!(error.to_string().contains("deeper than the limit"), "{error}");
            assert!(TopicRouteData::decode(bomb.as_bytes(), &limits).is_err());
        }
    }
    let nested = |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(TopicRouteData::decode(nested(63).as_bytes(), &LIMITS).is_ok());
    assert!(TopicRouteData::decode(nested(64).as_bytes(), &LIMITS).is_err());
}

#[test]
fn bytes_that_are_no_text_become_replacement_characters() {
    let body =
        b"{\"topicConfigSerializeWrapper\":{\"topicConfigTable\":{\"\xff\":{\"topicName\":\"a\xff\"}}}}";
    let decoded = RegisterBrokerBody::decode(body, BodyForm::Json, &LIMITS).unwrap();
    assert_eq!(decoded.topics[0].topic_name.as_deref(), Some("a\u{fffd}"));
    let legacy = b"{\"topicConfigTable\":{\"\xff\":{\"topicName\":\"a\xff\"}}}";
    assert_eq!(RegisterBrokerBody::decode(legacy, BodyForm::Legacy, &LIMITS).unwrap().topics, decoded.topics);
}
