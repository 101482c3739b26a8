//! Who may create routes, and what a change of role does (section 2.2, K10, K13).

use waypost_rocketmq_registry::RemovalCause;

use crate::fixture::{World, accepted_with_master, broker, changed, master, removed};

#[test]
fn a_lone_slave_of_5x_creates_topics_with_its_own_permissions() {
    // A20.
    let mut world = World::new();
    world.register(&broker("ba", 1, "B").topics(&["T1", "T2"]));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 6");
}

#[test]
fn a_lone_slave_in_acting_master_mode_creates_topics_without_write() {
    // A20.
    let mut world = World::new();
    world.register(&broker("ba", 1, "B").acting(Some(true)).topic("T1", 6).topic("T2", 7));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 4");
    assert_eq!(world.perm("T2"), 5);
}

#[test]
fn a_slave_of_4x_never_creates_topics() {
    let mut world = World::new();
    world.register(&broker("ba", 1, "B").acting(None).topics(&["T1", "T2"]));
    assert!(world.topics().is_empty());
    assert_eq!(world.members(), ["c1/ba 1 B"]);
}

#[test]
fn a_slave_beside_its_master_creates_no_topics() {
    // S4.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let slave = broker("ba", 1, "B").topics(&["T2", "T3"]).perm("T2", 4);
    assert_eq!(world.register(&slave).outcome, accepted_with_master("A"));
    assert_eq!(world.topics(), ["T1", "T2"]);
    assert_eq!(world.perm("T2"), 6);
}

#[test]
fn of_several_slaves_only_the_smallest_id_creates_topics() {
    let mut world = World::new();
    world.register(&broker("ba", 2, "C").topics(&["T1", "T2"]));
    world.register(&broker("ba", 3, "D").topics(&["T3", "T4"]));
    assert_eq!(world.topics(), ["T1", "T2"]);
    world.register(&broker("ba", 1, "B").topics(&["T5", "T6"]));
    assert_eq!(world.topics(), ["T1", "T2", "T5", "T6"]);
    // The former smallest one does not any more.
    world.register(&broker("ba", 2, "C").topics(&["T7", "T8"]).version(2));
    assert_eq!(world.topics(), ["T1", "T2", "T5", "T6"]);
}

#[test]
fn an_id_below_the_masters_creates_topics_too() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", -1, "B").topics(&["T3", "T4"]));
    assert_eq!(world.topics(), ["T1", "T2", "T3", "T4"]);
}

#[test]
fn a_master_that_comes_gives_write_back_and_one_that_goes_takes_it() {
    // registerOnlySlaveBroker, A20.
    let mut world = World::new();
    let slave = broker("ba", 1, "B").acting(Some(true)).topics(&["T1", "T2"]);
    let first = master("ba", "A", &["T1", "T2"]).acting(Some(true)).on(2);
    world.register(&slave);
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 4");
    world.register(&first);
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
    world.close(2);
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 4");
    world.register(&first.on(3));
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
}

#[test]
fn a_slave_becomes_master_and_the_old_master_its_slave() {
    // switchBrokerRole.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&broker("ba", 1, "B").topics(&["T1", "T2"]).on(2));
    world.unregister(&master("ba", "A", &[]).on(1));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 6");
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 6");
    let effects = world.register(&broker("ba", 1, "A").topics(&["T1", "T2"]).on(3));
    assert_eq!(effects.outcome, accepted_with_master("B"));
    assert_eq!(world.route("T1"), "ba@c1{0:B,1:A} 8/8 6");
}

#[test]
fn roles_switch_when_the_masters_connection_is_lost() {
    // switchBrokerRole_ChannelDestroy.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&broker("ba", 1, "B").topics(&["T1", "T2"]).on(2));
    world.close(1);
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    world.register(&broker("ba", 1, "A").topics(&["T1", "T2"]).on(3));
    assert_eq!(world.route("T1"), "ba@c1{0:B,1:A} 8/8 6");
    world.close(3);
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 6");
    world.close(2);
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn an_address_that_was_a_slave_is_the_master_when_it_says_so() {
    // testMasterChangeFromSlave, K13.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&broker("ba", 1, "B").topics(&["T1", "T2"]).on(2));
    let effects = world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert_eq!(removed(&effects), [("A".to_owned(), RemovalCause::Replaced)]);
    assert_eq!(world.members(), ["c1/ba 0 B"]);
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 6");
}

#[test]
fn an_old_master_that_returns_as_slave_does_not_touch_the_topics() {
    // 2.4, worked consequences.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    let effects = world.register(&broker("ba", 1, "A").topics(&["T1", "T2"]).perm("T1", 4).on(3));
    assert_eq!(changed(&effects), ["T1", "T2"], "for the new member");
    assert_eq!(world.route("T1"), "ba@c1{0:B,1:A} 8/8 6");
}

#[test]
fn the_last_registrant_decides_zone_and_acting_master_of_the_group() {
    // Step 3, D25.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).in_zone("z1").acting(Some(true)));
    let group = |world: &World| {
        let group = world.table.cluster_info().broker_addr_table["ba"].clone();
        (group.zone_name, group.enable_acting_master)
    };
    assert_eq!(group(&world), (Some("z1".to_owned()), true));
    let effects = world.register(&broker("ba", 1, "B"));
    assert_eq!(changed(&effects), ["T1", "T2"]);
    assert_eq!(group(&world), (None, false));
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
    world.register(&broker("ba", 1, "B").in_zone("z2"));
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6 zone=z2");
    // An empty zone is one that is shown, as the original does.
    world.register(&broker("ba", 1, "B").in_zone(""));
    assert_eq!(group(&world), (Some(String::new()), false));
}
