//! Brokers that fall silent (section 2.12, decision 6, K6, K7).

use std::time::Duration;

use waypost_rocketmq_registry::{ConnectionId, RemovalCause};

use crate::fixture::{World, broker, master, removed};

const EXPIRED: RemovalCause = RemovalCause::Expired;

fn gone(address: &str) -> Vec<(String, RemovalCause)> {
    vec![(address.to_owned(), EXPIRED)]
}

#[test]
fn a_broker_without_a_timeout_of_its_own_has_120_seconds() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    assert_eq!(world.row("A").expect("registered").timeout, Duration::from_secs(120));
    assert_eq!(world.run(120), []);
    assert_eq!(world.route("T1"), "ba@c1{0:A} 8/8 6");
    assert_eq!(world.run(5), gone("A"));
    assert_eq!(world.route("T1"), "none");
}

#[test]
fn each_brokers_own_timeout_counts() {
    // K7, S12: gone within its timeout and one scan.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(3_000).on(1));
    world.register(&master("bb", "B", &["T1", "T2"]).on(2));
    assert_eq!(world.run(4), []);
    assert_eq!(world.run(4), gone("A"));
    assert_eq!(world.route("T1"), "bb@c1{0:B} 8/8 6");
}

#[test]
fn the_timeout_has_to_be_exceeded() {
    let mut world = World::new();
    world.tick();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(5_000));
    world.wait(5_000);
    assert!(removed(&world.tick()).is_empty(), "silent for just as long");
    world.wait(5_000);
    assert_eq!(removed(&world.tick()), gone("A"));
}

#[test]
fn the_timeout_of_the_last_registration_counts() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().timeout(3_000));
    world.register(&ba);
    assert_eq!(world.row("A").expect("registered").timeout, Duration::from_secs(120));
    assert_eq!(world.run(60), []);
    world.register(&ba.timeout(3_000));
    assert_eq!(world.run(8), gone("A"));
}

#[test]
fn heartbeats_and_queries_keep_a_broker() {
    // K6, S12.
    for query in [false, true] {
        let mut world = World::new();
        let ba = master("ba", "A", &["T1", "T2"]).timeout(3_000);
        world.register(&ba);
        for _ in 0..30 {
            assert_eq!(world.run(1), []);
            if query {
                world.asks(&ba);
            } else {
                world.heartbeat(&ba);
            }
        }
        assert_eq!(world.run(8), gone("A"));
    }
}

#[test]
fn a_query_with_another_version_keeps_the_broker_too() {
    // 8.1: the 4.x servers refreshed only when nothing changed.
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]).timeout(3_000);
    world.register(&ba);
    for _ in 0..10 {
        assert_eq!(world.run(1), []);
        assert!(world.asks(&ba.clone().version(2)));
    }
}

#[test]
fn a_heartbeat_for_another_cluster_keeps_nobody() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]).timeout(3_000);
    world.register(&ba);
    let other = ba.in_cluster("c2");
    let mut expired = Vec::new();
    for _ in 0..10 {
        expired.extend(world.run(1));
        world.heartbeat(&other);
    }
    assert_eq!(expired, gone("A"));
}

#[test]
fn scans_come_at_their_interval_and_the_first_after_a_whole_one() {
    // 2.12, section 5.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0));
    let mut seconds = 0;
    world.tick();
    while world.row("A").is_some() {
        world.wait(1_000);
        world.tick();
        seconds += 1;
    }
    assert_eq!(seconds, 5);
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0));
    assert_eq!(world.run(4), []);
    assert_eq!(world.run(1), gone("A"));
}

#[test]
fn a_pause_is_not_followed_by_a_rush_of_scans() {
    let mut world = World::new();
    world.tick();
    world.wait(600_000);
    world.tick();
    world.tick();
    world.wait(1);
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0));
    world.wait(1);
    assert_eq!(removed(&world.tick()), [], "the next scan is an interval away");
    world.wait(5_000);
    assert_eq!(removed(&world.tick()), gone("A"));
}

#[test]
fn expiry_and_scan_interval_can_change_while_running() {
    // Decision 6.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]));
    world.run(10);
    world.set_policy(|policy| {
        policy.broker_expire = Duration::from_secs(10);
        policy.scan_interval = Duration::from_secs(1);
    });
    assert_eq!(world.row("A").expect("registered").timeout, Duration::from_secs(10));
    assert_eq!(world.run(1), gone("A"));
}

