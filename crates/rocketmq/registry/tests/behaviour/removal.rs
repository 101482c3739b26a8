//! 104 and lost connections (sections 2.10 to 2.12, decision 5).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use waypost_rocketmq_registry::{
    Announcement, Command, ConnectionEnd, ConnectionId, Event, Outcome, RemovalCause,
};

use crate::fixture::{Broker, World, accepted, broker, changed, master, removed, text};

fn gone(address: &str, cause: RemovalCause) -> (String, RemovalCause) {
    (address.to_owned(), cause)
}

#[test]
fn a_broker_that_leaves_takes_its_topics_its_name_and_its_cluster_along() {
    // unregisterBroker.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.unregister(&master("ba", "A", &[]));
    assert_eq!(effects.outcome, Outcome::Done);
    assert_eq!(removed(&effects), [gone("A", RemovalCause::Unregistered)]);
    assert_eq!(changed(&effects), ["T1", "T2"]);
    assert!(world.index.is_empty());
    assert!(world.topics().is_empty());
    assert!(world.table.cluster_info().broker_addr_table.is_empty());
    assert!(world.table.cluster_info().cluster_addr_table.is_empty());
    assert_eq!(world.table.counts(), World::new().table.counts());
}

#[test]
fn a_slave_that_leaves_leaves_the_master() {
    // unRegisterSlaveBroker.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B"));
    world.unregister(&broker("ba", 1, "B"));
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
}

#[test]
fn a_master_that_leaves_a_group_without_acting_master_leaves_it_writable() {
    // unRegisterMasterBrokerOldVersion.
    let mut world = World::with(|policy| policy.support_acting_master = true);
    world.register(&master("ba", "A", &["T1", "T2"]).acting(None));
    world.register(&broker("ba", 1, "B").acting(None));
    world.unregister(&master("ba", "A", &[]));
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 6");
}

#[test]
fn several_that_leave_are_all_gone() {
    // submitMultiUnRegisterRequests, testUnregisterBroker.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.register(&broker("ba", 1, "B"));
    world.register(&broker("ba", 2, "C"));
    world.unregister(&broker("ba", 2, "C"));
    assert_eq!(world.members(), ["c1/ba 0 A", "c1/ba 1 B"]);
    world.unregister(&master("ba", "A", &[]));
    world.unregister(&broker("ba", 1, "B"));
    assert!(world.members().is_empty());
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn a_late_104_of_the_old_master_leaves_the_new_one() {
    // A2: matched by address, not by id.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).state(1).on(1));
    world.register(&master("ba", "B", &["T1", "T2"]).state(2).on(2));
    assert_eq!(world.unregister(&master("ba", "A", &[]).on(1)).outcome, Outcome::Ignored);
    assert_eq!(world.route("T1"), "ba@c1{0:B} 8/8 6");
    assert_eq!(world.members(), ["c1/ba 0 B"]);
}

#[test]
fn a_104_with_a_wrong_id_removes_the_address_all_the_same() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.unregister(&broker("ba", 7, "A")).outcome, Outcome::Done);
    assert!(world.members().is_empty());
}

#[test]
fn a_104_for_an_unknown_address_or_another_name_is_ignored() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.unregister(&master("ba", "X", &[])).outcome, Outcome::Ignored);
    assert_eq!(world.unregister(&master("bb", "A", &[])).outcome, Outcome::Ignored);
    assert_eq!(world.members(), ["c1/ba 0 A"]);
}

#[test]
fn unregister_from_an_older_connection_is_ignored() {
    // A1, invariant 3.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(1));
    world.register(&ba.clone().on(2));
    assert_eq!(world.unregister(&ba.clone().on(1)).outcome, Outcome::Ignored);
    assert_eq!(world.members(), ["c1/ba 0 A"]);
    // A connection that never carried it may speak for it: an operator's tool does.
    assert_eq!(world.unregister(&ba.on(9)).outcome, Outcome::Done);
}

#[test]
fn closing_the_connection_removes_the_broker_at_once() {
    // onChannelDestroy.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&broker("ba", 1, "B").on(2));
    let effects = world.close(1);
    assert_eq!(removed(&effects), [gone("A", RemovalCause::ConnectionClosed)]);
    assert_eq!(world.route("T1"), "ba@c1{1:B} 8/8 6");
    world.close(2);
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn closing_a_connection_removes_all_brokers_that_came_over_it() {
    // D2.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.register(&master("bb", "B", &["T1", "T2"]).on(1));
    world.register(&master("bc", "C", &["T1", "T2"]).on(2));
    let effects = world.close(1);
    let cause = RemovalCause::ConnectionClosed;
    assert_eq!(removed(&effects), [gone("A", cause), gone("B", cause)]);
    assert_eq!(changed(&effects), ["T1", "T2"], "each topic once");
    assert_eq!(world.route("T1"), "bc@c1{0:C} 8/8 6");
}

#[test]
fn closing_a_clients_connection_removes_nobody() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let effects = world.close(5);
    assert!(effects.events.is_empty() && effects.changed.is_empty());
}

