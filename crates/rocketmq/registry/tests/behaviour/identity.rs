//! One address has one cluster, one name, one id (decision 4, 2.4 step 5, invariant 2).

use waypost_rocketmq_registry::{ConflictKind, Outcome, RemovalCause};

use crate::fixture::{World, broker, changed, conflicts, master, removed};

#[test]
fn an_address_that_says_another_id_has_only_that() {
    // S8, K13.
    let mut world = World::new();
    world.register(&broker("ba", 1, "A").topics(&["T1", "T2"]));
    let effects = world.register(&broker("ba", 2, "A").topics(&["T1", "T2"]));
    assert_eq!(removed(&effects), [], "it is the same broker");
    assert_eq!(world.members(), ["c1/ba 2 A"]);
    assert_eq!(world.route("T1"), "ba@c1{2:A} 8/8 6");
}

#[test]
fn an_address_that_says_another_name_leaves_nothing_under_the_old_one() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).mapping("T2", "ba", 1));
    let effects = world.register(&master("bb", "A", &["T2", "T3"]));
    assert_eq!(removed(&effects), [("A".to_owned(), RemovalCause::Moved)]);
    assert_eq!(conflicts(&effects), [(ConflictKind::AddressMoved, "ba".to_owned(), true)]);
    assert_eq!(changed(&effects), ["T1", "T2", "T3"]);
    assert_eq!(world.members(), ["c1/bb 0 A"]);
    assert_eq!(world.topics(), ["T2", "T3"]);
    assert_eq!(world.route("T2"), "bb@c1{0:A} 8/8 6");
    let data = world.published("T2").expect("routed").data();
    assert_eq!(data.topic_queue_mapping_by_broker, None);
    assert_eq!(world.table.system_topics().topic_list, ["bb", "c1"]);
}

#[test]
fn a_second_name_at_one_address_replaces_the_first() {
    // The original's pickupTopicRouteData shows both; decision 4 does not.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&master("bb", "A", &["T1", "T2"]));
    assert_eq!(world.route("T1"), "bb@c1{0:A} 8/8 6");
}

#[test]
fn an_address_that_leaves_a_group_with_others_leaves_them() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B"));
    world.register(&master("bb", "A", &["T3", "T4"]));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 6");
    assert_eq!(world.route("T3"), "bb@c1{0:A} 8/8 6");
}

#[test]
fn an_address_that_says_another_cluster_leaves_no_trace_of_the_old_one() {
    // Section 11: the original keeps the name in the old cluster for good.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.register(&master("ba", "A", &["T1", "T2"]).in_cluster("c2"));
    assert_eq!(conflicts(&effects), [(ConflictKind::AddressMoved, "c1".to_owned(), true)]);
    assert_eq!(world.members(), ["c2/ba 0 A"]);
    assert_eq!(world.route("T1"), "ba@c2{0:A} 8/8 6");
    assert_eq!(world.table.topics_of_cluster("c1"), None);
    assert!(world.asks(&master("ba", "A", &[])), "322 does not know it in c1");
    let clusters = world.table.cluster_info().cluster_addr_table;
    assert_eq!(clusters, [("c2".to_owned(), ["ba".to_owned()].into())].into());
}

#[test]
fn an_address_that_changes_cluster_is_registered_anew() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.wipe("ba");
    world.register(&master("ba", "A", &["T1", "T2"]).in_cluster("c2"));
    assert_eq!(world.perm("T1"), 6);
}

#[test]
fn the_address_that_lost_its_id_is_forgotten() {
    // Section 11, D1.
    let mut world = World::new();
    let old = master("ba", "A", &["T1", "T2"]).on(1);
    world.register(&old);
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert!(world.asks(&old));
    assert_eq!(world.heartbeat(&old).outcome, Outcome::Ignored);
    assert_eq!(removed(&world.close(1)), []);
    assert_eq!(world.members(), ["c1/ba 0 B"]);
}

#[test]
fn two_addresses_that_swap_their_ids_end_as_they_say() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&broker("ba", 1, "B").on(2));
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    world.register(&broker("ba", 1, "A").on(1));
    assert_eq!(world.members(), ["c1/ba 1 A", "c1/ba 0 B"]);
    assert_eq!(world.route("T1"), "ba@c1{0:B,1:A} 8/8 6");
}
