use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use waypost_net::clock::Millis;

use super::world::World;
use crate::identity::Role;
use crate::lease::FarewellOutcome;
use crate::options::{ActingMaster, Beat, Form, Timing};
use crate::state::Phase;

/// Without the questions between periods, which would clutter traces.
fn quiet() -> Timing {
    Timing { check: Duration::ZERO, ..Timing::default() }
}

fn world() -> World {
    World::new(quiet(), Form::default())
}

fn registered(timing: Timing, form: Form) -> World {
    let mut world = World::new(timing, form);
    world.pass(10);
    assert_eq!(phase(&world), Phase::Registered);
    world.trace();
    world
}

fn phase(world: &World) -> Phase {
    world.lease.state(&world.broker, Millis::new(world.now)).phase
}

/// Compares a trace, whose lines are indented in the source.
#[track_caller]
fn expect(world: &mut World, expected: &str) {
    let lines = |text: &str| {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let (happened, expected): (Vec<String>, Vec<String>) = (lines(&world.trace()), lines(expected));
    assert_eq!(happened, expected, "\n{}", happened.join("\n"));
}

#[test]
fn a_new_server_gets_the_whole_table_and_is_asked_a_second_later() {
    let mut world = World::new(Timing::default(), Form::default());
    world.pass(4_000);
    expect(
        &mut world,
        "0 1 open within 900ms
         1 1 > 103 id=0 v1 [a b]
         3 1 < 0
         1003 1 > 322 v1
         1005 1 < 0 changed=false",
    );
}

#[test]
fn the_second_registration_comes_early_and_the_others_each_period() {
    let mut world = registered(quiet(), Form::default());
    world.pass(75_000);
    let trace = world.trace();
    let times: Vec<u64> = trace
        .lines()
        .filter(|line| line.contains("> 103"))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(times.len(), 3, "{trace}");
    assert!((5_000..=10_010).contains(&times[0]), "{trace}");
    assert_eq!(times[1] - times[0], 30_000, "{trace}");
    assert_eq!(times[2] - times[1], 30_000, "{trace}");
}

#[test]
fn a_change_is_sent_50_ms_later_with_those_that_came_meanwhile() {
    let mut world = registered(quiet(), Form::default());
    world.set("c", 1);
    world.pass(30);
    world.set("d", 1);
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 103 id=0 v3 [c d]
         62 1 < 0",
    );
}

#[test]
fn a_change_while_another_is_under_way_follows_it() {
    let mut world = registered(quiet(), Form::default());
    world.set("c", 1);
    world.pass(50);
    world.stall(500);
    world.set("d", 1);
    world.pass(1_000);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         561 1 < 0
         561 1 > 103 id=0 v3 [d]
         563 1 < 0",
    );
}

#[test]
fn a_removed_topic_makes_the_whole_table_due() {
    let mut world = registered(quiet(), Form::default());
    world.broker.topics.remove("a", Millis::new(world.now), 0);
    world.set("c", 1);
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 103 id=0 v3 [b c]
         62 1 < 0",
    );
}

#[test]
fn a_connection_that_ends_is_opened_again_at_once_then_with_pauses_of_half_a_second_at_most() {
    let mut world = registered(quiet(), Form::default());
    world.server.down = true;
    world.restart_server();
    world.pass(5_000);
    let trace = world.trace();
    let times: Vec<u64> = trace
        .lines()
        .filter(|line| line.contains("open"))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(times[0], 11, "{trace}");
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| (80..=602).contains(pause)), "{pauses:?}");
    assert!(pauses.len() >= 9, "{pauses:?}");
    world.server.down = false;
    let back = world.now;
    world.pass(1_000);
    assert!(world.server.registered.is_some());
    assert!(world.trace().contains("[a b]"), "everything, to a server that is empty");
    assert!(
        world.lease.state(&world.broker, Millis::new(world.now)).accepted.is_some_and(|accepted| {
            accepted.age >= Duration::from_millis(300) || world.now - back >= 1_000
        })
    );
}

