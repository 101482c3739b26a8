//! The digest shortcut (decision 3): a known body need not be parsed, and nothing shows it.

use std::time::Duration;

use waypost_rocketmq_registry::{Announcement, ConnectionEnd, Outcome, RemovalCause};

use crate::fixture::{Broker, World, accepted, accepted_with_master, broker, master, queues, removed};

/// Whether the table takes the digest of a broker's body for the body.
fn knows(world: &mut World, broker: &Broker) -> bool {
    match world.renew(broker).outcome {
        Outcome::BodyNeeded => false,
        Outcome::Registered { .. } => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_body_that_was_not_sent_before_is_needed() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    let effects = world.renew(&ba);
    assert_eq!(effects.outcome, Outcome::BodyNeeded);
    assert!(effects.events.is_empty() && effects.changed.is_empty());
    assert!(world.members().is_empty());
    world.register(&ba);
    assert!(!knows(&mut world, &ba.clone().topic("T3", 6)));
    assert!(knows(&mut world, &ba));
}

#[test]
fn a_known_body_renews_the_lease_and_the_binding() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(1));
    world.wait(30_000);
    let effects = world.renew(&ba.on(2));
    assert_eq!(effects.outcome, accepted());
    assert!(effects.events.is_empty() && effects.changed.is_empty());
    let row = world.row("A").expect("registered");
    assert_eq!((row.registered_at, row.last_sign), (Duration::ZERO, Duration::from_secs(30)));
    assert_eq!(row.generation, 2);
    assert_eq!(removed(&world.close(1)), []);
    assert_eq!(removed(&world.close(2)), [("A".to_owned(), RemovalCause::ConnectionClosed)]);
}

#[test]
fn a_known_body_is_answered_like_the_body() {
    let mut world = World::new();
    let slave = broker("ba", 1, "B").topics(&["T1", "T2"]);
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&slave);
    assert_eq!(world.renew(&slave).outcome, accepted_with_master("A"));
}

#[test]
fn another_header_needs_the_body() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]).in_zone("z1").timeout(9_000);
    world.register(&ba);
    let changes: [fn(&mut Broker); 9] = [
        |broker| broker.cluster = "c2".to_owned(),
        |broker| broker.name = "bb".to_owned(),
        |broker| broker.address = "B".to_owned(),
        |broker| broker.id = 1,
        |broker| broker.ha_address = None,
        |broker| broker.zone = None,
        |broker| broker.timeout = None,
        |broker| broker.acting_master = Some(true),
        |broker| broker.acting_master = None,
    ];
    for change in changes {
        let mut other = ba.clone();
        change(&mut other);
        assert!(!knows(&mut world, &other));
    }
    assert!(knows(&mut world, &ba));
}

#[test]
fn a_body_that_came_without_digest_is_not_known() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    let body = ba.body();
    world.apply(ba.register(Announcement::Full(&body, None)));
    assert!(!knows(&mut world, &ba));
}

#[test]
fn a_removed_broker_has_no_known_bodies() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.close(1);
    assert!(!knows(&mut world, &ba));
}

#[test]
fn several_bodies_under_one_version_are_known() {
    // A broker that registers in parts.
    let mut world = World::new();
    let parts = [&["T1", "T2"][..], &["T3", "T4"]].map(|part| master("ba", "A", part));
    for _ in 0..2 {
        for part in &parts {
            world.register(part);
        }
    }
    for part in &parts {
        assert!(knows(&mut world, part));
    }
}

#[test]
fn another_version_forgets_the_bodies_before_it() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.register(&ba.clone().version(2));
    assert!(!knows(&mut world, &ba));
    assert!(knows(&mut world, &ba.version(2)));
}

#[test]
fn a_body_that_says_otherwise_forgets_those_before_it() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    for other in [
        ba.clone().perm("T1", 4),
        ba.clone().filter(Some(&["F1"])),
        ba.clone().mapping("T1", "ba", 1),
        ba.clone().mapping("T1", "ba", 2),
    ] {
        world.register(&ba);
        world.register(&other);
        assert!(!knows(&mut world, &ba), "{:?}", other.body());
        assert!(knows(&mut world, &other), "{:?}", other.body());
    }
}

#[test]
fn what_operators_do_to_topics_needs_the_body_again() {
    let operate: [fn(&mut World); 3] = [
        |world| drop(world.delete_topic("T1", None)),
        |world| drop(world.register_topic("T1", &[queues("ba", 4)])),
        |world| drop(world.register_topic("T9", &[queues("ba", 6)])),
    ];
    for operate in operate {
        let mut world = World::new();
        let ba = master("ba", "A", &["T1", "T2"]);
        world.register(&ba);
        operate(&mut world);
        assert!(!knows(&mut world, &ba));
        world.register(&ba);
        assert!(knows(&mut world, &ba));
    }
}

#[test]
fn what_operators_do_to_other_brokers_or_topics_does_not() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.register(&master("bb", "B", &["T1", "T3"]));
    world.delete_topic("T3", None);
    world.register_topic("T1", &[queues("bb", 4)]);
    assert!(knows(&mut world, &ba));
}

#[test]
fn a_wipe_leaves_the_body_known_and_the_body_leaves_the_wipe() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.wipe("ba");
    assert!(knows(&mut world, &ba));
    assert_eq!(world.perm("T1"), 4);
}

#[test]
fn a_purge_needs_the_body_again() {
    let mut world = World::with(|policy| policy.delete_unlisted_topics = true);
    let ba = master("ba", "A", &["T1", "T2", "T3"]);
    world.register(&ba);
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert!(!knows(&mut world, &ba));
}

#[test]
fn a_change_of_members_needs_the_body_again() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]).on(1);
    world.register(&ba);
    world.register(&broker("ba", 1, "B").on(2));
    assert!(!knows(&mut world, &ba));
    world.register(&ba);
    assert!(knows(&mut world, &ba));
    world.close(2);
    assert!(!knows(&mut world, &ba));
}

#[test]
fn the_masters_topics_leave_the_slaves_bodies_known() {
    let mut world = World::new();
    let slave = broker("ba", 1, "B").topics(&["T1", "T2"]);
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&slave);
    world.register(&master("ba", "A", &["T1", "T2"]).perm("T1", 4).version(2));
    assert!(knows(&mut world, &slave));
}

#[test]
fn two_members_that_announce_the_same_topic_do_not_hide_each_other() {
    // An id below 0 announces beside the master.
    let mut world = World::new();
    let (zero, below) = (master("ba", "A", &["T1", "T2"]), broker("ba", -1, "B").topics(&["T1", "T2"]));
    world.register(&zero);
    world.register(&below);
    world.register(&zero);
    world.register(&below.clone().perm("T1", 4));
    assert_eq!(world.perm("T1"), 4);
    assert!(!knows(&mut world, &zero));
    world.register(&zero);
    assert_eq!(world.perm("T1"), 6);
}

#[test]
fn a_known_body_clears_a_suspicion_on_another_connection_only() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.lose(1, ConnectionEnd::TimedOut);
    world.renew(&ba);
    assert_eq!(world.table.counts().suspects, 1);
    world.renew(&ba.on(2));
    assert_eq!(world.table.counts().suspects, 0);
}
