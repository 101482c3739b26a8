//! `deleteTopicWithBrokerRegistration` (section 2.6, A6 to A8).

use waypost_rocketmq_registry::Outcome;

use crate::fixture::{World, broker, changed, master, queues};

fn world() -> World {
    World::with(|policy| policy.delete_unlisted_topics = true)
}

#[test]
fn an_omitted_topic_disappears() {
    // A8, deleteTopicWithBrokerRegistration.
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register(&master("ba", "A", &["T1"]).version(2));
    assert_eq!(changed(&effects), ["T2"]);
    assert_eq!(world.topics(), ["T1"]);
}

#[test]
fn the_version_does_not_matter() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("ba", "A", &["T1"]));
    assert_eq!(world.topics(), ["T1"]);
}

#[test]
fn a_topic_is_purged_broker_by_broker() {
    // A6, A7, deleteTopicWithBrokerRegistration2.
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]));
    world.register(&master("ba", "A", &["T2"]).version(2));
    assert_eq!(world.route("T1"), "bb@c1{0:B} 8/8 6");
    world.register(&master("bb", "B", &["T2"]).version(2));
    assert_eq!(world.route("T1"), "none");
    assert_eq!(world.topics(), ["T2"]);
}

#[test]
fn an_empty_body_purges_everything() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 0, "A").version(2));
    assert!(world.topics().is_empty());
}

#[test]
fn a_body_with_static_mappings_purges_nothing() {
    // 2.6, A8.
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("ba", "A", &["T1"]).mapping("T1", "ba", 1).version(2));
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn purging_takes_the_mappings_along() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T2", "ba", 1));
    world.register(&master("ba", "A", &["T1"]).version(2));
    world.register(&master("ba", "A", &["T1", "T2"]).version(3));
    let data = world.published("T2").expect("routed").data();
    assert_eq!(data.topic_queue_mapping_by_broker, None);
}

#[test]
fn the_body_of_a_slave_purges_nothing() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B").topics(&["T8", "T9"]));
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn an_entry_whose_key_is_not_its_name_keeps_both() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2", "T3"]));
    let mut odd = master("ba", "A", &["T1", "T2"]).version(2);
    odd.topics[0].key = "T3".into();
    assert!(world.register(&odd).changed.is_empty());
    assert_eq!(world.topics(), ["T1", "T2", "T3"]);
}

#[test]
fn a_broker_that_registers_in_parts_loses_no_topics() {
    // A8, decision 1.
    let mut world = world();
    let parts = [&["T1", "T2"][..], &["T3", "T4"], &["T5"]];
    world.register(&broker("ba", 0, "A"));
    for counter in 1..=3 {
        for part in parts {
            world.register(&master("ba", "A", part).version(counter));
        }
        if counter > 1 {
            assert_eq!(world.topics(), ["T1", "T2", "T3", "T4", "T5"], "version {counter}");
        }
    }
    // Nor later, when a part comes again under another version.
    world.register(&master("ba", "A", &["T5"]).version(9));
    assert_eq!(world.topics().len(), 5);
}

#[test]
fn bodies_that_grow_or_shrink_under_one_version_are_no_parts() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("ba", "A", &["T1", "T2", "T3"]));
    world.register(&master("ba", "A", &["T3"]));
    assert_eq!(world.topics(), ["T3"]);
}

#[test]
fn parts_are_noticed_before_the_policy_is_turned_on() {
    let mut world = World::new();
    for part in [&["T1", "T2"][..], &["T3", "T4"]] {
        world.register(&master("ba", "A", part));
    }
    world.set_policy(|policy| policy.delete_unlisted_topics = true);
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.topics(), ["T1", "T2", "T3", "T4"]);
}

#[test]
fn turning_the_policy_on_lets_known_bodies_purge() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().topic("T3", 6));
    world.register(&ba);
    assert_eq!(world.renew(&ba).outcome, crate::fixture::accepted());
    world.set_policy(|policy| policy.delete_unlisted_topics = true);
    assert_eq!(world.renew(&ba).outcome, Outcome::BodyNeeded);
    world.register(&ba);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn a_single_topic_of_another_broker_is_purged_by_that_broker_only() {
    let mut world = world();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]));
    world.register_topic("T3", &[queues("ba", 6), queues("bb", 6)]);
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.route("T3"), "bb@c1{0:B} 8/8 6");
}