#[test]
fn a_server_that_forgot_the_broker_says_so_when_it_is_asked() {
    let mut world = registered(Timing::default(), Form::default());
    world.pass(2_000);
    world.trace();
    world.server.registered = None;
    world.pass(5_000);
    expect(
        &mut world,
        "6003 1 > 322 v1
         6005 1 < 0 changed=true
         6005 1 > 103 id=0 v1 [a b]
         6007 1 < 0",
    );
}

#[test]
fn without_force_a_period_is_a_question() {
    let mut world = registered(Timing { force: false, ..quiet() }, Form::default());
    world.pass(11_000);
    let trace = world.trace();
    assert!(trace.contains("> 322 v1") && !trace.contains("103"), "{trace}");
    world.pass(31_000);
    assert_eq!(world.trace().matches("> 322").count(), 1);
}

#[test]
fn a_refused_registration_is_tried_again_after_200_ms_to_5_s() {
    let mut world = world();
    world.server.refuses = (103, 20, 1);
    world.pass(60_000);
    let trace = world.trace();
    let times: Vec<u64> = trace
        .lines()
        .filter(|line| line.contains("> 103"))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((200..=250).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| (200..=5_010).contains(pause)), "{pauses:?}");
    assert!(pauses[6..].iter().all(|pause| *pause >= 3_900), "{pauses:?}");
    assert_eq!(phase(&world), Phase::Refused);
    let state = world.lease.state(&world.broker, Millis::new(world.now));
    let text = state.failure.expect("a failure").0.to_string();
    assert!(text.contains("10.0.0.9:9876") && text.contains("code 1: no"), "{text}");
}

#[test]
fn a_refused_change_makes_the_whole_table_due_at_once() {
    let mut world = registered(quiet(), Form::default());
    world.server.registered = None;
    world.set("c", 1);
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         62 1 < 1 register broker failed
         62 1 > 103 id=0 v2 [a b c]
         64 1 < 0",
    );
}

#[test]
fn a_server_that_cannot_read_deflated_bodies_gets_plain_ones() {
    let mut world = World::new(quiet(), Form { compressed: true, ..Form::default() });
    world.server.reads_compressed = false;
    world.pass(10);
    world.set("c", 1);
    world.pass(100);
    expect(
        &mut world,
        "0 1 open within 900ms
         1 1 > 103 id=0 v1 [a b] deflated
         3 1 < 1 Failed to decode RegisterBrokerBody
         3 1 > 103 id=0 v1 [a b]
         5 1 < 0
         60 1 > 103 id=0 v2 [c]
         62 1 < 0",
    );
}

#[test]
fn a_split_registration_that_broke_off_starts_again() {
    let mut world = World::new(quiet(), Form { split: Some(2), ..Form::default() });
    world.set("c", 1);
    world.pass(5);
    world.restart_server();
    world.pass(10);
    expect(
        &mut world,
        "0 1 open within 900ms
         1 1 > 322 v2
         3 1 < 0 changed=true
         3 1 > 103 id=0 v2 [a b]
         5 1 < 0
         5 1 > 103 id=0 v2 [c]
         6 1 closed
         6 5 open within 900ms
         7 5 > 322 v2
         9 5 < 0 changed=true
         9 5 > 103 id=0 v2 [a b]
         11 5 < 0
         11 5 > 103 id=0 v2 [c]
         13 5 < 0",
    );
}

#[test]
fn a_server_below_5_gets_the_whole_table_in_one_piece() {
    let mut world = World::new(quiet(), Form { split: Some(2), ..Form::default() });
    world.server.version = 407;
    world.set("c", 1);
    world.pass(10);
    world.server.registered = None;
    world.set("d", 1);
    world.pass(100);
    expect(
        &mut world,
        "0 1 open within 900ms
         1 1 > 322 v2
         3 1 < 0 changed=true
         3 1 > 103 id=0 v2 [a b c]
         5 1 < 0
         50 1 > 103 id=0 v3 [a b c d]
         52 1 < 0",
    );
}

