//! Who is told of a new smallest id (section 2.8, S14).

use waypost_rocketmq_registry::{Effects, RemovalCause};

use crate::fixture::{Broker, World, broker, master, removed};

fn world() -> World {
    World::with(|policy| policy.notify_min_broker_change = true)
}

fn acting(name: &str, id: i64, address: &str) -> Broker {
    broker(name, id, address).acting(Some(true)).on(id.unsigned_abs() + 1)
}

/// A notice as a short text.
fn notices(effects: &Effects) -> Vec<String> {
    let notices = effects.notices.iter().map(|notice| {
        format!(
            "{} min {}:{} offline {} ha {} to {}",
            notice.broker,
            notice.min_id,
            notice.min_address,
            notice.offline_address.as_deref().unwrap_or("-"),
            notice.ha_address.as_deref().unwrap_or("-"),
            notice.recipients.join(",")
        )
    });
    notices.collect()
}

#[test]
fn the_first_member_is_no_news() {
    assert!(world().register(&acting("ba", 1, "B")).notices.is_empty());
}

#[test]
fn a_master_that_joins_is_told_to_the_slaves_but_not_to_itself() {
    let mut world = world();
    world.register(&acting("ba", 1, "B"));
    world.register(&acting("ba", 2, "C"));
    let effects = world.register(&acting("ba", 0, "A"));
    assert_eq!(notices(&effects), ["ba min 0:A offline - ha A-ha to B,C"]);
    // Not again.
    assert!(world.register(&acting("ba", 0, "A")).notices.is_empty());
}

#[test]
fn joining_is_told_also_without_acting_master() {
    // 2.4 step 16 has no such condition.
    let mut world = world();
    world.register(&broker("ba", 1, "B").acting(None));
    let effects = world.register(&broker("ba", 0, "A").acting(None));
    assert_eq!(notices(&effects), ["ba min 0:A offline - ha A-ha to B"]);
}

#[test]
fn a_member_with_a_larger_id_is_no_news() {
    let mut world = world();
    world.register(&acting("ba", 0, "A"));
    assert!(world.register(&acting("ba", 1, "B")).notices.is_empty());
    assert!(world.unregister(&acting("ba", 1, "B")).notices.is_empty());
}

#[test]
fn a_slave_that_becomes_the_master_is_told_to_the_others() {
    let mut world = world();
    world.register(&acting("ba", 1, "B"));
    world.register(&acting("ba", 2, "C"));
    let effects = world.register(&acting("ba", 1, "B").with_id(0));
    assert_eq!(notices(&effects), ["ba min 0:B offline - ha B-ha to C"]);
}

#[test]
fn the_only_member_is_told_of_itself() {
    // 2.8: one entry in the map, so every address.
    let mut world = world();
    world.register(&acting("ba", 1, "B"));
    let effects = world.register(&acting("ba", 1, "B").with_id(0));
    assert_eq!(notices(&effects), ["ba min 0:B offline - ha B-ha to B"]);
}

#[test]
fn a_master_that_leaves_is_told_to_all_that_stay() {
    let mut world = world();
    for (id, address) in [(0, "A"), (1, "B"), (2, "C")] {
        world.register(&acting("ba", id, address));
    }
    let effects = world.unregister(&acting("ba", 0, "A"));
    assert_eq!(notices(&effects), ["ba min 1:B offline A ha - to B,C"]);
}

#[test]
fn leaving_is_told_however_it_happens() {
    let mut world = world();
    world.tick();
    for (id, address) in [(0, "A"), (1, "B"), (2, "C")] {
        world.register(&acting("ba", id, address).timeout(if id == 1 { 0 } else { 60_000 }));
    }
    assert_eq!(notices(&world.close(1)), ["ba min 1:B offline A ha - to B,C"]);
    world.wait(5_000);
    let effects = world.tick();
    assert_eq!(removed(&effects), [("B".to_owned(), RemovalCause::Expired)]);
    assert_eq!(notices(&effects), ["ba min 2:C offline B ha - to C"]);
}

#[test]
fn leaving_a_group_without_acting_master_is_no_news() {
    // 2.10 step 5.
    let mut world = world();
    world.register(&broker("ba", 0, "A"));
    world.register(&broker("ba", 1, "B"));
    assert!(world.unregister(&broker("ba", 0, "A")).notices.is_empty());
}

#[test]
fn a_group_that_is_gone_is_told_nothing() {
    let mut world = world();
    world.register(&acting("ba", 0, "A"));
    assert!(world.unregister(&acting("ba", 0, "A")).notices.is_empty());
}

#[test]
fn members_that_leave_together_make_one_notice_that_names_the_smallest() {
    // 2.10: after the whole batch. Nobody that left is told or named as the smallest.
    for order in [[(0, "A"), (1, "B")], [(1, "B"), (0, "A")], [(0, "B"), (1, "A")], [(1, "A"), (0, "B")]] {
        let mut world = world();
        for (id, address) in order {
            world.register(&acting("ba", id, address).on(1));
        }
        for (id, address) in [(2, "C"), (3, "D")] {
            world.register(&acting("ba", id, address).on(2));
        }
        let master = if order.contains(&(0, "A")) { "A" } else { "B" };
        let effects = world.close(1);
        assert_eq!(removed(&effects).len(), 2);
        assert_eq!(notices(&effects), [format!("ba min 2:C offline {master} ha - to C,D")]);
    }
}

#[test]
fn the_id_in_the_request_decides_whether_the_smallest_left() {
    // 2.10 step 2.
    let mut world = world();
    world.register(&acting("ba", 0, "A"));
    world.register(&acting("ba", 1, "B"));
    assert!(world.unregister(&acting("ba", 0, "A").with_id(5)).notices.is_empty());
}

#[test]
fn nobody_is_told_anything_by_default() {
    let mut world = World::new();
    world.register(&acting("ba", 1, "B"));
    assert!(world.register(&acting("ba", 0, "A")).notices.is_empty());
    assert!(world.unregister(&acting("ba", 0, "A")).notices.is_empty());
}

#[test]
fn a_broker_that_moves_to_another_name_is_told_to_the_group_it_left() {
    let mut world = world();
    world.register(&acting("ba", 0, "A"));
    world.register(&acting("ba", 1, "B"));
    let effects = world.register(&master("bb", "A", &["T1", "T2"]).acting(Some(true)));
    assert_eq!(notices(&effects), ["ba min 1:B offline A ha - to B"]);
}
