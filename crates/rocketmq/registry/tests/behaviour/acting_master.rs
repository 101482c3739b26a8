//! Groups that lost their master (sections 2.9 step 5 and 2.10 step 4, K8, S13).

use waypost_rocketmq_registry::MEMBER_GROUP_TOPIC_PREFIX;
use waypost_rocketmq_wire::body::Dialect;

use crate::fixture::{Broker, World, broker, changed, master};

fn world() -> World {
    World::with(|policy| policy.support_acting_master = true)
}

/// A master on connection 1 with two slaves, in acting-master mode.
fn register_group(world: &mut World) {
    world.register(&acting_master());
    for (id, address) in [(1, "B"), (2, "C")] {
        world.register(&broker("ba", id, address).acting(Some(true)).on(2));
    }
}

fn acting_master() -> Broker {
    master("ba", "A", &["T1", "T2"]).acting(Some(true))
}

#[test]
fn the_smallest_slave_stands_in_for_reading() {
    // unRegisterMasterBroker.
    let mut world = world();
    register_group(&mut world);
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B,2:C} 8/8 6");
    world.close(1);
    assert_eq!(world.route("T1"), "ba@c1{0:B,2:C} 8/8 4");
    let body = world.published("T1").expect("routed").body(Dialect::Standard).clone();
    assert_eq!(
        String::from_utf8(body.to_vec()).expect("text"),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"B","2":"C"},"brokerName":"ba","cluster":"c1","enableActingMaster":true}],"filterServerTable":{},"queueDatas":[{"brokerName":"ba","perm":4,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#
    );
}

#[test]
fn cluster_and_member_lists_keep_the_real_ids() {
    let mut world = world();
    register_group(&mut world);
    world.close(1);
    let group = &world.table.cluster_info().broker_addr_table["ba"];
    assert_eq!(group.broker_addrs, [(1, "B".to_owned()), (2, "C".to_owned())].into());
    let members = world.table.member_group("c1", "ba").broker_addrs;
    assert_eq!(members, [(1, "B".to_owned()), (2, "C".to_owned())].into());
}

#[test]
fn member_group_topics_keep_the_real_ids() {
    // K8.
    let mut world = world();
    let name = format!("{MEMBER_GROUP_TOPIC_PREFIX}ba");
    world.register(&acting_master().topic(&name, 1));
    world.register(&broker("ba", 1, "B").acting(Some(true)).on(2));
    world.close(1);
    assert_eq!(world.route(&name), "ba@c1{1:B} 8/8 1");
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 4");
}

#[test]
fn a_lone_slave_is_shown_as_master_until_a_master_comes() {
    // pickupPartitionOrderTopicRouteData, pickupTopicRouteDataWithSlave.
    let mut world = world();
    world.register(&broker("ba", 1, "B").acting(Some(true)).topics(&["T1", "T2"]).on(2));
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 4");
    world.register(&acting_master());
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
    world.close(1);
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 4");
    world.register(&acting_master().on(3));
    assert_eq!(world.route("T1"), "ba@c1{0:A,1:B} 8/8 6");
}

#[test]
fn of_two_groups_only_the_one_without_master_is_rewritten() {
    // pickupPartitionOrderTopicRouteData.
    let mut world = world();
    register_group(&mut world);
    world.register(&master("bb", "D", &["T1", "T2"]).acting(Some(true)).on(3));
    world.register(&broker("bb", 1, "E").acting(Some(true)).on(4));
    world.close(1);
    assert_eq!(world.route("T1"), "ba@c1{0:B,2:C} 8/8 4; bb@c1{0:D,1:E} 8/8 6");
}

#[test]
fn a_group_that_can_still_be_written_is_not_rewritten() {
    // 2.9 step 5: if the permission still has WRITE, leave as is.
    let mut world = world();
    register_group(&mut world);
    world.close(1);
    world.add("ba");
    assert_eq!(world.route("T1"), "ba@c1{1:B,2:C} 8/8 6");
}

#[test]
fn a_group_that_did_not_ask_for_it_is_not_rewritten() {
    let mut world = world();
    world.register(&broker("ba", 1, "B").acting(Some(false)).topic("T1", 4).topic("T2", 4));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 4");
}

#[test]
fn the_policy_can_change_while_running() {
    let mut world = World::new();
    register_group(&mut world);
    world.register(&master("bb", "D", &["T3", "T4"]).on(3));
    world.close(1);
    assert_eq!(world.route("T1"), "ba@c1{1:B,2:C} 8/8 4");
    let effects = world.set_policy(|policy| policy.support_acting_master = true);
    assert_eq!(changed(&effects), ["T1", "T2"], "only routes that look otherwise");
    assert_eq!(world.route("T1"), "ba@c1{0:B,2:C} 8/8 4");
    world.set_policy(|policy| policy.support_acting_master = false);
    assert_eq!(world.route("T1"), "ba@c1{1:B,2:C} 8/8 4");
}

#[test]
fn losing_a_slave_of_a_group_without_master_leaves_the_next_one() {
    let mut world = world();
    world.register(&broker("ba", 2, "C").acting(Some(true)).topics(&["T1", "T2"]).on(3));
    world.register(&broker("ba", 1, "B").acting(Some(true)).topics(&["T1", "T2"]).on(2));
    assert_eq!(world.route("T1"), "ba@c1{0:B,2:C} 8/8 4");
    world.close(2);
    assert_eq!(world.route("T1"), "ba@c1{0:C} 8/8 4");
}

#[test]
fn the_slaves_own_registration_keeps_the_group_read_only() {
    // 2.2: the prime slave announces without WRITE, whatever its version.
    let mut world = world();
    register_group(&mut world);
    world.close(1);
    world.register(&broker("ba", 1, "B").acting(Some(true)).topics(&["T1", "T2"]).version(9).on(2));
    assert_eq!(world.route("T1"), "ba@c1{0:B,2:C} 8/8 4");
}