#[test]
fn single_topics_go_one_by_one_and_a_removal_as_a_table() {
    let mut world = registered(quiet(), Form { single_topic: true, ..Form::default() });
    world.set("c", 1);
    world.set("d", 1);
    world.pass(100);
    world.broker.topics.remove("c", Millis::new(world.now), 0);
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 217 c
         62 1 < 0
         62 1 > 217 d
         64 1 < 0
         160 1 > 103 id=0 v4 [a b d]
         162 1 < 0",
    );
}

#[test]
fn a_server_below_5_gets_tables_instead_of_single_topics_and_322_instead_of_904() {
    let acting_master = Some(ActingMaster { with: Beat::Heartbeat, ..ActingMaster::default() });
    let mut world =
        World::new(Timing { acting_master, ..quiet() }, Form { single_topic: true, ..Form::default() });
    world.server.version = 407;
    world.pass(10);
    world.trace();
    world.set("c", 1);
    world.pass(1_000);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [a b c]
         62 1 < 0
         1003 1 > 322 one-way v2",
    );
    world.server.version = 513;
    world.pass(35_000);
    assert!(world.trace().contains("> 904 one-way"), "the server was replaced by a newer one");
}

#[test]
fn a_server_that_does_not_know_single_topics_gets_everything() {
    let mut world = registered(quiet(), Form { single_topic: true, ..Form::default() });
    world.server.refuses = (217, 1, 3);
    world.set("c", 1);
    world.pass(100);
    world.set("d", 1);
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 217 c
         62 1 < 3 no
         62 1 > 103 id=0 v2 [a b c]
         64 1 < 0
         160 1 > 103 id=0 v3 [d]
         162 1 < 0",
    );
}

#[test]
fn heartbeats_go_one_way_every_second_and_stop_before_a_server_that_hangs() {
    let acting_master = Some(ActingMaster::default());
    let mut world = registered(Timing { acting_master, ..quiet() }, Form::default());
    world.pass(4_000);
    assert_eq!(world.trace().matches("> 322 one-way v1").count(), 4);
    world.server.hung = true;
    world.pass(100_000);
    let beats = world.trace().matches("one-way").count();
    assert!((30..=45).contains(&beats), "{beats}");
    world.wake_server();
    world.pass(5_000);
    assert!(world.trace().matches("one-way").count() >= 3);
}

#[test]
fn a_hung_server_is_asked_over_a_second_connection_and_keeps_the_first_when_it_goes_on() {
    let mut world = registered(quiet(), Form::default());
    world.server.hung = true;
    world.set("c", 1);
    world.pass(5_000);
    assert_eq!(phase(&world), Phase::Silent);
    world.wake_server();
    world.pass(100);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         3060 4 open within 900ms
         3061 4 > 322 v1
         5011 1 < 0
         5011 4 < 0 changed=true
         5011 4 close",
    );
    assert_eq!(phase(&world), Phase::Registered);
    assert!(world.server.removals.is_empty());
}

#[test]
fn challengers_of_a_hung_server_become_rare() {
    let mut world = registered(quiet(), Form::default());
    world.server.hung = true;
    world.pass(600_000);
    let trace = world.trace();
    let opens = trace.matches("open").count();
    assert!((15..=30).contains(&opens), "{opens} connections in ten minutes");
    assert_eq!(trace.matches("> 103").count(), 1, "one registration waits, no more");
}

#[test]
fn a_dead_connection_is_closed_only_after_the_new_one_has_registered() {
    let mut world = registered(Timing { force: false, ..quiet() }, Form::default());
    // Nothing is under way but a question.
    world.pass(4_000);
    world.stall(1_000_000);
    world.pass(10_000);
    let trace = world.trace();
    let place = |text: &str| trace.find(text).unwrap_or_else(|| panic!("{text} in\n{trace}"));
    assert!(place("open") < place("> 103 id=0") && place("< 0\n") < place("1 close"), "{trace}");
    assert!(trace.find("> 103").expect("one") < place("1 close"), "{trace}");
}

