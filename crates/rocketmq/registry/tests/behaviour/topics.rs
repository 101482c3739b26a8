//! 217 and 216 (section 2.14).

use waypost_rocketmq_registry::{Outcome, Policy, RemovalCause, TableLimits};

use crate::fixture::{World, broker, changed, master, queues, removed};

#[test]
fn a_topic_of_an_unknown_broker_is_ignored() {
    // S17, registerSingleTopicWithBrokerRegistration.
    let mut world = World::new();
    assert_eq!(world.register_topic("T3", &[queues("ba", 6)]).outcome, Outcome::Ignored);
    assert_eq!(world.route("T3"), "none");
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register_topic("T3", &[queues("ba", 6)]);
    assert_eq!(effects.outcome, Outcome::Done);
    assert_eq!(changed(&effects), ["T3"]);
    assert_eq!(world.route("T3"), "ba@c1{0:A} 8/8 6");
}

#[test]
fn a_topic_with_one_unknown_broker_is_ignored_as_a_whole() {
    // D15.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    for topic in ["T1", "T3"] {
        let effects = world.register_topic(topic, &[queues("ba", 4), queues("bx", 4)]);
        assert_eq!(effects.outcome, Outcome::Ignored);
        assert!(effects.changed.is_empty());
    }
    assert_eq!(world.perm("T1"), 6);
    assert_eq!(world.route("T3"), "none");
}

#[test]
fn a_topic_without_queues_is_ignored() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.register_topic("T3", &[]).outcome, Outcome::Ignored);
    assert_eq!(world.register_topic("", &[queues("ba", 6)]).outcome, Outcome::Ignored);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn the_limit_of_topics_holds_for_single_ones() {
    let limits = TableLimits { topics: 2, ..TableLimits::default() };
    let mut world = World::limited(Policy::default(), limits);
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.register_topic("T3", &[queues("ba", 6)]).outcome, Outcome::Ignored);
    assert_eq!(world.register_topic("T2", &[queues("ba", 4)]).outcome, Outcome::Done);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn a_single_topic_changes_what_was_announced() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.wipe("ba");
    assert_eq!(changed(&world.register_topic("T1", &[queues("ba", 7)])), ["T1"]);
    assert_eq!(world.perm("T1"), 7);
    // The same once more is no change.
    assert!(world.register_topic("T1", &[queues("ba", 7)]).changed.is_empty());
}

#[test]
fn a_single_topic_can_name_several_brokers() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]));
    world.register_topic("T3", &[queues("bb", 4), queues("ba", 6)]);
    assert_eq!(world.route("T3"), "ba@c1{0:A} 8/8 6; bb@c1{0:B} 8/8 4");
}

#[test]
fn a_whole_registration_cancels_a_single_topic_only_with_the_purge() {
    for purge in [false, true] {
        let mut world = World::with(|policy| policy.delete_unlisted_topics = purge);
        let ba = master("ba", "A", &["T1", "T2"]);
        world.register(&ba);
        world.register_topic("T3", &[queues("ba", 6)]);
        world.register(&ba);
        assert_eq!(world.topics().contains(&"T3".to_owned()), !purge);
        world.unregister(&ba);
        assert!(world.topics().is_empty());
    }
}

#[test]
fn a_topic_is_deleted_for_all_clusters() {
    // S16, deleteTopic, testDeleteTopic.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]).in_cluster("c2"));
    let effects = world.delete_topic("T1", None);
    assert_eq!(effects.outcome, Outcome::Done);
    assert_eq!(changed(&effects), ["T1"]);
    assert_eq!(world.route("T1"), "none");
    // A43: only that topic.
    assert_eq!(world.route("T2"), "ba@c1{0:A} 8/8 6; bb@c2{0:B} 8/8 6");
}

#[test]
fn a_topic_is_deleted_for_one_cluster() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]).in_cluster("c2"));
    world.delete_topic("T1", Some("c1"));
    assert_eq!(world.route("T1"), "bb@c2{0:B} 8/8 6");
    world.delete_topic("T1", Some("c2"));
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn deleting_for_an_unknown_cluster_or_an_unknown_topic_does_nothing() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert!(world.delete_topic("T1", Some("c9")).changed.is_empty());
    assert_eq!(world.delete_topic("T9", None).outcome, Outcome::Ignored);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn a_deleted_topic_comes_back_with_the_next_body_that_lists_it() {
    // D20, decision 3.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.delete_topic("T1", None);
    assert_eq!(world.renew(&ba).outcome, Outcome::BodyNeeded);
    assert_eq!(changed(&world.register(&ba)), ["T1"]);
    assert_eq!(world.topics(), ["T1", "T2"]);
}

#[test]
fn many_toggles_that_end_in_create_leave_the_topic() {
    // A41.
    let mut world = World::new();
    world.register(&broker("ba", 0, "A"));
    for _ in 0..1_000 {
        world.delete_topic("T1", Some("c1"));
        world.register_topic("T1", &[queues("ba", 6)]);
    }
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    assert_eq!(world.table.counts().topics, 1);
    assert_eq!(removed(&world.close(1)), [("A".to_owned(), RemovalCause::ConnectionClosed)]);
    assert_eq!(world.table.counts().topics, 0);
}
