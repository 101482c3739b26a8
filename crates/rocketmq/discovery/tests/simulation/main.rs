//! Many clients, three servers, random faults, in invented time.
//!
//! Each seed plays two and a half minutes: for ninety seconds servers hang, refuse, vanish, slow down, answer
//! busy or nonsense, restart empty, or hear of no changes, while topics change and callers look up; then all is
//! well. What must hold:
//!
//! 1. no call ends after its deadline;
//! 2. no subscriber sees older content after newer;
//! 3. every client knows the newest content of every topic 35 s after the last fault;
//! 4. of a herd of a hundred fresh clients no server gets more than twice its share.
//!
//! `SEEDS=from..to` plays others than the thousand that are played by default.
#![allow(clippy::disallowed_methods, reason = "a test reads its environment, not the clock")]

mod client;
mod server;
mod world;

use world::{Outcome, World};

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..1000".to_owned());
    let (from, to) = text.split_once("..").expect("SEEDS is from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn clients_keep_their_promises_under_random_faults() {
    let mut herd = Vec::new();
    let (mut calls, mut changes) = (0, 0);
    for seed in seeds() {
        let outcome: Outcome = World::new(seed).play();
        assert!(outcome.broken.is_empty(), "seed {seed}:\n{}", outcome.broken.join("\n"));
        calls += outcome.calls;
        changes += outcome.changes_seen;
        herd.push(outcome.first_asked);
    }
    for clients in herd.chunks(5).filter(|chunk| chunk.len() == 5) {
        let asked = |server: usize| clients.iter().map(|counts| counts[server]).sum::<usize>();
        let total: usize = (0..world::SERVERS).map(asked).sum();
        for server in 0..world::SERVERS {
            assert!(
                asked(server) * world::SERVERS <= 2 * total,
                "server {server} got {} of {total}",
                asked(server)
            );
        }
    }
    println!("{} seeds, {calls} calls, {changes} changes seen by subscribers", seeds().count());
    assert!(calls > 0 && changes > 0, "nothing was played");
}
