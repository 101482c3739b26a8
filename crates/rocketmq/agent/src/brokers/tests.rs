use super::*;
use std::net::SocketAddr;

use waypost_rocketmq_wire::body::{BodyLimits, QueueData, RegisterBrokerBody, TopicConfig, TopicRouteData};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding};
use waypost_rocketmq_wire::message::Request;

use crate::heard::Heard;

mod bounds;

const MASTER: &str = "10.0.0.1:10911";
const CONNECTION: u64 = 7;

fn server(number: u16) -> Endpoint {
    Endpoint::from(SocketAddr::from(([127, 0, 0, 1], number)))
}

fn at(millis: u64) -> Millis {
    Millis::new(millis)
}

fn frame(code: i32, ext: &[(&str, &str)], body: &[u8], oneway: bool) -> Bytes {
    let mut bytes = Vec::new();
    Request { ext, body, oneway, opaque: 9, ..Request::new(code) }.write(HeaderEncoding::Json, &mut bytes);
    bytes.into()
}

fn heard(bytes: &Bytes) -> Result<Heard, Box<Answer>> {
    Heard::decode(bytes, &FrameLimits::default()).map(|heard| heard.expect("a broker's code"))
}

/// A registration of a broker: a topic for each letter.
#[derive(Clone, Copy)]
struct Says<'a> {
    topics: &'a str,
    id: &'a str,
    counter: i64,
    timeout: Option<&'a str>,
}

const SAYS: Says<'_> = Says { topics: "abc", id: "0", counter: 1, timeout: None };

fn version(counter: i64) -> DataVersion {
    DataVersion { state_version: 0, timestamp: 1, counter }
}

impl Says<'_> {
    fn registration(&self) -> Registration {
        let topic = |letter: char| TopicConfig {
            topic_name: Some(letter.to_string().into()),
            ..TopicConfig::empty(letter.to_string().into())
        };
        let topics = self.topics.chars().map(topic).collect();
        let body = RegisterBrokerBody { data_version: version(self.counter), topics, ..Default::default() };
        let mut bytes = Vec::new();
        body.encode_json(&mut bytes);
        let mut ext = identity(self.id);
        ext.extend(self.timeout.map(|timeout| ("heartbeatTimeoutMillis", timeout)));
        let crc = body_crc32(&bytes).to_string();
        ext.push(("bodyCrc32", &crc));
        match heard(&frame(request::REGISTER_BROKER, &ext, &bytes, false)) {
            Ok(Heard::Registration(registration)) => registration,
            other => panic!("{other:?}"),
        }
    }

    fn to(&self, brokers: &mut Brokers, now: u64) -> Result<Pending, Box<Answer>> {
        self.over(CONNECTION, brokers, now)
    }

    fn over(&self, connection: u64, brokers: &mut Brokers, now: u64) -> Result<Pending, Box<Answer>> {
        let registration = self.registration();
        let table = brokers.known_table(&registration).map_or_else(
            || registration.table(&FrameLimits::default(), &BodyLimits::default(), &brokers.hasher()),
            Ok,
        )?;
        brokers.register(&registration, table, connection, at(now))
    }
}

fn identity(id: &str) -> Vec<(&'static str, &str)> {
    vec![("clusterName", "Cluster"), ("brokerName", "broker-a"), ("brokerAddr", MASTER), ("brokerId", id)]
}

fn beat(counter: i64, oneway: bool) -> Beat {
    let mut body = Vec::new();
    version(counter).encode(&mut body);
    match heard(&frame(request::QUERY_DATA_VERSION, &identity("0"), &body, oneway)) {
        Ok(Heard::Beat(beat)) => beat,
        other => panic!("{other:?}"),
    }
}

fn goodbye() -> Leave {
    match heard(&frame(request::UNREGISTER_BROKER, &identity("0"), &[], false)) {
        Ok(Heard::Leave(leave)) => leave,
        other => panic!("{other:?}"),
    }
}

/// With two servers, to which there are connections.
fn brokers() -> Brokers {
    let mut brokers = Brokers::default();
    brokers.follow(&[server(1), server(2)]);
    brokers
}

