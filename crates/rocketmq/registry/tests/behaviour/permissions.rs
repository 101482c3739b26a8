//! 205 and 327: section 2.13, decision 2, A22 to A25.

use waypost_rocketmq_registry::Outcome;

use crate::fixture::{World, broker, changed, master, queues};

/// A broker whose topics have the permissions 6, 4 and 7.
fn mixed() -> crate::fixture::Broker {
    broker("ba", 0, "A").topic("T1", 6).topic("T2", 4).topic("T3", 7)
}

fn perms(world: &World) -> [i32; 3] {
    ["T1", "T2", "T3"].map(|topic| world.perm(topic))
}

#[test]
fn wiping_takes_write_from_every_topic_and_counts_all() {
    // S15, A23, wipeWritePermOfBrokerByLock, RouteInfoManagerBrokerPermTest.
    let mut world = World::new();
    world.register(&mixed());
    world.register(&master("bb", "B", &["T4", "T5"]));
    assert_eq!(world.wipe("ba"), Outcome::Topics(3));
    assert_eq!(perms(&world), [4, 4, 5]);
    assert_eq!(world.perm("T4"), 6, "another broker's topics keep theirs");
    assert_eq!(world.wipe("ba"), Outcome::Topics(3), "visited again, changed or not");
}

#[test]
fn adding_sets_6_on_every_topic() {
    // S15, D14, testAddWritePermOfBrokerByLock.
    let mut world = World::new();
    world.register(&mixed());
    assert_eq!(world.add("ba"), Outcome::Topics(3));
    assert_eq!(perms(&world), [6, 6, 6]);
    world.wipe("ba");
    world.add("ba");
    assert_eq!(perms(&world), [6, 6, 6]);
}

#[test]
fn an_unknown_broker_has_no_topics() {
    let mut world = World::new();
    assert_eq!(world.wipe("ba"), Outcome::Topics(0));
    assert_eq!(world.add("ba"), Outcome::Topics(0));
}

#[test]
fn only_topics_whose_permission_changed_are_published() {
    let mut world = World::new();
    world.register(&mixed());
    let effects = world.apply(waypost_rocketmq_registry::Command::WipeWritePermission { broker: "ba" });
    assert_eq!(changed(&effects), ["T1", "T3"]);
}

#[test]
fn a_wipe_survives_registrations_under_the_same_version() {
    // 2.4, worked consequences; decision 2.
    let mut world = World::new();
    world.register(&mixed());
    world.wipe("ba");
    world.register(&mixed());
    assert_eq!(perms(&world), [4, 4, 5]);
    // Also where the body says something new of the topic.
    let mut fewer = mixed();
    fewer.topics[0].read_queue_nums = 4;
    world.register(&fewer);
    assert_eq!(world.route("T1"), "ba@c1{0:A} 4/8 4");
}

#[test]
fn a_wipe_goes_with_another_version() {
    // A22, as the original.
    let mut world = World::new();
    world.register(&mixed());
    world.wipe("ba");
    assert_eq!(changed(&world.register(&mixed().version(2))), ["T1", "T3"]);
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn a_wipe_stays_on_topics_that_the_new_version_does_not_list() {
    let mut world = World::new();
    world.register(&mixed());
    world.wipe("ba");
    world.register(&broker("ba", 0, "A").topic("T1", 6).version(2));
    assert_eq!(perms(&world), [6, 4, 5]);
}

#[test]
fn a_wipe_goes_when_the_broker_is_registered_anew() {
    let mut world = World::new();
    let ba = mixed();
    world.register(&ba);
    world.register(&broker("ba", 1, "B").on(2));
    world.wipe("ba");
    world.close(1);
    assert_eq!(perms(&world), [4, 4, 5], "the slave keeps the group");
    world.register(&ba.on(3));
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn a_wipe_goes_when_the_broker_takes_another_id() {
    // Under the same version: the id was free, so it is registered anew.
    let mut world = World::new();
    world.register(&mixed().with_id(1));
    world.wipe("ba");
    world.register(&mixed());
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn a_wipe_goes_when_another_address_takes_the_id() {
    let mut world = World::new();
    world.register(&mixed());
    world.wipe("ba");
    let mut successor = mixed();
    successor.address = "B".to_owned();
    world.register(&successor);
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn a_sticky_wipe_survives_everything_until_write_is_added() {
    // A22.
    let mut world = World::with(|policy| policy.wipe_survives_registration = true);
    world.register(&mixed());
    world.wipe("ba");
    world.register(&mixed().version(2));
    assert_eq!(perms(&world), [4, 4, 5]);
    // Topics that come later, and the broker's absence.
    world.register(&mixed().topic("T4", 6).version(3));
    world.register_topic("T5", &[queues("ba", 6)]);
    assert_eq!((world.perm("T4"), world.perm("T5")), (4, 4));
    world.close(1);
    world.register(&mixed().on(2));
    assert_eq!(perms(&world), [4, 4, 5]);
    assert_eq!(world.add("ba"), Outcome::Topics(3));
    assert_eq!(perms(&world), [6, 6, 6]);
    world.register(&mixed().version(4).on(2));
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn a_sticky_wipe_holds_while_the_policy_does() {
    let mut world = World::with(|policy| policy.wipe_survives_registration = true);
    world.register(&mixed());
    world.wipe("ba");
    world.register(&mixed().version(2));
    let effects = world.set_policy(|policy| policy.wipe_survives_registration = false);
    assert_eq!(changed(&effects), ["T1", "T3"]);
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn adding_can_restore_what_was_announced() {
    // A25.
    let mut world = World::with(|policy| policy.add_restores_announced = true);
    world.register(&mixed());
    world.wipe("ba");
    assert_eq!(world.add("ba"), Outcome::Topics(3));
    assert_eq!(perms(&world), [6, 4, 7]);
}

#[test]
fn the_admin_side_sees_both_permissions() {
    let mut world = World::new();
    world.register(&mixed());
    world.wipe("ba");
    let rows = world.table.topics(|name| name != "T2", 10);
    let perms: Vec<_> =
        rows.iter().map(|row| (&*row.topic, row.queues[0].announced_perm, row.queues[0].perm)).collect();
    assert_eq!(perms, [("T1", 6, 4), ("T3", 7, 5)]);
    assert_eq!(world.table.topics(|_| true, 2).len(), 2);
}
