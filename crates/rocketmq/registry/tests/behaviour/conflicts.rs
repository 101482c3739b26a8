//! Registrations that contradict each other (2.4 step 6, decision 4, A5, A11, A12).

use waypost_rocketmq_registry::{ConflictKind, ConnectionEnd, Outcome, RegistrationRefusal, RemovalCause};

use crate::fixture::{World, accepted, accepted_with_master, broker, changed, conflicts, master, removed};

#[test]
fn a_smaller_state_version_loses_and_changes_nothing() {
    // S7, D5.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).state(5).on(1));
    let loser = master("ba", "B", &["T1", "T3"]).state(4).in_zone("z").acting(Some(true)).on(2);
    let effects = world.register(&loser);
    assert_eq!(effects.outcome, Outcome::Superseded);
    assert!(effects.changed.is_empty());
    assert_eq!(conflicts(&effects), [(ConflictKind::OlderStateVersion, "A".to_owned(), true)]);
    assert_eq!(world.members(), ["c1/ba 0 A"]);
    assert_eq!(world.topics(), ["T1", "T2"]);
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    // Counted again, logged once.
    let again = world.register(&loser);
    assert_eq!(conflicts(&again), [(ConflictKind::OlderStateVersion, "A".to_owned(), false)]);
}

#[test]
fn an_equal_or_larger_state_version_wins() {
    // S7.
    for state in [5, 6] {
        let mut world = World::new();
        world.register(&master("ba", "A", &["T1", "T2"]).state(5).on(1));
        let effects = world.register(&master("ba", "B", &["T1", "T2"]).state(state).on(2));
        assert_eq!(effects.outcome, accepted());
        assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 6");
    }
}

#[test]
fn the_holder_itself_may_go_back_to_a_smaller_state_version() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).state(5));
    assert_eq!(world.register(&master("ba", "A", &["T1", "T2"]).state(1)).outcome, accepted());
}

#[test]
fn a_loser_that_has_another_id_keeps_it() {
    // D5: the original removes its live entry.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).state(5));
    world.register(&broker("ba", 1, "B"));
    assert_eq!(world.register(&master("ba", "B", &["T1", "T2"]).state(4)).outcome, Outcome::Superseded);
    assert_eq!(world.members(), ["c1/ba 0 A", "c1/ba 1 B"]);
}

#[test]
fn state_versions_are_compared_within_a_cluster() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).state(5));
    let effects = world.register(&master("ba", "B", &["T1", "T2"]).state(4).in_cluster("c2"));
    assert_eq!(effects.outcome, accepted());
    assert_eq!(world.members(), ["c2/ba 0 B"]);
}

#[test]
fn a_master_at_another_address_is_taken_and_counted() {
    // A5.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let effects = world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert_eq!(conflicts(&effects), [(ConflictKind::AddressChanged, "A".to_owned(), true)]);
    assert_eq!(removed(&effects), [("A".to_owned(), RemovalCause::Replaced)]);
    assert_eq!(world.table.cluster_info().broker_addr_table["ba"].broker_addrs, [(0, "B".to_owned())].into());
}

#[test]
fn a_master_at_another_address_can_be_refused() {
    // A5.
    let mut world = World::with(|policy| policy.refuse_master_address_change = true);
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let effects = world.register(&master("ba", "B", &["T1", "T3"]).on(2));
    let Outcome::Refused(refusal) = &effects.outcome else { panic!("{effects:?}") };
    assert_eq!(
        refusal.to_string(),
        "broker ba id 0 is live at A, so B may not take it (refuseMasterAddressChange=true); \
         stop the broker at A first"
    );
    assert_eq!(refusal.kind(), "master_address_change");
    assert_eq!(conflicts(&effects), [(ConflictKind::AddressChanged, "A".to_owned(), true)]);
    assert_eq!(world.members(), ["c1/ba 0 A"]);
    assert_eq!(world.topics(), ["T1", "T2"]);
    // Slaves may move, and the master itself may register again.
    assert_eq!(world.register(&broker("ba", 1, "C")).outcome, accepted_with_master("A"));
    assert_eq!(world.register(&broker("ba", 1, "D")).outcome, accepted_with_master("A"));
    assert_eq!(world.register(&master("ba", "A", &["T1", "T2"])).outcome, accepted());
}