#[test]
fn a_connection_on_which_a_registration_waits_is_kept_until_that_has_come_and_was_outdone() {
    let mut world = registered(quiet(), Form::default());
    world.set("c", 1);
    world.pass(49);
    world.stall(8_000);
    world.pass(8_100);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         3060 4 open within 900ms
         3061 4 > 322 v1
         3063 4 < 0 changed=false
         3063 4 > 103 id=0 v2 [a b c]
         3065 4 < 0
         8060 1 < 0
         8060 4 > 103 id=0 v2 [a b c]
         8062 4 < 0
         8062 1 close",
    );
    assert!(world.server.removals.is_empty(), "{:?}", world.server.removals);
}

#[test]
fn after_the_process_stood_still_everything_is_sent_at_once() {
    let mut world = registered(Timing::default(), Form::default());
    world.pass(2_000);
    world.trace();
    world.freeze(130_000);
    world.server.registered = None;
    world.pass(1_000);
    let trace = world.trace();
    assert!(trace.contains("> 103 id=0 v1 [a b]"), "{trace}");
    assert!(world.server.registered.is_some());
}

#[test]
fn after_the_process_stood_still_a_connection_that_ended_is_opened_again_at_once() {
    let mut world = registered(Timing::default(), Form::default());
    world.pass(2_000);
    world.restart_server();
    world.freeze(130_000);
    world.pass(1_000);
    assert!(world.server.registered.is_some(), "{}", world.trace());
}

#[test]
fn a_paused_broker_sends_nothing_and_everything_when_it_resumes() {
    let mut world = registered(Timing::default(), Form::default());
    world.broker.paused = true;
    world.set("c", 1);
    world.pass(200_000);
    expect(&mut world, "");
    world.broker.paused = false;
    world.pass(1_000);
    assert!(world.trace().contains("> 103 id=0 v2 [a b c]"));
}

#[test]
fn an_undecided_broker_opens_nothing_and_one_that_becomes_it_says_goodbye() {
    let mut world = world();
    world.broker.role = Role::Undecided;
    world.pass(60_000);
    expect(&mut world, "");
    assert_eq!(phase(&world), Phase::Absent);
    world.broker.role = Role::Slave(2);
    world.broker.role_epoch += 1;
    world.pass(100);
    world.broker.role = Role::Undecided;
    world.broker.role_epoch += 1;
    world.pass(2_000);
    let trace = world.trace();
    assert!(
        trace.contains("> 103 id=2 v1 [a b]") && trace.contains("> 104 id=2") && trace.ends_with("close\n"),
        "{trace}"
    );
    assert_eq!(world.server.registered, None);
}

#[test]
fn a_new_role_is_announced_to_who_holds_the_old_one() {
    let mut world = registered(quiet(), Form::default());
    world.broker.role = Role::Slave(3);
    world.broker.role_epoch += 1;
    world.pass(1_000);
    assert!(world.trace().contains("> 103 id=3 v1 [a b]"));
    assert_eq!(world.server.registered.as_ref().map(|registered| registered.id.as_str()), Some("3"));
}

#[test]
fn a_slave_that_knows_no_master_asks_every_10_s() {
    let mut world = world();
    world.broker.role = Role::Slave(1);
    world.pass(100_000);
    assert!(world.trace().matches("> 103").count() >= 10);
    world.server.master = Some("10.0.0.5:10911".to_owned());
    world.pass(11_000);
    assert_eq!(
        world.lease.take_news().master.flatten().map(|master| master.address).as_deref(),
        Some("10.0.0.5:10911")
    );
    world.trace();
    world.pass(90_000);
    assert_eq!(world.trace().matches("> 103").count(), 3);
}

#[test]
fn leaving_waits_for_the_registration_that_is_under_way_but_not_long() {
    let mut world = registered(quiet(), Form::default());
    world.set("c", 1);
    world.pass(50);
    world.stall(100);
    world.lease.go();
    world.pass(1_000);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         161 1 < 0
         161 1 > 104 id=0
         163 1 < 0
         163 1 close",
    );
    assert_eq!(world.lease.farewell(), Some(&FarewellOutcome::Unregistered));

    let mut world = registered(quiet(), Form::default());
    world.set("c", 1);
    world.pass(50);
    world.server.hung = true;
    world.lease.go();
    world.pass(1_000);
    expect(
        &mut world,
        "60 1 > 103 id=0 v2 [c]
         560 1 > 104 id=0",
    );
    assert_eq!(world.lease.farewell(), None);
}

