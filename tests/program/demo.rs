//! `demo`: it shows what it says, and ends by itself.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{DEADLINE, Ongoing};

/// The fast demo takes eleven seconds; the rest is for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The parts must be in the text, in this order.
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        rest =
            rest.split_once(part).unwrap_or_else(|| panic!("\"{part}\" is not where it belongs:\n{text}")).1;
    }
}

#[test]
fn the_demo_shows_brokers_that_come_go_and_fail_and_ends_by_itself() {
    let mut demo = Ongoing::start("demo --fast");
    let status = demo.wait(PATIENCE);
    let out = demo.out();
    assert_eq!((status.code(), demo.err().as_str()), (Some(0), ""), "{out}");
    assert_in_order(&out, &["broker-c.\n", "client: orders is on broker-c"]);
    assert_in_order(
        &out,
        &[
            "broker-b hangs",
            "broker-b did not answer within 300ms; the same message went to",
            "orders is not on broker-b any more",
            "broker-b goes on",
            "orders is on broker-b",
        ],
    );
    assert_in_order(&out, &["broker-c is killed", "orders is not on broker-c any more"]);
    assert_in_order(
        &out,
        &["broker-a is to be maintained", "orders is not on broker-a any more", "The end."],
    );
    assert!(out.contains("; 0 failed, "), "no message may be lost: {out}");
}

#[test]
fn ctrl_c_ends_the_demo_at_once() {
    let mut demo = Ongoing::start("demo");
    demo.wait_for("A client starts");
    demo.send(Signal::INT);
    // By itself it would go on for a minute.
    let status = demo.wait(DEADLINE);
    assert_eq!(status.code(), Some(0), "{}{}", demo.out(), demo.err());
}
