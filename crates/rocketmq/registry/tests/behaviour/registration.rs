//! 103: sections 2.3 and 2.4, decisions 1 and 9.

use std::borrow::Cow;
use std::time::Duration;

use waypost_rocketmq_registry::{Command, Event, Outcome, Policy, RegistrationRefusal, TableLimits};
use waypost_rocketmq_wire::body::TopicConfig;

use crate::fixture::{
    Broker, World, accepted, accepted_with_master, broker, changed, mapping, master, topic, version,
};

#[test]
fn a_master_gives_its_topics_a_route_and_is_told_nothing() {
    let mut world = World::new();
    let effects = world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(effects.outcome, accepted());
    assert_eq!(changed(&effects), ["T1", "T2"]);
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    assert_eq!(world.route("T2"), "ba@c1{0:A} 8/8 6");
    assert_eq!(world.members(), ["c1/ba 0 A"]);
}

#[test]
fn a_slave_is_told_the_master_and_the_masters_replication_address() {
    // K9, step 15.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register(&broker("ba", 1, "B"));
    assert_eq!(effects.outcome, accepted_with_master("A"));
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
}

#[test]
fn a_slave_without_master_is_told_nothing() {
    let mut world = World::new();
    assert_eq!(world.register(&broker("ba", 1, "B")).outcome, accepted());
}

#[test]
fn a_slave_is_not_told_a_master_of_another_cluster() {
    // Step 15 looks for the master's live entry under the slave's cluster.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.register(&broker("ba", 1, "B").in_cluster("c2")).outcome, accepted());
}

#[test]
fn a_topic_that_a_master_creates_later_lists_master_and_slave() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B"));
    let effects = world.register(&master("ba", "A", &["T1", "T2", "T3"]).version(2));
    assert_eq!(changed(&effects), ["T3"]);
    assert_eq!(world.route("T3"), "ba@c1{0:A,1:B} 8/8 6");
}

#[test]
fn a_first_registration_with_one_topic_is_refused_and_leaves_nothing() {
    // Step 7, A3, D5, decision 9.
    let mut world = World::new();
    let effects = world.register(&master("ba", "A", &["T1"]).in_zone("z"));
    assert_eq!(effects.outcome, Outcome::Refused(RegistrationRefusal::SingleTopic));
    assert_eq!(RegistrationRefusal::SingleTopic.to_string(), "register broker failed");
    assert!(effects.changed.is_empty() && effects.events.is_empty());
    assert!(world.table.cluster_info().broker_addr_table.is_empty());
    assert!(world.table.cluster_info().cluster_addr_table.is_empty());
    assert!(world.asks(&master("ba", "A", &[])), "322 does not know it");

    // The whole table under the same version is taken (A3).
    world.register(&master("ba", "A", &["T1", "T2", "T3"]));
    assert_eq!(world.topics(), ["T1", "T2", "T3"]);
}

#[test]
fn a_first_registration_without_topics_is_accepted_and_one_topic_after_it() {
    // S3.
    let mut world = World::new();
    assert_eq!(world.register(&broker("ba", 0, "A")).outcome, accepted());
    assert_eq!(world.register(&master("ba", "A", &["T1"])).outcome, accepted());
    assert_eq!(world.topics(), ["T1"]);
}

#[test]
fn one_topic_for_an_id_that_nobody_has_is_refused_also_in_a_known_group() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register(&broker("ba", 1, "B").topics(&["T1"]));
    assert_eq!(effects.outcome, Outcome::Refused(RegistrationRefusal::SingleTopic));
    assert_eq!(world.members(), ["c1/ba 0 A"]);
}

#[test]
fn one_topic_from_a_new_address_of_a_known_id_is_taken() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.register(&master("ba", "B", &["T3"])).outcome, accepted());
    assert_eq!(world.topics(), ["T1", "T2", "T3"]);
}

#[test]
fn one_topic_listed_twice_is_one_topic() {
    let mut world = World::new();
    let effects = world.register(&broker("ba", 0, "A").topic("T1", 6).topic("T1", 4));
    assert_eq!(effects.outcome, Outcome::Refused(RegistrationRefusal::SingleTopic));
}

#[test]
fn of_two_entries_with_one_key_the_last_counts() {
    let mut world = World::new();
    let both = broker("ba", 0, "A").topic("T1", 6).topic("T1", 4).topic("T2", 6);
    world.register(&both);
    assert_eq!(world.perm("T1"), 4);
    assert!(world.register(&both).changed.is_empty());
}