#[test]
fn leaving_a_server_that_was_never_reached_is_over_at_once() {
    let mut world = world();
    world.server.down = true;
    world.pass(1_000);
    world.lease.go();
    world.pass(1);
    assert_eq!(world.lease.farewell(), Some(&FarewellOutcome::NotRegistered));
}

/// Whatever the network does for up to 25 s, a server that runs never takes the broker off its routes,
/// because no connection is closed that it counts on; and once all is calm it has what is current.
#[test]
fn a_network_that_stalls_at_random_never_takes_the_broker_off_the_routes() {
    for seed in 0..300 {
        let mut world = World::new(Timing::default(), Form::default());
        world.chance = StdRng::seed_from_u64(seed);
        let mut choices = StdRng::seed_from_u64(seed + 1_000);
        world.pass(100);
        assert!(world.server.registered.is_some());
        world.stalls = Some((0.1, 25_000));
        for number in 0..60 {
            if choices.random_bool(0.5) {
                world.set(&format!("t{number}"), number);
            }
            world.pass(choices.random_range(0..15_000));
            let removals = world.server.removals.clone();
            assert!(removals.is_empty(), "seed {seed}: {removals:?}\n{}", world.trace());
        }
        world.stalls = None;
        world.pass(90_000);
        let registered = world.server.registered.clone().expect("it is registered");
        assert!(world.server.removals.is_empty(), "seed {seed}: {:?}", world.server.removals);
        assert_eq!(registered.version, world.broker.topics.version(), "seed {seed}");
        assert_eq!(registered.topics.len(), world.broker.topics.len(), "seed {seed}");
        assert_eq!(phase(&world), Phase::Registered, "seed {seed}");
    }
}

/// With servers that also restart, hang and forget, and roles that change: a second after the last fault is
/// over (but for a stall) or the next question, the server is complete.
#[test]
fn whatever_happened_a_server_that_runs_is_complete_soon_after() {
    for seed in 0..300 {
        let split = [None, Some(2)][usize::try_from(seed % 2).expect("small")];
        let mut world = World::new(Timing::default(), Form { split, ..Form::default() });
        world.server.version = if seed % 3 == 0 { 407 } else { 513 };
        world.chance = StdRng::seed_from_u64(seed);
        let mut choices = StdRng::seed_from_u64(seed + 1_000);
        for number in 0..30 {
            match choices.random_range(0..9) {
                0 => world.restart_server(),
                1 => world.server.down = true,
                2 => world.server.hung = true,
                3 => world.server.registered = None,
                4 => world.freeze(choices.random_range(0..200_000)),
                5 => world.server.refuses = (103, choices.random_range(0..5), 1),
                6 => {
                    world.broker.role =
                        [Role::Undecided, Role::Master, Role::Slave(1)][choices.random_range(0..3)];
                    world.broker.role_epoch += 1;
                }
                7 => world.broker.paused ^= true,
                _ => world.set(&format!("t{number}"), number),
            }
            world.pass(choices.random_range(0..20_000));
            if choices.random_bool(0.5) {
                world.server.down = false;
                world.wake_server();
            }
        }
        (world.server.down, world.broker.paused) = (false, false);
        world.wake_server();
        if world.broker.role == Role::Undecided {
            world.broker.role = Role::Master;
            world.broker.role_epoch += 1;
        }
        // The longest pause after refusals, the next question, and the trip.
        world.pass(11_100);
        let registered = world.server.registered.clone();
        let registered = registered.unwrap_or_else(|| panic!("seed {seed}:\n{}", world.trace()));
        assert_eq!(registered.version, world.broker.topics.version(), "seed {seed}");
        assert_eq!(registered.topics.len(), world.broker.topics.len(), "seed {seed}");
        assert_eq!(Some(registered.id), world.broker.role.id().map(|id| id.to_string()), "seed {seed}");
    }
}