#[test]
fn the_connection_of_an_expired_broker_is_closed() {
    // Section 11.
    let mut world = World::new();
    world.tick();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0).on(7));
    world.wait(5_000);
    assert_eq!(world.tick().close, [ConnectionId(7)]);
}

#[test]
fn a_connection_with_a_live_broker_on_it_stays_open() {
    let mut world = World::new();
    world.tick();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0).on(7));
    world.register(&master("bb", "B", &["T1", "T2"]).timeout(6_000).on(7));
    world.wait(5_000);
    let effects = world.tick();
    assert_eq!(removed(&effects), gone("A"));
    assert_eq!(effects.close, []);
    world.wait(5_000);
    assert_eq!(world.tick().close, [ConnectionId(7)]);
}

#[test]
fn a_connection_on_which_all_brokers_expired_is_closed_once() {
    let mut world = World::new();
    world.tick();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(0).on(7));
    world.register(&master("bb", "B", &["T1", "T2"]).timeout(0).on(7));
    world.wait(5_000);
    assert_eq!(world.tick().close, [ConnectionId(7)]);
}

#[test]
fn the_expiry_of_an_address_leaves_its_successor() {
    // A38, D1.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(1));
    world.close(1);
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    for _ in 0..20 {
        assert_eq!(world.run(10), []);
        world.heartbeat(&master("ba", "B", &[]).on(2));
    }
    assert_eq!(world.members(), ["c1/ba 0 B"]);
}

#[test]
fn an_address_that_lost_its_id_never_expires_because_it_is_gone() {
    // D1, section 11.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(3_000).on(1));
    world.register(&master("ba", "B", &["T1", "T2"]).on(2));
    assert!(world.asks(&master("ba", "A", &[])), "322 does not know the old address");
    assert_eq!(world.run(60), []);
}

#[test]
fn a_suspect_that_expires_goes_once() {
    let mut world = World::with(|policy| policy.suspect_grace = Duration::from_secs(600));
    world.register(&broker("ba", 0, "A").timeout(3_000));
    world.lose(1, waypost_rocketmq_registry::ConnectionEnd::TimedOut);
    assert_eq!(world.run(700), gone("A"));
}

#[test]
fn the_lease_of_a_broker_on_an_idle_connection_ends_without_a_scan() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).on(7));
    world.wait(120_000);
    let effects = world.idle(7);
    assert!(removed(&effects).is_empty(), "silent for just as long");
    assert_eq!(effects.close, []);
    world.wait(1);
    let effects = world.idle(7);
    assert_eq!(removed(&effects), gone("A"));
    assert_eq!(effects.close, [ConnectionId(7)]);
}

#[test]
fn an_idle_connection_lives_as_long_as_the_longest_lease_on_it() {
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).timeout(10_000).on(7));
    world.register(&master("bb", "B", &["T1", "T2"]).timeout(300_000).on(7));
    world.wait(120_001);
    let effects = world.idle(7);
    assert_eq!(removed(&effects), gone("A"));
    assert_eq!(effects.close, []);
    world.wait(180_000);
    let effects = world.idle(7);
    assert_eq!(removed(&effects), gone("B"));
    assert_eq!(effects.close, [ConnectionId(7)]);
}

#[test]
fn an_idle_connection_takes_no_broker_that_moved_to_another() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(1));
    world.register(&ba.on(2));
    world.wait(120_001);
    assert!(!world.table.is_bound(ConnectionId(1)));
    let effects = world.idle(1);
    assert!(removed(&effects).is_empty());
    assert_eq!(effects.close, []);
    assert_eq!(removed(&world.idle(2)), gone("A"));
}

#[test]
fn signs_of_life_over_another_connection_keep_a_broker_of_an_idle_one() {
    let mut world = World::new();
    let ba = master("ba", "A", &["T1", "T2"]);
    world.register(&ba.clone().on(1));
    world.wait(100_000);
    world.heartbeat(&ba.on(2));
    world.wait(100_000);
    let effects = world.idle(1);
    assert!(removed(&effects).is_empty());
    assert_eq!(effects.close, []);
}