fn registered() -> Brokers {
    let mut brokers = brokers();
    SAYS.to(&mut brokers, 0).expect("accepted");
    brokers.connected(MASTER, &server(1));
    brokers.connected(MASTER, &server(2));
    brokers.take_effects();
    brokers
}

fn accepted(fields: &[(&str, &str)], body: &'static [u8]) -> Answer {
    let ext = fields.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Answer { ext: Some(ext), body: Bytes::from_static(body), ..reply::success() }
}

/// The server takes everything that it is to hear; the codes of what it heard.
fn take_all(brokers: &mut Brokers, number: u16, answer: &Answer, now: u64) -> Vec<i32> {
    let mut codes = Vec::new();
    while let Some(next) = brokers.next(MASTER, &server(number), at(now)) {
        codes.push(next.frame.code);
        assert!(codes.len() < 20, "it never ends: {codes:?}");
        if next.frame.oneway {
            brokers.passed_on(MASTER, &server(number), next.number);
            continue;
        }
        assert_eq!(brokers.answered(MASTER, &server(number), &next, answer, at(now)), Then::GoOn);
    }
    codes
}

fn fields(answer: &Answer) -> Vec<(&str, &str)> {
    answer.ext.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn a_registration_is_linked_to_every_server_and_saved() {
    let mut brokers = brokers();
    SAYS.to(&mut brokers, 0).expect("accepted");
    let effects = brokers.take_effects();
    for effect in [
        Effect::Link(MASTER.into(), server(1)),
        Effect::Link(MASTER.into(), server(2)),
        Effect::Save(MASTER.into()),
    ] {
        assert!(effects.contains(&effect), "{effect:?} in {effects:?}");
    }
    SAYS.to(&mut brokers, 30_000).expect("accepted");
    assert_eq!(brokers.take_effects(), [Effect::Speak(MASTER.into())], "the same body is on disk");
}

#[test]
fn frames_are_passed_on_byte_for_byte() {
    let mut brokers = registered();
    let sent = SAYS.registration().frame;
    assert_eq!(brokers.next(MASTER, &server(1), at(0)).map(|next| next.frame), Some(sent));
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 0), [103]);
    assert_eq!(take_all(&mut brokers, 2, &accepted(&[], b""), 0), [103]);
}

#[test]
fn what_a_name_server_refuses_by_itself_goes_nowhere() {
    let bad_sum = [identity("0"), vec![("bodyCrc32", "5")]].concat();
    let refusal = heard(&frame(103, &bad_sum, b"{}", false)).expect_err("the checksum is wrong");
    assert_eq!((refusal.code, refusal.remark.as_deref()), (1, Some("crc32 not match")));
    let refusal = heard(&frame(103, &identity("0")[..3], b"", false)).expect_err("it has no id");
    assert!(refusal.remark.as_deref().unwrap().contains("brokerId"), "{refusal:?}");

    let nonsense = frame(103, &identity("0"), b"{\"topicConfigSerializeWrapper\":7}", false);
    let Ok(Heard::Registration(registration)) = heard(&nonsense) else { panic!("its header is right") };
    let limits = (FrameLimits::default(), BodyLimits::default());
    let refusal = registration.table(&limits.0, &limits.1, &Brokers::default().hasher());
    let remark = refusal.expect_err("the body is nonsense").remark.unwrap();
    assert!(remark.starts_with("Failed to decode RegisterBrokerBody: "), "{remark}");
}

#[test]
fn a_single_topic_of_an_unknown_broker_is_refused_and_leaves_nothing_behind() {
    let mut brokers = brokers();
    let single = Says { topics: "a", ..SAYS };
    let refusal = single.to(&mut brokers, 0).expect_err("it is no table");
    assert_eq!((refusal.code, refusal.remark.as_deref()), (1, Some("register broker failed")));
    assert_eq!(brokers.iter().count(), 0);
    assert_eq!(brokers.take_effects(), []);
    SAYS.to(&mut brokers, 0).expect("a table");
    single.to(&mut brokers, 0).expect("the broker is known now");
}