#[test]
fn the_successor_of_a_suspect_is_no_conflict_and_not_refused() {
    // A38.
    let mut world = World::with(|policy| policy.refuse_master_address_change = true);
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.lose(1, ConnectionEnd::TimedOut);
    let effects = world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert_eq!(effects.outcome, accepted());
    assert_eq!(conflicts(&effects), []);
    assert_eq!(world.run(60), [], "the end of the suspicion leaves the successor");
    assert_eq!(world.members(), ["c1/ba 0 B"]);
}

#[test]
fn a_name_in_two_clusters_is_shared_and_counted() {
    // Decision 4, D10.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let other = broker("ba", 1, "B").in_cluster("c2").on(2);
    let effects = world.register(&other);
    assert_eq!(conflicts(&effects), [(ConflictKind::NameInOtherCluster, "c1".to_owned(), true)]);
    assert_eq!(world.members(), ["c1/ba 0 A", "c2/ba 1 B"]);
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
    let again = world.register(&other);
    assert_eq!(conflicts(&again), [(ConflictKind::NameInOtherCluster, "c1".to_owned(), false)]);
    let renewed = world.renew(&other);
    assert_eq!(conflicts(&renewed), [(ConflictKind::NameInOtherCluster, "c1".to_owned(), false)]);
    // Each can leave by itself, and expire.
    world.close(1);
    assert_eq!(world.route("T1"), "ba@c2{1:B} 8/8 6");
    world.close(2);
    assert!(world.topics().is_empty());
}

#[test]
fn an_address_is_never_shown_under_a_cluster_that_only_its_predecessor_was_in() {
    // A11.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&master("ba", "B", &["T1", "T3"]).in_cluster("c2").on(2));
    let info = world.table.cluster_info();
    assert_eq!(info.broker_addr_table["ba"].cluster, "c2");
    assert_eq!(info.broker_addr_table["ba"].broker_addrs, [(0, "B".to_owned())].into());
    assert_eq!(info.cluster_addr_table, [("c2".to_owned(), ["ba".to_owned()].into())].into());
}

#[test]
fn topics_of_the_other_cluster_leave_with_its_last_broker() {
    // A12.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let effects = world.register(&master("ba", "B", &["T2", "T3"]).in_cluster("c2").on(2));
    assert_eq!(changed(&effects), ["T1", "T2", "T3"]);
    assert_eq!(world.table.topics_of_cluster("c2").expect("known").topic_list, ["T2", "T3"]);
    assert_eq!(world.table.topics_of_cluster("c1"), None);
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn a_second_cluster_for_a_name_can_be_refused() {
    // Decision 4.
    let mut world = World::with(|policy| policy.refuse_name_in_other_cluster = true);
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    for id in [0, 1] {
        let effects = world.register(&broker("ba", id, "B").in_cluster("c2").on(2));
        let Outcome::Refused(refusal) = &effects.outcome else { panic!("{effects:?}") };
        assert_eq!(
            refusal.to_string(),
            "broker name ba is live in cluster c1, so cluster c2 may not use it \
             (refuseBrokerNameInOtherCluster=true); rename the broker"
        );
        assert_eq!(conflicts(&effects), [(ConflictKind::NameInOtherCluster, "c1".to_owned(), id == 0)]);
    }
    assert_eq!(world.members(), ["c1/ba 0 A"]);
    // The only member may change its own cluster.
    let moved = master("ba", "A", &["T1", "T2"]).in_cluster("c2").on(1);
    assert_eq!(world.register(&moved).outcome, accepted());
    assert_eq!(world.members(), ["c2/ba 0 A"]);
}

#[test]
fn refusing_starts_with_the_next_broker_not_with_those_that_are_there() {
    let mut world = World::new();
    let (a, b) = (master("ba", "A", &["T1", "T2"]), broker("ba", 1, "B").in_cluster("c2"));
    world.register(&a);
    world.register(&b);
    world.set_policy(|policy| policy.refuse_name_in_other_cluster = true);
    assert_eq!(world.register(&a).outcome, accepted());
    assert_eq!(world.register(&b).outcome, accepted());
    let newcomer = broker("ba", 2, "C").in_cluster("c2");
    assert!(matches!(
        world.register(&newcomer).outcome,
        Outcome::Refused(RegistrationRefusal::NameInOtherCluster { .. })
    ));
}