#[test]
fn closing_an_older_connection_removes_nobody() {
    // A1, D3, S11: the same over and over.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(0));
    for connection in 1..2_000 {
        world.register(&ba.clone().on(connection));
        world.close(connection - 1);
        assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    }
}

#[test]
fn a_heartbeat_does_not_move_a_broker_to_another_connection() {
    // 1.3, 904 and 322.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(1));
    world.heartbeat(&ba.clone().on(2));
    world.asks(&ba.on(3));
    world.close(2);
    world.close(3);
    assert_eq!(world.members(), ["c1/ba 0 A"]);
    world.close(1);
    assert!(world.members().is_empty());
}

#[test]
fn a_connection_that_times_out_removes_the_broker_after_the_grace() {
    // Decision 5.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    let effects = world.lose(1, ConnectionEnd::TimedOut);
    let until = Duration::from_secs(30);
    assert!(matches!(&effects.events[..], [Event::BrokerSuspected { until: at, .. }] if *at == until));
    assert_eq!(world.table.counts().suspects, 1);
    assert_eq!(world.run(29), []);
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    assert_eq!(world.run(1), [gone("A", RemovalCause::ConnectionTimedOut)]);
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn a_sign_on_another_connection_clears_the_suspicion() {
    // Decision 5: a registration, with body or without, and both heartbeats.
    let speak: [fn(&mut World, &Broker); 4] = [
        |world, broker| assert_eq!(world.register(broker).outcome, accepted()),
        |world, broker| assert_eq!(world.renew(broker).outcome, accepted()),
        |world, broker| assert_eq!(world.heartbeat(broker).outcome, Outcome::Done),
        |world, broker| assert!(!world.asks(broker)),
    ];
    for speak in speak {
        let mut world = World::new();
        let ba = master("ba", "A", &["T1", "T2"]);
        world.register(&ba);
        world.lose(1, ConnectionEnd::TimedOut);
        speak(&mut world, &ba.on(2));
        assert_eq!(world.table.counts().suspects, 0);
        assert_eq!(world.run(60), []);
        // It is bound to the new connection.
        assert_eq!(removed(&world.close(2)), [gone("A", RemovalCause::ConnectionClosed)]);
    }
}

#[test]
fn being_trusted_again_is_reported() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.lose(1, ConnectionEnd::TimedOut);
    let effects = world.heartbeat(&ba.on(2));
    assert!(matches!(&effects.events[..], [Event::BrokerTrusted { member }] if &*member.address == "A"));
}

#[test]
fn a_sign_that_was_still_on_its_way_over_the_broken_connection_clears_nothing() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba);
    world.lose(1, ConnectionEnd::TimedOut);
    world.heartbeat(&ba);
    world.register(&ba);
    assert_eq!(world.run(30), [gone("A", RemovalCause::ConnectionTimedOut)]);
}

#[test]
fn a_connection_that_is_closed_after_it_timed_out_removes_at_once() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.lose(1, ConnectionEnd::TimedOut);
    assert_eq!(removed(&world.close(1)), [gone("A", RemovalCause::ConnectionClosed)]);
}

#[test]
fn a_second_time_out_does_not_prolong_the_grace() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.lose(1, ConnectionEnd::TimedOut);
    world.run(20);
    assert!(world.lose(1, ConnectionEnd::TimedOut).events.is_empty());
    assert_eq!(world.run(10), [gone("A", RemovalCause::ConnectionTimedOut)]);
}

#[test]
fn a_removal_is_reported_once() {
    // A40: expiry closes the connection, whose end is reported too.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(1_000));
    assert_eq!(world.run(10), [gone("A", RemovalCause::Expired)]);
    assert!(world.close(1).events.is_empty());
    assert_eq!(world.unregister(&master("ba", "A", &[])).outcome, Outcome::Ignored);
}

#[test]
fn a_reader_never_sees_queues_without_their_broker() {
    // A14, invariant 1.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    let World { table, index, now } = &mut world;
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Acquire) {
                let route = index.route("T1").expect("one broker always has it");
                seen.insert(text(&route.data()));
            }
            seen
        });
        for connection in 2..5_000 {
            let bb = master("bb", "B", &["T1", "T2"]).on(connection);
            let body = bb.body();
            let came = table.apply(bb.register(Announcement::Full(&body, None)), *now);
            index.publish(&came.changed);
            let (connection, how) = (ConnectionId(connection), ConnectionEnd::Closed);
            let left = table.apply(Command::ConnectionLost { connection, how }, *now);
            index.publish(&left.changed);
        }
        done.store(true, Ordering::Release);
        reader.join().expect("the reader found whole routes")
    });
    let expected = ["ba@c1{0:A} 8/8 6", "ba@c1{0:A} 8/8 6; bb@c1{0:B} 8/8 6"];
    assert!(seen.iter().all(|text| expected.contains(&text.as_str())), "{seen:?}");
}