#[test]
fn a_master_waits_200_ms_for_the_first_order_configuration_and_never_again() {
    let mut brokers = brokers();
    let pending = SAYS.to(&mut brokers, 0).expect("accepted");
    assert_eq!(brokers.registration_answer(&pending, at(199)), None);
    let late = brokers.registration_answer(&pending, at(200)).expect("it waited long enough");
    assert_eq!((late.code, late.ext, late.body), (0, Some(Vec::new()), Bytes::new()));

    take_all(&mut brokers, 1, &accepted(&[], b"{\"table\":{}}"), 210);
    let pending = SAYS.to(&mut brokers, 300).expect("accepted");
    let answer = brokers.registration_answer(&pending, at(300)).expect("at once");
    assert_eq!(&answer.body[..], b"{\"table\":{}}");
    // A server without any order configuration takes nothing away: brokers only add what it says.
    take_all(&mut brokers, 2, &accepted(&[], b""), 310);
    let answer = brokers.registration_answer(&pending, at(310)).expect("at once");
    assert_eq!(&answer.body[..], b"{\"table\":{}}");
}

#[test]
fn a_slave_waits_2_s_for_a_server_that_names_its_master_and_then_never_again() {
    let slave = Says { id: "1", ..SAYS };
    let named = accepted(&[("haServerAddr", "10.0.0.9:10912"), ("masterAddr", "10.0.0.9:10911")], b"");
    let mut brokers = brokers();
    let pending = slave.to(&mut brokers, 0).expect("accepted");
    brokers.connected(MASTER, &server(1));
    brokers.connected(MASTER, &server(2));
    take_all(&mut brokers, 1, &accepted(&[], b""), 5);
    assert_eq!(brokers.registration_answer(&pending, at(1_999)), None, "server 2 may know the master");
    let answer = brokers.registration_answer(&pending, at(2_000)).expect("it waited long enough");
    assert_eq!(fields(&answer), []);

    take_all(&mut brokers, 2, &named, 2_100);
    let pending = slave.to(&mut brokers, 30_000).expect("accepted");
    let expected = [("haServerAddr", "10.0.0.9:10912"), ("masterAddr", "10.0.0.9:10911")];
    let answer = brokers.registration_answer(&pending, at(30_000)).expect("at once");
    assert_eq!(fields(&answer), expected);
    take_all(&mut brokers, 1, &accepted(&[], b""), 30_100);
    let answer = brokers.registration_answer(&pending, at(30_100)).expect("at once");
    assert_eq!(fields(&answer), expected, "a server that does not know the master overrides none that does");
    take_all(&mut brokers, 2, &accepted(&[], b""), 30_200);
    let answer = brokers.registration_answer(&pending, at(30_200)).expect("all have said it");
    assert_eq!(fields(&answer), [], "no server knows a master");
}

#[test]
fn a_slave_is_answered_when_all_servers_have_answered() {
    let mut brokers = brokers();
    let pending = Says { id: "1", ..SAYS }.to(&mut brokers, 0).expect("accepted");
    take_all(&mut brokers, 1, &accepted(&[], b""), 5);
    assert_eq!(brokers.registration_answer(&pending, at(5)), None);
    // Nobody can be waited for at a server that refuses connections.
    brokers.disconnected(MASTER, &server(2), Some("refused".into()));
    assert!(brokers.registration_answer(&pending, at(5)).is_some());
}

#[test]
fn versions_are_compared_with_what_the_agent_holds() {
    let mut brokers = brokers();
    assert_eq!(fields(&brokers.beat(&beat(1, false), CONNECTION, at(0))), [("changed", "true")]);
    SAYS.to(&mut brokers, 0).expect("accepted");
    let answer = brokers.beat(&beat(1, false), CONNECTION, at(0));
    assert_eq!(fields(&answer), [("changed", "false")]);
    let mut stored = Vec::new();
    version(1).encode(&mut stored);
    assert_eq!(answer.body, stored);
    assert_eq!(fields(&brokers.beat(&beat(2, false), CONNECTION, at(0))), [("changed", "true")]);
}