#[test]
fn a_name_that_is_empty_or_too_long_is_refused_by_its_field() {
    // Decision 9.
    let mut world =
        World::limited(Policy::default(), TableLimits { name_length: 8, ..TableLimits::default() });
    let fine = master("ba", "A", &["T1", "T2"]);
    let mut refusals = Vec::new();
    let changes: [fn(&mut Broker); 7] = [
        |broker| broker.cluster.clear(),
        |broker| broker.name.clear(),
        |broker| broker.address.clear(),
        |broker| broker.cluster = "123456789".to_owned(),
        |broker| broker.zone = Some("123456789".to_owned()),
        |broker| broker.topics[1].topic_name = Some(Cow::Borrowed("")),
        |broker| broker.mappings.push(mapping("123456789", "ba", 1)),
    ];
    for change in changes {
        let mut broken = fine.clone();
        broken.ha_address = None;
        change(&mut broken);
        match world.register(&broken).outcome {
            Outcome::Refused(refusal) => refusals.push(refusal.to_string()),
            other => panic!("accepted: {other:?}"),
        }
    }
    assert_eq!(
        refusals,
        [
            "clusterName is 0 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "brokerName is 0 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "brokerAddr is 0 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "clusterName is 9 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "__ZONE_NAME is 9 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "topicName is 0 bytes long; 1 to 8 are allowed (nameLengthMax)",
            "topicName is 9 bytes long; 1 to 8 are allowed (nameLengthMax)",
        ]
    );
    assert_eq!(world.table.counts(), World::new().table.counts());
}

#[test]
fn a_topic_without_name_refuses_the_registration_and_leaves_nothing() {
    // 2.4, last consequence, with decision 9.
    let mut world = World::new();
    let mut broken = master("ba", "A", &["T1", "T2"]);
    broken.topics.push(TopicConfig::empty(Cow::Borrowed("T3")));
    let refusal = RegistrationRefusal::TopicWithoutName { key: "T3".to_owned() };
    assert_eq!(world.register(&broken).outcome, Outcome::Refused(refusal));
    assert!(world.members().is_empty());
    assert!(world.topics().is_empty());
}

#[test]
fn the_name_of_an_entry_counts_not_its_key() {
    // Section 11.
    let mut world = World::new();
    let mut odd = master("ba", "A", &["T1", "T2"]);
    odd.topics[0].key = Cow::Borrowed("K");
    world.register(&odd);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn the_limit_of_brokers_refuses_new_ones_but_no_successor() {
    let limits = TableLimits { brokers: 1, ..TableLimits::default() };
    let mut world = World::limited(Policy::default(), limits);
    world.register(&master("ba", "A", &["T1", "T2"]));
    let refusal = RegistrationRefusal::LimitReached { what: "brokers", limit: 1, setting: "brokersMax" };
    assert_eq!(refusal.to_string(), "the limit of 1 brokers is reached; raise brokersMax");
    assert_eq!(world.register(&broker("ba", 1, "B")).outcome, Outcome::Refused(refusal));
    assert_eq!(world.register(&master("ba", "B", &["T1", "T2"])).outcome, accepted());
    assert_eq!(world.members(), ["c1/ba 0 B"]);
}

#[test]
fn the_limit_of_topics_refuses_bodies_with_new_ones_only() {
    let limits = TableLimits { topics: 2, ..TableLimits::default() };
    let mut world = World::limited(Policy::default(), limits);
    world.register(&master("ba", "A", &["T1", "T2"]));
    let refusal = RegistrationRefusal::LimitReached { what: "topics", limit: 2, setting: "topicsMax" };
    assert_eq!(world.register(&master("bb", "B", &["T2", "T3"])).outcome, Outcome::Refused(refusal.clone()));
    let mapped = master("bb", "B", &[]).mapping("T3", "bb", 1);
    assert_eq!(world.register(&mapped).outcome, Outcome::Refused(refusal));
    assert_eq!(world.register(&master("bb", "B", &["T1", "T2"])).outcome, accepted());
    // A slave beside its master brings no topics.
    let slave = broker("ba", 1, "C").topics(&["T3", "T4", "T5"]);
    assert_eq!(world.register(&slave).outcome, accepted_with_master("A"));
}

#[test]
fn every_id_is_taken() {
    // Section 11.
    let mut world = World::new();
    for (id, address) in [(-1, "A"), (1 << 32, "B"), (i64::MAX, "C")] {
        assert_eq!(world.register(&broker("ba", id, address)).outcome, accepted());
    }
    assert_eq!(world.members(), ["c1/ba -1 A", "c1/ba 4294967296 B", "c1/ba 9223372036854775807 C"]);
}

#[test]
fn registering_the_same_again_changes_nothing_but_the_lease() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    let first = world.register(&ba);
    assert!(matches!(first.events[0], Event::BrokerRegistered { .. }), "{:?}", first.events);
    world.wait(30_000);
    let again = world.register(&ba);
    assert_eq!(again.outcome, accepted());
    assert!(again.changed.is_empty() && again.events.is_empty(), "{again:?}");
    let row = world.row("A").expect("registered");
    assert_eq!(row.registered_at, Duration::ZERO);
    assert_eq!(row.last_sign, Duration::from_secs(30));
    assert_eq!(row.generation, 2);
}

#[test]
fn content_decides_whatever_the_version_says() {
    // Decision 1 (A3, A9, D27), where the original looks at the version only.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    let effects = world.register(&ba.clone().perm("T1", 4));
    assert_eq!(changed(&effects), ["T1"]);
    assert_eq!(world.perm("T1"), 4);
    let effects = world.register(&ba.perm("T1", 4).version(7));
    assert!(effects.changed.is_empty());
    assert_eq!(world.row("A").expect("registered").data_version, version(7));
}

