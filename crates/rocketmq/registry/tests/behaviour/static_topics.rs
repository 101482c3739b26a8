//! Static-queue mappings (section 2.7, D4).

use waypost_rocketmq_registry::Outcome;
use waypost_rocketmq_wire::body::Dialect;

use crate::fixture::{World, broker, changed, mapping, master};

/// The mappings in the route of a topic: broker name and epoch.
fn mappings(world: &World, topic: &str) -> Vec<(String, i64)> {
    let data = world.published(topic).expect("the topic has a route").data();
    let mappings = data.topic_queue_mapping_by_broker.into_iter().flatten();
    mappings.map(|(broker, mapping)| (broker, mapping.epoch)).collect()
}

#[test]
fn mappings_are_shown_by_the_broker_name_in_them() {
    // 2.4 step 10 d, 2.9 step 4.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T1", "bx", 1).mapping("T1", "ba", 2));
    assert_eq!(mappings(&world, "T1"), [("ba".to_owned(), 2), ("bx".to_owned(), 1)]);
    assert_eq!(mappings(&world, "T2"), []);
}

#[test]
fn a_mapping_without_a_name_is_that_of_its_broker() {
    let mut world = World::new();
    let mut ba = master("ba", "A", &["T1", "T2"]).mapping("T1", "ba", 1);
    ba.mappings[0].1.bname = None;
    world.register(&ba);
    assert_eq!(mappings(&world, "T1"), [("ba".to_owned(), 1)]);
}

#[test]
fn a_route_with_a_mapping_has_the_bytes_of_the_original() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T1", "ba", 5));
    let route = world.published("T1").expect("routed");
    let text = |dialect| String::from_utf8(route.body(dialect).to_vec()).expect("text");
    assert_eq!(
        text(Dialect::Standard),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"A"},"brokerName":"ba","cluster":"c1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"ba","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],"topicQueueMappingByBroker":{"ba":{"bname":"ba","currIdMap":{"0":0,"1":1},"dirty":false,"epoch":5,"scope":"__global__","topic":"T1","totalQueues":2}}}"#
    );
    assert!(text(Dialect::Legacy).contains(r#""currIdMap":{0:0,1:1}"#), "{}", text(Dialect::Legacy));
}

#[test]
fn the_last_mapping_wins_whatever_its_epoch() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().mapping("T1", "ba", 5));
    assert_eq!(changed(&world.register(&ba.clone().mapping("T1", "ba", 3))), ["T1"]);
    assert_eq!(mappings(&world, "T1"), [("ba".to_owned(), 3)]);
    assert!(world.register(&ba.mapping("T1", "ba", 3)).changed.is_empty());
}

#[test]
fn a_mapping_that_a_later_body_omits_stays() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T1", "ba", 5));
    world.register(&master("ba", "A", &["T1", "T2"]).version(2));
    assert_eq!(mappings(&world, "T1"), [("ba".to_owned(), 5)]);
}

#[test]
fn mappings_of_slaves_are_not_taken() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B").mapping("T1", "ba", 5));
    assert_eq!(mappings(&world, "T1"), []);
}

#[test]
fn a_mapping_alone_makes_no_route_and_no_topic() {
    let mut world = World::new();
    world.register(&broker("ba", 0, "A").mapping("T9", "ba", 1));
    assert_eq!(world.route("T9"), "none");
    assert!(world.topics().is_empty());
    world.register(&master("ba", "A", &["T9"]).version(2));
    assert_eq!(mappings(&world, "T9"), [("ba".to_owned(), 1)]);
}

#[test]
fn mappings_leave_with_their_broker_and_do_not_come_back() {
    // D4.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T1", "ba", 1).on(1));
    world.register(&master("bb", "B", &["T1", "T2"]).mapping("T1", "bb", 2).on(2));
    world.close(1);
    assert_eq!(mappings(&world, "T1"), [("bb".to_owned(), 2)]);
    world.register(&master("ba", "A", &["T1", "T2"]).on(3));
    assert_eq!(mappings(&world, "T1"), [("bb".to_owned(), 2)]);
}

#[test]
fn mappings_leave_with_their_topic_and_do_not_come_back() {
    // D4.
    let mut world = World::new();
    let plain = master("ba", "A", &["T1", "T2"]);
    world.register(&plain.clone().mapping("T1", "ba", 1));
    world.delete_topic("T1", None);
    world.register(&plain.version(2));
    assert_eq!(mappings(&world, "T1"), []);
    // Also where there are no queues.
    world.register(&broker("ba", 0, "A").mapping("T9", "ba", 1).version(3));
    world.delete_topic("T9", None);
    world.register(&master("ba", "A", &["T9"]).version(4));
    assert_eq!(mappings(&world, "T9"), []);
}

#[test]
fn deleting_for_one_cluster_leaves_the_mappings_of_the_other() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T1", "ba", 1));
    world.register(&master("bb", "B", &["T1", "T2"]).mapping("T1", "bb", 2).in_cluster("c2"));
    world.delete_topic("T1", Some("c1"));
    assert_eq!(mappings(&world, "T1"), [("bb".to_owned(), 2)]);
}

#[test]
fn a_mapping_that_another_group_takes_over_is_the_other_groups() {
    // The group that lost the mapping must not remember the topic: it is gone when the other group is.
    let mut world = World::new();
    let ba = broker("ba", 0, "A").mapping("T9", "bx", 1);
    world.register(&ba.clone().on(1));
    world.register(&broker("bb", 0, "B").mapping("T9", "bx", 2).on(2));
    assert_eq!(world.row("A").expect("registered").topics, 0);
    assert_eq!(world.row("B").expect("registered").topics, 1);
    assert_eq!(world.renew(&ba.clone().on(1)).outcome, Outcome::BodyNeeded, "its body would take it back");
    world.close(2);
    assert_eq!(world.table.counts().topics, 0);
    world.register(&broker("ba", 1, "C").on(3));
    assert_eq!(world.members(), ["c1/ba 0 A", "c1/ba 1 C"]);
    // A body that was known says something new now.
    world.register(&ba.topics(&["T9"]).on(1));
    assert_eq!(mappings(&world, "T9"), [("bx".to_owned(), 1)]);
}

#[test]
fn mappings_outlive_queues_of_other_groups() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let bb = broker("bb", 0, "B").mapping("T1", "bb", 2).on(2);
    world.register(&bb);
    world.close(1);
    assert_eq!(world.route("T1"), "none");
    // What bb said of T1 holds, so that its known body need not be parsed again.
    assert_eq!(world.renew(&bb).outcome, crate::fixture::accepted());
    world.register(&master("ba", "A", &["T1", "T2"]).on(3));
    assert_eq!(mappings(&world, "T1"), [("bb".to_owned(), 2)]);
}

#[test]
fn the_topic_of_a_mapping_is_its_key() {
    let mut world = World::new();
    let mut ba = master("ba", "A", &["T1", "T2"]);
    ba.mappings.push(("T2".to_owned(), mapping("T1", "ba", 4).1));
    world.register(&ba);
    assert_eq!(mappings(&world, "T1"), []);
    assert_eq!(mappings(&world, "T2"), [("ba".to_owned(), 4)]);
}