#[test]
fn a_server_that_forgot_the_broker_gets_everything_when_the_broker_was_told_otherwise() {
    let mut brokers = registered();
    let forgot = accepted(&[("changed", "true")], b"");
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 0), [103]);
    brokers.beat(&beat(1, false), CONNECTION, at(10));
    assert_eq!(take_all(&mut brokers, 1, &forgot, 10), [322, 103], "once, not for ever");
    brokers.beat(&beat(1, false), CONNECTION, at(20));
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[("changed", "false")], b""), 20), [322]);
    // The broker knows that it has to register: nothing is repeated for it.
    brokers.beat(&beat(2, false), CONNECTION, at(30));
    assert_eq!(take_all(&mut brokers, 1, &forgot, 30), [322]);
}

#[test]
fn a_busy_or_leaving_server_gets_the_same_frame_again() {
    let mut brokers = registered();
    for code in [2, 1500] {
        let next = brokers.next(MASTER, &server(1), at(0)).expect("the table");
        let then = brokers.answered(MASTER, &server(1), &next, &reply::code(code), at(0));
        assert_eq!(then, Then::Retry);
        assert_eq!(brokers.next(MASTER, &server(1), at(0)), Some(next));
    }
}

#[test]
fn a_reconnect_sends_the_state_again_but_no_sign_of_life() {
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    Says { topics: "d", counter: 2, ..SAYS }.to(&mut brokers, 100).expect("accepted");
    brokers.beat(&beat(2, true), CONNECTION, at(200));
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 200), [103, 322]);
    brokers.disconnected(MASTER, &server(1), None);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 300), [103, 103]);
}

#[test]
fn nothing_is_renewed_for_a_broker_that_fell_silent() {
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    brokers.disconnected(MASTER, &server(1), None);
    assert!(brokers.next(MASTER, &server(1), at(65_000)).is_some());
    assert_eq!(brokers.next(MASTER, &server(1), at(65_001)), None, "its lease is not the agent's to renew");
    let shown = |now| {
        let broker = brokers.broker(MASTER).expect("known");
        broker.waiting(&broker.servers[&server(1)], at(now))
    };
    assert_eq!((shown(65_000), shown(65_001)), (1, 0));
    SAYS.to(&mut brokers, 66_000).expect("it lives");
    assert!(brokers.next(MASTER, &server(1), at(66_000)).is_some());
}

#[test]
fn a_silent_broker_ends_when_its_lease_does() {
    for (timeout, lease) in [(None, 120_000), (Some("10000"), 10_000)] {
        let mut brokers = brokers();
        Says { timeout, ..SAYS }.to(&mut brokers, 0).expect("accepted");
        brokers.take_effects();
        brokers.tick(at(lease));
        assert_eq!(brokers.take_effects(), []);
        brokers.tick(at(lease + 1));
        assert!(brokers.take_effects().contains(&Effect::End(MASTER.into())), "{timeout:?}");
        assert!(brokers.broker(MASTER).is_none());
    }
}

#[test]
fn a_lost_connection_ends_the_broker_at_once_if_its_port_refuses() {
    let mut brokers = registered();
    brokers.refused(MASTER);
    assert!(brokers.broker(MASTER).is_some(), "it has a connection");
    brokers.connection_lost(CONNECTION, at(1_000));
    assert_eq!(brokers.take_effects(), [Effect::Probe(MASTER.into())]);
    brokers.refused(MASTER);
    assert_eq!(brokers.take_effects(), [Effect::End(MASTER.into())]);
}

#[test]
fn a_lost_connection_ends_the_broker_after_5_s_without_another() {
    let mut brokers = registered();
    brokers.connection_lost(CONNECTION, at(1_000));
    brokers.tick(at(5_999));
    assert!(brokers.broker(MASTER).is_some());
    brokers.tick(at(6_000));
    assert!(brokers.broker(MASTER).is_none());
}

#[test]
fn a_broker_that_comes_back_over_another_connection_stays() {
    let mut brokers = registered();
    brokers.beat(&beat(1, true), CONNECTION + 1, at(500));
    brokers.connection_lost(CONNECTION, at(1_000));
    brokers.tick(at(7_000));
    assert!(brokers.broker(MASTER).is_some(), "an older connection does not matter");
    brokers.connection_lost(CONNECTION + 1, at(8_000));
    SAYS.to(&mut brokers, 9_000).expect("accepted");
    brokers.refused(MASTER);
    brokers.tick(at(14_000));
    assert!(brokers.broker(MASTER).is_some());
}

