//! Routes as readers get them (sections 2.9 and 3.5, decisions 7 and 8).

use std::sync::Arc;

use waypost_rocketmq_registry::Command;
use waypost_rocketmq_wire::body::Dialect;

use crate::fixture::{World, broker, changed, master, text};

fn body(world: &World, topic: &str, dialect: Dialect) -> String {
    let route = world.published(topic).expect("the topic has a route");
    String::from_utf8(route.body(dialect).to_vec()).expect("text")
}

fn set_order(world: &mut World, topic: &str, configuration: Option<&str>) -> Vec<String> {
    let effects = world.apply(Command::SetOrder { topic, configuration });
    changed(&effects).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_route_has_the_bytes_of_the_original_in_both_dialects() {
    // K1, K2, K17, S21.
    let mut world = World::new();
    world.register(&master("broker-a", "10.0.0.1:10911", &["TopicA", "TopicB"]).in_cluster("DefaultCluster"));
    world.register(&broker("broker-a", 1, "10.0.0.2:10911").in_cluster("DefaultCluster"));
    assert_eq!(
        body(&world, "TopicA", Dialect::Legacy),
        r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
    assert_eq!(
        body(&world, "TopicA", Dialect::Standard),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
}

#[test]
fn everything_optional_is_shown_when_it_is_there() {
    let mut world = World::with(|policy| policy.order_message = true);
    set_order(&mut world, "T1", Some("ba:8"));
    world.register(&master("ba", "A", &["T1", "T2"]).in_zone("z1").filter(Some(&["F"])).acting(Some(true)));
    assert_eq!(
        body(&world, "T1", Dialect::Standard),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"A"},"brokerName":"ba","cluster":"c1","enableActingMaster":true,"zoneName":"z1"}],"filterServerTable":{"A":["F"]},"orderTopicConf":"ba:8","queueDatas":[{"brokerName":"ba","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
}

#[test]
fn ids_are_sorted_as_numbers() {
    // S21.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    for (id, address) in [(10, "K"), (2, "C"), (1, "B")] {
        world.register(&broker("ba", id, address));
    }
    let body = body(&world, "T1", Dialect::Standard);
    assert!(body.contains(r#"{"0":"A","1":"B","2":"C","10":"K"}"#), "{body}");
}

#[test]
fn groups_are_sorted_by_name_whoever_came_first() {
    // Decision 7.
    let mut world = World::new();
    for (name, address) in [("bc", "C"), ("ba", "A"), ("bb", "B")] {
        world.register(&master(name, address, &["T1", "T2"]));
    }
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6; bb@c1{0:B} 8/8 6; bc@c1{0:C} 8/8 6");
}

#[test]
fn an_unknown_topic_has_no_route() {
    // testPickupTopicRouteData, K3.
    let world = World::new();
    assert!(world.published("T1").is_none());
    assert_eq!(world.index.len(), 0);
    assert!(world.index.is_empty());
}

#[test]
fn topics_that_look_the_same_share_one_route() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2", "T3"]).perm("T3", 4));
    let [first, second, third] = ["T1", "T2", "T3"].map(|topic| world.published(topic).expect("routed"));
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &third));
}

#[test]
fn a_body_is_encoded_once() {
    // Decision 8.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let route = world.published("T1").expect("routed");
    for dialect in [Dialect::Standard, Dialect::Legacy] {
        assert_eq!(route.body(dialect).as_ptr(), route.body(dialect).as_ptr());
    }
    let again = world.index.with_route("T2", |route| route.body(Dialect::Standard).as_ptr());
    assert_eq!(again, Some(route.body(Dialect::Standard).as_ptr()));
}

#[test]
fn a_reader_that_holds_a_route_keeps_it_as_it_was() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let held = world.published("T1").expect("routed");
    world.close(1);
    assert!(world.published("T1").is_none());
    assert_eq!(text(&held.data()), "ba@c1{0:A} 8/8 6");
}

#[test]
fn order_configuration_is_shown_if_the_policy_says_so() {
    // 2.9 step 6, 3.3.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let order = |world: &World| world.published("T1").expect("routed").data().order_topic_conf;
    assert!(set_order(&mut world, "T1", Some("ba:4")).is_empty());
    assert_eq!(order(&world), None);
    let effects = world.set_policy(|policy| policy.order_message = true);
    assert_eq!(changed(&effects), ["T1"]);
    assert_eq!(order(&world), Some("ba:4".to_owned()));
    assert_eq!(set_order(&mut world, "T1", Some("ba:8")), ["T1"]);
    assert!(set_order(&mut world, "T1", Some("ba:8")).is_empty());
    assert_eq!(order(&world), Some("ba:8".to_owned()));
    assert_eq!(set_order(&mut world, "T1", None), ["T1"]);
    assert_eq!(order(&world), None);
    assert!(set_order(&mut world, "T9", Some("ba:4")).is_empty(), "no such topic yet");
}

/// T1 on `ba` in zone z1, `bb` in z2 and `bc`, which has no master and no zone.
fn zones() -> World {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).in_zone("z1").filter(Some(&["FA"])));
    world.register(&master("bb", "B", &["T1", "T2"]).in_zone("z2").filter(Some(&["FB"])));
    world.register(&broker("bc", 1, "C").topics(&["T1", "T3"]));
    world
}

#[test]
fn a_zone_gets_its_own_groups_and_those_without_master() {
    // 3.5, S22.
    let route = zones().published("T1").expect("routed");
    let in_zone = route.body_in_zone("Z1", Dialect::Standard);
    assert_eq!(
        String::from_utf8(in_zone.to_vec()).expect("text"),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"A"},"brokerName":"ba","cluster":"c1","enableActingMaster":false,"zoneName":"z1"},{"brokerAddrs":{"1":"C"},"brokerName":"bc","cluster":"c1","enableActingMaster":false}],"filterServerTable":{"A":["FA"]},"queueDatas":[{"brokerName":"ba","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8},{"brokerName":"bc","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
}

#[test]
fn a_zone_is_answered_in_the_dialect_of_the_caller() {
    // D8, decision 8.
    let route = zones().published("T2").expect("routed");
    let in_zone = |dialect| String::from_utf8(route.body_in_zone("z2", dialect).to_vec()).expect("text");
    assert!(in_zone(Dialect::Standard).contains(r#"{"0":"B"}"#));
    assert!(in_zone(Dialect::Legacy).contains(r#"{0:"B"}"#));
}

#[test]
fn a_zone_without_groups_gets_empty_lists() {
    let route = zones().published("T2").expect("routed");
    assert_eq!(
        &route.body_in_zone("z9", Dialect::Standard)[..],
        br#"{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}"#
    );
}

#[test]
fn a_zone_does_not_change_what_others_get() {
    let world = zones();
    let before = body(&world, "T1", Dialect::Standard);
    world.published("T1").expect("routed").body_in_zone("z1", Dialect::Standard);
    assert_eq!(body(&world, "T1", Dialect::Standard), before);
}
