//! `bench`.

use crate::harness::{DeadPort, Server, ask};

/// Latencies of a JSON row: ascending, and there are some.
fn assert_percentiles(latency: &serde_json::Value) {
    assert!(latency["count"].as_u64().is_some_and(|count| count > 0), "{latency}");
    let names = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"];
    let values: Vec<f64> = names.iter().map(|name| latency[name].as_f64().expect("a number")).collect();
    assert!(values[0] > 0.0 && values.is_sorted(), "{latency}");
}

#[test]
fn lookups_have_percentiles_for_people_and_programs() {
    let server = Server::start(&[]);
    let _broker = server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"]);
    let told = server.ask("bench lookup --for 1s");
    assert_eq!((told.code, told.err.as_str()), (0, ""), "no bar where there is no terminal");
    let titles: Vec<&str> = told.out.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(titles[5..], ["P50", "P90", "P99", "P99.9", "MAX"], "{}", told.out);
    assert!(told.out.contains(&server.address.to_string()), "{}", told.out);

    let dead = DeadPort::new();
    let list = format!("{};{}", server.address, dead.address());
    let partial = ask(&format!("bench lookup --for 1s --depth 4 -n {list} -o json"));
    assert_eq!(partial.code, 4, "one answered, one did not: {}", partial.err);
    let json: serde_json::Value = serde_json::from_str(&partial.out).expect("JSON");
    let row = &json["servers"][0];
    assert_eq!((&row["wrong"], &row["topics"]), (&0.into(), &2.into()), "{row}");
    assert!(row["answers"].as_u64().is_some_and(|answers| answers > 0), "{row}");
    assert_percentiles(&row["latency"]);
}

#[test]
fn lookups_of_a_topic_that_does_not_exist_are_told_as_wrong() {
    let server = Server::start(&[]);
    let told = server.ask("bench lookup --topic absent --for 1s -o json");
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("answers were no success"), "{}", told.err);
    let nothing = server.ask("bench lookup");
    assert_eq!(nothing.code, 1);
    assert!(nothing.sentence().contains("has no topics to ask for"), "{}", nothing.err);
}

#[test]
fn registrations_have_percentiles_and_leave_nothing_behind() {
    let server = Server::start(&[]);
    let json = server.ask("bench register --topics 50 --rounds 20 -o json").json();
    let rows = json["servers"].as_array().expect("a list");
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["registration"].as_str()).collect();
    assert_eq!(kinds, ["first", "unchanged", "one topic changed"]);
    rows.iter().for_each(|row| assert_percentiles(&row["latency"]));
    assert!(server.ask("topics").out.is_empty());
    assert_eq!(server.ask("brokers -o json").json()["brokers"], serde_json::json!([]));
}

#[test]
fn a_server_that_is_away_ends_with_3() {
    let dead = DeadPort::new();
    for load in ["lookup", "register"] {
        let told = ask(&format!("bench {load} -n {}", dead.address()));
        assert_eq!((told.code, told.out.as_str()), (3, ""), "{load}");
        told.sentence();
    }
}