#[test]
fn leaving_goes_to_all_and_is_answered_after_all_or_1_s() {
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    let pending = brokers.leave(&goodbye(), CONNECTION, at(100)).expect("it is known");
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 110), [104]);
    assert!(!brokers.has_left(&pending, at(1_099)), "server 2 hangs");
    assert!(brokers.has_left(&pending, at(1_100)));
    brokers.tick(at(1_200));
    assert!(brokers.broker(MASTER).is_some(), "server 2 hears of it when it goes on");
    assert_eq!(take_all(&mut brokers, 2, &accepted(&[], b""), 1_300), [104]);
    assert!(brokers.has_left(&pending, at(1_300)));
    brokers.tick(at(1_400));
    assert!(brokers.take_effects().contains(&Effect::End(MASTER.into())));
    assert_eq!(brokers.leave(&goodbye(), CONNECTION, at(1_500)), None, "there is no such broker any more");
}

#[test]
fn a_broker_that_registers_after_leaving_stays() {
    let mut brokers = registered();
    brokers.leave(&goodbye(), CONNECTION, at(100));
    SAYS.to(&mut brokers, 200).expect("accepted");
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 300), [104, 103]);
    assert_eq!(take_all(&mut brokers, 2, &accepted(&[], b""), 300), [104, 103]);
    brokers.tick(at(50_000));
    assert!(brokers.broker(MASTER).is_some());
}

#[test]
fn a_goodbye_under_another_name_ends_nobody() {
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    let foreign = Leave { name: "broker-b".into(), ..goodbye() };
    assert_eq!(brokers.leave(&foreign, CONNECTION, at(100)), None);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 110), [], "no server hears of it");
    assert_eq!(brokers.frames(MASTER).len(), 1);
    brokers.tick(at(1_000));
    assert!(brokers.broker(MASTER).is_some());
}

#[test]
fn a_goodbye_over_an_older_connection_is_ignored() {
    let mut brokers = registered();
    SAYS.over(CONNECTION + 1, &mut brokers, 10).expect("accepted");
    assert_eq!(brokers.leave(&goodbye(), CONNECTION, at(100)), None);
    assert_eq!(brokers.frames(MASTER).len(), 1);
    // It has never carried the broker: nobody knows that it is older.
    assert!(brokers.leave(&goodbye(), CONNECTION + 2, at(200)).is_some());
}

#[test]
fn a_connection_is_older_only_once_another_has_registered_the_broker_or_outlived_it() {
    let mut brokers = registered();
    brokers.beat(&beat(1, true), CONNECTION + 1, at(10));
    assert!(brokers.broker(MASTER).expect("known").is_ended_by("broker-a", CONNECTION));
    brokers.connection_lost(CONNECTION + 1, at(20));
    brokers.beat(&beat(1, true), CONNECTION + 2, at(30));
    let broker = brokers.broker(MASTER).expect("known");
    assert!(!broker.is_ended_by("broker-a", CONNECTION));
    assert!(broker.is_ended_by("broker-a", CONNECTION + 2));
}

#[test]
fn another_broker_at_the_address_has_no_older_connections() {
    let mut brokers = registered();
    SAYS.over(CONNECTION + 1, &mut brokers, 10).expect("accepted");
    brokers.leave(&goodbye(), CONNECTION + 1, at(20)).expect("it is known");
    SAYS.over(CONNECTION + 2, &mut brokers, 30).expect("accepted");
    assert!(brokers.leave(&goodbye(), CONNECTION, at(40)).is_some(), "as a NameServer has it");
}

#[test]
fn a_restored_broker_is_withdrawn_after_65_s_without_a_frame_of_its_own() {
    for speaks in [false, true] {
        let mut brokers = brokers();
        let registration = SAYS.registration();
        let limits = (FrameLimits::default(), BodyLimits::default());
        let table = registration.table(&limits.0, &limits.1, &brokers.hasher()).expect("topics");
        brokers.restore(&registration, table, at(1_000)).expect("accepted");
        assert!(!brokers.take_effects().contains(&Effect::Save(MASTER.into())), "it is on disk");
        assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 1_000), [103]);
        if speaks {
            brokers.beat(&beat(1, true), CONNECTION, at(60_000));
        }
        brokers.tick(at(65_999));
        assert!(brokers.broker(MASTER).is_some());
        brokers.tick(at(66_000));
        assert_eq!(brokers.broker(MASTER).is_some(), speaks);
    }
}

