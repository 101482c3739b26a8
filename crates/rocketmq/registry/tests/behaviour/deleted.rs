//! What is remembered of topics that were deleted while brokers have them.

use waypost_rocketmq_registry::DeletedRow;

use crate::fixture::{World, broker, master, queues};

/// `topic: broker broker`, by topic.
fn deleted(world: &World) -> Vec<String> {
    let row = |row: &DeletedRow| format!("{}: {}", row.topic, row.brokers.join(" "));
    world.table.deleted_topics(|_| true, usize::MAX).iter().map(row).collect()
}

#[test]
fn the_groups_that_had_a_deleted_topic_are_remembered_with_the_time() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "B", &["T1", "T2"]).in_cluster("c2"));
    world.register(&master("bc", "C", &["T2", "T3"]));
    world.wait(5_000);
    world.delete_topic("T1", Some("c2"));
    assert_eq!(deleted(&world), ["T1: bb"]);
    world.wait(5_000);
    world.delete_topic("T1", None);
    world.delete_topic("T9", None);
    assert_eq!(deleted(&world), ["T1: ba bb"]);
    let rows = world.table.deleted_topics(|topic| topic == "T1", 1);
    assert_eq!(rows[0].deleted_at, world.now);
    assert!(world.table.deleted_topics(|topic| topic == "T2", 1).is_empty());
    // Deleting it again, when nobody has it here, changes nothing.
    world.delete_topic("T1", None);
    assert_eq!(deleted(&world), ["T1: ba bb"]);
}

#[test]
fn a_group_that_lists_the_topic_again_is_forgotten_and_the_others_are_not() {
    let mut world = World::new();
    let (ba, bb) = (master("ba", "A", &["T1", "T2"]), master("bb", "B", &["T1", "T2"]));
    world.register(&ba);
    world.register(&bb);
    world.delete_topic("T1", None);
    world.register(&ba);
    assert_eq!(deleted(&world), ["T1: bb"]);
    world.register_topic("T1", &[queues("bb", 6)]);
    assert!(deleted(&world).is_empty(), "{:?}", deleted(&world));
}

#[test]
fn a_group_that_registers_without_the_topic_or_leaves_is_forgotten() {
    let mut world = World::new();
    let names = ["T1", "T2", "T3"];
    let (ba, bb) = (master("ba", "A", &names), master("bb", "B", &names).on(2));
    world.register(&ba);
    world.register(&bb);
    world.delete_topic("T1", None);
    world.register(&master("ba", "A", &["T2", "T3"]));
    assert_eq!(deleted(&world), ["T1: bb"]);
    world.close(2);
    assert!(deleted(&world).is_empty(), "{:?}", deleted(&world));
}

#[test]
fn a_body_with_a_part_of_the_topics_says_nothing_of_the_others() {
    let names = ["T1", "T2", "T3", "T4", "T5", "T6"];
    let mut world = World::new();
    world.register(&master("ba", "A", &names));
    world.delete_topic("T1", None);
    world.delete_topic("T2", None);
    // One topic that changed, and no more, as brokers send it.
    world.register(&master("ba", "A", &["T6"]).version(2));
    assert_eq!(deleted(&world), ["T1: ba", "T2: ba"]);
    world.register(&master("ba", "A", &["T1"]).version(3));
    assert_eq!(deleted(&world), ["T2: ba"]);
    // A slave does not say what the group has.
    world.register(&broker("ba", 1, "S").topics(&["T3", "T4", "T5"]));
    assert_eq!(deleted(&world), ["T2: ba"]);
}