#[test]
fn every_member_of_the_queue_data_is_compared() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    for (change, expected) in [
        (TopicConfig { read_queue_nums: 4, ..topic("T1", 6) }, "ba@c1{0:A} 4/8 6"),
        (TopicConfig { write_queue_nums: 4, ..topic("T1", 6) }, "ba@c1{0:A} 8/4 6"),
        (TopicConfig { topic_sys_flag: 3, ..topic("T1", 6) }, "ba@c1{0:A} 8/8 6 flag=3"),
        (topic("T1", 0), "ba@c1{0:A} 8/8 0"),
    ] {
        let mut ba = master("ba", "A", &["T2"]);
        ba.topics.push(change);
        assert_eq!(changed(&world.register(&ba)), ["T1"]);
        assert_eq!(world.route("T1"), expected);
    }
}

#[test]
fn a_new_topic_under_the_same_version_is_added() {
    // S6.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("ba", "A", &["T1", "T2", "T3"]));
    assert_eq!(world.topics(), ["T1", "T2", "T3"]);
}

#[test]
fn topics_that_a_later_body_omits_stay() {
    // 2.4, decision 1; the purge is off.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2", "T3"]));
    let effects = world.register(&master("ba", "A", &["T1"]).version(2));
    assert!(effects.changed.is_empty());
    assert_eq!(world.topics(), ["T1", "T2", "T3"]);
}

#[test]
fn changes_in_the_second_part_of_a_split_registration_count() {
    // A9, D27.
    let mut world = World::new();
    let names: Vec<String> = (1..=100).map(|number| format!("T{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (first, second) = names.split_at(50);
    world.register(&master("ba", "A", first));
    world.register(&master("ba", "A", second));
    assert_eq!(world.topics().len(), 100);

    world.register(&master("ba", "A", first).version(2));
    let effects = world.register(&master("ba", "A", second).perm("T75", 4).version(2));
    assert_eq!(changed(&effects), ["T75"]);
    assert_eq!(world.perm("T75"), 4);
}

#[test]
fn filter_servers_are_shown_until_an_empty_list_comes() {
    // Step 13.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    let servers = |world: &World| world.published("T1").expect("routed").data().filter_server_table;
    world.register(&ba.clone().filter(Some(&["F1", "F2"])));
    assert_eq!(servers(&world)["A"], ["F1", "F2"]);
    // Brokers before 3.0.11 say nothing of them: what is known stays.
    let effects = world.register(&ba.clone().filter(None));
    assert!(effects.changed.is_empty());
    assert_eq!(servers(&world)["A"], ["F1", "F2"]);
    let effects = world.register(&ba);
    assert_eq!(changed(&effects), ["T1", "T2"]);
    assert!(servers(&world).is_empty());
}

#[test]
fn a_query_tells_whether_the_version_is_known() {
    // 322: K6, queryBrokerTopicConfig, isBrokerTopicConfigChanged.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    assert!(world.asks(&ba), "an unknown broker should register");
    world.register(&ba);
    assert!(!world.asks(&ba));
    assert!(world.asks(&ba.clone().version(2)), "another counter");
    assert!(world.asks(&ba.clone().state(1)), "another state version");
    let mut older = ba.clone();
    older.version.timestamp -= 1;
    assert!(world.asks(&older), "another timestamp");
    assert!(world.asks(&ba.clone().in_cluster("c2")), "not known in that cluster");

    let outcome = world.apply(Command::QueryDataVersion { sign: ba.sign(), version: None }).outcome;
    assert_eq!(outcome, Outcome::DataVersion { changed: true, stored: Some(version(1)) });
    let unknown = broker("ba", 0, "X");
    let outcome = world.apply(Command::QueryDataVersion { sign: unknown.sign(), version: None }).outcome;
    assert_eq!(outcome, Outcome::DataVersion { changed: true, stored: None });
    assert_eq!(world.members(), ["c1/ba 0 A"], "a query registers nobody");
}

#[test]
fn the_version_of_each_address_is_kept_by_itself() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]).in_cluster("c2").version(5));
    world.unregister(&master("ba", "A", &[]));
    assert!(world.asks(&master("ba", "A", &[])));
    assert!(!world.asks(&master("bb", "B", &[]).in_cluster("c2").version(5)));
}

#[test]
fn what_was_added_and_altered_is_counted_in_one_event() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register(&master("ba", "A", &["T1", "T2", "T3"]).perm("T2", 4).version(2));
    let counts: Vec<_> = effects
        .events
        .iter()
        .filter_map(|event| match event {
            Event::TopicsChanged { broker, added, altered, removed, example } => {
                Some((&**broker, *added, *altered, *removed, &**example))
            }
            _ => None,
        })
        .collect();
    assert_eq!(counts, [("ba", 1, 1, 0, "T2")]);
}