#[test]
fn what_was_saved_does_not_override_a_broker_that_came_first() {
    let mut brokers = brokers();
    Says { topics: "xyz", counter: 5, ..SAYS }.to(&mut brokers, 0).expect("accepted");
    let registration = SAYS.registration();
    let limits = (FrameLimits::default(), BodyLimits::default());
    let table = registration.table(&limits.0, &limits.1, &brokers.hasher()).expect("topics");
    brokers.restore(&registration, table, at(10)).expect("left out");
    assert_eq!(brokers.frames(MASTER).len(), 1);
    assert_eq!(fields(&brokers.beat(&beat(5, true), CONNECTION, at(20))), [("changed", "false")]);
}

#[test]
fn another_role_makes_what_was_said_before_superfluous() {
    let mut brokers = registered();
    Says { id: "1", topics: "de", ..SAYS }.to(&mut brokers, 10).expect("accepted");
    assert_eq!(brokers.frames(MASTER).len(), 1);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 20), [103]);
}

#[test]
fn what_a_broker_said_before_another_took_its_place_is_not_said_again() {
    let other = "127.0.0.2:10911";
    let takes_over = |brokers: &mut Brokers, now: u64| {
        let mut registration = SAYS.registration();
        registration.identity.address = other.to_owned();
        let table = registration
            .table(&FrameLimits::default(), &BodyLimits::default(), &brokers.hasher())
            .expect("topics");
        brokers.register(&registration, table, CONNECTION + 1, at(now)).expect("accepted");
    };
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    takes_over(&mut brokers, 10);
    brokers.disconnected(MASTER, &server(1), None);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 20), []);
    assert!(brokers.next(other, &server(1), at(20)).is_some());
    // It lives, too: it takes its place back when it registers, as without an agent.
    assert_eq!(fields(&brokers.beat(&beat(1, false), CONNECTION, at(30))), [("changed", "true")]);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 30), []);
    SAYS.to(&mut brokers, 40).expect("accepted");
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 40), [103]);
    assert_eq!(brokers.next(other, &server(1), at(40)), None);
    // A saved one takes nobody's place.
    let mut brokers = registered();
    let mut registration = SAYS.registration();
    registration.identity.address = other.to_owned();
    let table = registration
        .table(&FrameLimits::default(), &BodyLimits::default(), &brokers.hasher())
        .expect("topics");
    brokers.restore(&registration, table, at(10)).expect("left out");
    assert!(brokers.broker(other).is_none());
}

/// A registration of a topic alone, with queues on these brokers.
fn alone(brokers: &[&str]) -> Topic {
    let queues = |name: &&str| QueueData { broker_name: (*name).to_owned(), ..QueueData::default() };
    let mut body = Vec::new();
    if !brokers.is_empty() {
        let queue_datas = brokers.iter().map(queues).collect();
        let route = TopicRouteData { queue_datas, ..TopicRouteData::default() };
        route.encode(waypost_rocketmq_wire::body::Dialect::Standard, &mut body);
    }
    let bytes = frame(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "d")], &body, false);
    match heard(&bytes) {
        Ok(Heard::Topic(topic)) => topic,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_single_topic_registration_is_passed_on_for_the_broker_of_its_connection_only() {
    let mut brokers = registered();
    assert_eq!(brokers.topic(&alone(&["broker-a"]), CONNECTION + 1, at(0)), Ok(false), "an operator sent it");
    assert_eq!(brokers.topic(&alone(&["broker-a"]), CONNECTION, at(0)), Ok(true));
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 0), [103, 217]);
}

#[test]
fn queues_of_other_brokers_replace_nothing_that_a_broker_said_of_the_topic() {
    let mut brokers = registered();
    Says { topics: "d", counter: 2, ..SAYS }.to(&mut brokers, 10).expect("accepted");
    for names in [&[][..], &["broker-b"]] {
        assert_eq!(brokers.topic(&alone(names), CONNECTION, at(20)), Ok(false), "{names:?}");
    }
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 30), [103, 103]);
}

