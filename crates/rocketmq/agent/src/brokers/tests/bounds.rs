//! How much is kept, whatever brokers send.

use super::*;

use crate::outbox::Topics;
use crate::room::{BROKERS_MAX, BYTES_MAX, NoRoom, SIGN_MAX, TABLES_MAX};

/// A table of one topic and a second by the number, in a frame of so many bytes. The brokers share them.
fn say(brokers: &mut Brokers, address: &str, bytes: &Bytes, topic: u64) -> Result<Pending, Box<Answer>> {
    let mut registration = SAYS.registration();
    registration.identity.address = address.to_owned();
    registration.identity.name = format!("broker-{address}");
    registration.frame.bytes = bytes.clone();
    registration.digest = topic.into();
    let table = Table { topics: Topics::new(vec![1, topic], false), version: version(1) };
    brokers.register(&registration, table, CONNECTION, at(0))
}

fn told(brokers: &mut Brokers) -> Vec<(String, NoRoom)> {
    let told = |effect| match effect {
        Effect::NoRoom(address, reason) => Some((address, reason)),
        _ => None,
    };
    brokers.take_effects().into_iter().filter_map(told).collect()
}

#[test]
fn an_unknown_broker_beyond_the_bound_is_refused_and_named() {
    let mut brokers = Brokers::default();
    let small = Bytes::from_static(b"small");
    for number in 0..BROKERS_MAX {
        say(&mut brokers, &format!("127.0.0.1:{number}"), &small, 2).expect("there is room");
    }
    assert_eq!(told(&mut brokers), []);
    let refusal = say(&mut brokers, "127.0.0.9:1", &small, 2).expect_err("one too many");
    assert_eq!(refusal.code, 1);
    assert!(refusal.remark.as_deref().unwrap_or_default().contains("1000 brokers"), "{refusal:?}");
    assert!(brokers.broker("127.0.0.9:1").is_none());
    assert_eq!(told(&mut brokers), [("127.0.0.9:1".to_owned(), NoRoom::Brokers)], "no link, nothing saved");

    say(&mut brokers, "127.0.0.1:0", &small, 3).expect("it is known");
    brokers.connection_lost(CONNECTION, at(0));
    brokers.refused("127.0.0.1:7");
    say(&mut brokers, "127.0.0.9:1", &small, 2).expect("there is room again");
}

#[test]
fn what_all_brokers_said_has_one_bound() {
    let mut brokers = Brokers::default();
    let third = Bytes::from(vec![0; TABLES_MAX / 3 - 10_000]);
    for address in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"] {
        say(&mut brokers, address, &third, 2).expect("there is room");
    }
    let refusal = say(&mut brokers, "127.0.0.1:4", &third, 2).expect_err("it does not fit");
    assert!(refusal.remark.as_deref().unwrap_or_default().contains("256 MiB"), "{refusal:?}");
    assert!(matches!(&told(&mut brokers)[..], [(address, NoRoom::Bytes { .. })] if address == "127.0.0.1:4"));
    say(&mut brokers, "127.0.0.1:4", &Bytes::from_static(b"small"), 2).expect("this fits");

    // Again and again, as brokers do.
    for address in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"] {
        let bytes = brokers.frames(address)[0].bytes.clone();
        say(&mut brokers, address, &bytes, 2).expect("it replaces what it said");
    }
    assert_eq!(told(&mut brokers), []);
    let kept: usize = brokers.iter().map(|(_, broker)| broker.outbox.bytes()).sum();
    assert!(kept <= TABLES_MAX, "{kept}");
}

#[test]
fn a_broker_that_says_ever_more_loses_its_own_oldest_frames() {
    let mut brokers = Brokers::default();
    let other = Bytes::from(vec![0; TABLES_MAX / 2]);
    say(&mut brokers, "127.0.0.1:1", &other, 2).expect("there is room");
    let part = Bytes::from(vec![0; TABLES_MAX / 8]);
    for topic in 2..20 {
        say(&mut brokers, "127.0.0.1:2", &part, topic).expect("it fits without the oldest");
    }
    assert_eq!(brokers.frames("127.0.0.1:1").len(), 1, "nobody else pays for it");
    assert_eq!(brokers.frames("127.0.0.1:2").len(), 3);
    assert!(told(&mut brokers).contains(&("127.0.0.1:2".to_owned(), NoRoom::Older { frames: 1 })));
    assert_eq!(
        brokers.broker("127.0.0.1:2").expect("known").version,
        None,
        "it is made to say all of it again"
    );
}

#[test]
fn topics_count_beside_the_bytes_of_their_frames() {
    let mut brokers = Brokers::default();
    let registration = SAYS.registration();
    let topics = (0..BYTES_MAX as u64 / 64).collect();
    let table = Table { topics: Topics::new(topics, false), version: version(1) };
    let refusal = brokers.register(&registration, table, CONNECTION, at(0)).expect_err("too many topics");
    assert_eq!(refusal.code, 1);
}

#[test]
fn a_sign_of_life_or_goodbye_has_the_size_of_one() {
    let long = "x".repeat(SIGN_MAX);
    let ext = [identity("0"), vec![("more", long.as_str())]].concat();
    for code in [request::QUERY_DATA_VERSION, request::BROKER_HEARTBEAT, request::UNREGISTER_BROKER] {
        let refusal = heard(&frame(code, &ext, &[], false)).expect_err("it is too long");
        assert_eq!(refusal.code, 1, "{code}");
    }
    let long = "x".repeat(1_025);
    for field in ["clusterName", "brokerName", "brokerAddr"] {
        let mut ext = identity("0");
        ext.retain(|(name, _)| *name != field);
        ext.push((field, &long));
        let refusal =
            heard(&frame(request::REGISTER_BROKER, &ext, b"{}", false)).expect_err("it is too long");
        let remark = refusal.remark.unwrap_or_default();
        assert_eq!(remark, format!("{field} is 1025 bytes long; 1 to 1024 are allowed (nameLengthMax)"));
    }
}