#[test]
fn a_topic_deleted_by_an_operator_is_not_announced_to_servers_that_come_back() {
    let mut brokers = registered();
    Says { topics: "d", counter: 2, ..SAYS }.to(&mut brokers, 10).expect("accepted");
    brokers.delete_topic("d", Some("Elsewhere"));
    assert_eq!(brokers.frames(MASTER).len(), 2);
    brokers.delete_topic("d", Some("Cluster"));
    assert_eq!(brokers.frames(MASTER).len(), 1);
}

#[test]
fn the_mapping_of_a_deleted_topic_is_not_announced_either() {
    let mut brokers = registered();
    let hasher = brokers.hasher();
    let hashes = vec![hash_of(&hasher, "static"), mapping_hash_of(&hasher, "static")];
    let table = Table { topics: crate::outbox::Topics::new(hashes, false), version: version(2) };
    let registration = Says { topics: "d", counter: 2, ..SAYS }.registration();
    brokers.register(&registration, table, CONNECTION, at(10)).expect("accepted");
    SAYS.to(&mut brokers, 20).expect("accepted");
    assert_eq!(brokers.frames(MASTER).len(), 2);
    brokers.delete_topic("static", None);
    assert_eq!(brokers.frames(MASTER).len(), 1);
}

#[test]
fn a_new_server_gets_the_state_and_one_that_left_is_let_go() {
    let mut brokers = registered();
    take_all(&mut brokers, 1, &accepted(&[], b""), 0);
    brokers.follow(&[server(1), server(3)]);
    let effects = brokers.take_effects();
    assert!(effects.contains(&Effect::Unlink(MASTER.into(), server(2))), "{effects:?}");
    assert!(effects.contains(&Effect::Link(MASTER.into(), server(3))), "{effects:?}");
    assert_eq!(take_all(&mut brokers, 3, &accepted(&[], b""), 10), [103]);
    assert_eq!(take_all(&mut brokers, 1, &accepted(&[], b""), 10), [], "it has everything");
    assert!(brokers.upstream(MASTER, &server(2)).is_none());
}

#[test]
fn a_topic_is_on_its_way_until_one_server_took_it() {
    let mut brokers = Brokers::default();
    brokers.follow(&[server(1), server(2)]);
    assert!(!brokers.is_on_its_way("a"));
    SAYS.to(&mut brokers, 0).expect("registered");
    assert!(brokers.is_on_its_way("a") && brokers.is_on_its_way("c") && !brokers.is_on_its_way("d"));
    let first = brokers.next(MASTER, &server(2), at(1)).expect("the registration");
    brokers.answered(MASTER, &server(2), &first, &reply::error("no"), at(1));
    assert!(brokers.is_on_its_way("a"), "it refused");
    let first = brokers.next(MASTER, &server(1), at(1)).expect("the registration");
    brokers.answered(MASTER, &server(1), &first, &accepted(&[], b""), at(1));
    assert!(!brokers.is_on_its_way("a"));
    // A topic alone, whose answer nobody waits for.
    let body = {
        let queues = QueueData { broker_name: "broker-a".to_owned(), ..QueueData::default() };
        let data = TopicRouteData { queue_datas: vec![queues], ..TopicRouteData::default() };
        let mut bytes = Vec::new();
        data.encode(waypost_rocketmq_wire::body::Dialect::Standard, &mut bytes);
        bytes
    };
    let single = frame(request::REGISTER_TOPIC_IN_NAMESRV, &[("topic", "d")], &body, false);
    let Ok(Heard::Topic(topic)) = heard(&single) else { panic!("no topic") };
    assert_eq!(brokers.topic(&topic, CONNECTION, at(2)), Ok(true));
    let next = brokers.next(MASTER, &server(1), at(2)).expect("the topic");
    brokers.passed_on(MASTER, &server(1), next.number);
    assert!(brokers.is_on_its_way("d") && !brokers.is_on_its_way("a"), "sent is not taken");
    brokers.confirmed(MASTER, &server(1), next.number);
    assert!(!brokers.is_on_its_way("d"));
}
