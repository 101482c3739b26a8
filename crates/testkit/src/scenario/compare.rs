//! Puts two traces of one scenario side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::differences::{Differences, Place};
use super::json::canonical;
use super::observe::EXCEPTION;
use super::trace::{Observation, Trace, remove_usual};

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Each difference that no file lists, and each listed one that looks otherwise, as a line of text.
    pub faults: Vec<String>,
    /// Which entries of the file occurred, by their position.
    pub occurred: BTreeSet<usize>,
    /// Which of the file's own configuration keys were shown.
    pub own_keys: BTreeSet<String>,
}

/// Compares what the reference server and another one answered to a scenario.
pub fn compare(scenario: &str, reference: &Trace, other: &Trace, listed: &Differences) -> Comparison {
    let mut comparison = Comparison::default();
    let mut occurrences: BTreeMap<&str, usize> = BTreeMap::new();
    let one_did_not_start = [reference, other].iter().any(|trace| trace.did_not_start());
    if !one_did_not_start && reference.observations.len() != other.observations.len() {
        comparison.faults.push(format!(
            "{scenario}: {} observations against {}",
            reference.observations.len(),
            other.observations.len()
        ));
    }
    for (left, right) in reference.observations.iter().zip(&other.observations) {
        let occurrence = occurrences.entry(&left.step).or_default();
        *occurrence += 1;
        if left.step != right.step {
            comparison.faults.push(format!("{scenario}: step `{}` against `{}`", left.step, right.step));
            return comparison;
        }
        let place = Place { scenario, step: &left.step, occurrence: *occurrence };
        compare_step(&place, left, right, listed, &mut comparison);
    }
    comparison
}

fn compare_step(
    place: &Place<'_>,
    left: &Observation,
    right: &Observation,
    listed: &Differences,
    out: &mut Comparison,
) {
    let (mut left, mut right) = (left.seen.clone(), right.seen.clone());
    level(&mut left, &mut right);
    own_keys(&left, &mut right, listed, out);
    for (at, difference) in listed.at(place) {
        let places = difference.places();
        let shown = |(path, java, waypost): &(String, Option<&Value>, Option<&Value>)| {
            lookup(&left, path) == *java && lookup(&right, path) == *waypost
        };
        let as_listed = places.iter().all(shown);
        let differs = places.iter().any(|(path, ..)| lookup(&left, path) != lookup(&right, path));
        if !differs || (!as_listed && difference.is_general()) {
            continue; // a listed difference that occurs nowhere is found in the end
        }
        out.occurred.insert(at);
        for (path, ..) in places {
            let (java, waypost) = (remove(&mut left, &path), remove(&mut right, &path));
            if !as_listed {
                let (java, waypost) = (show(java.as_ref()), show(waypost.as_ref()));
                out.faults.push(format!(
                    "{place}: {path} is listed otherwise\n      Java:    {java}\n      Waypost: {waypost}"
                ));
            }
        }
    }
    let mut found = Vec::new();
    differ("", Some(&left), Some(&right), &mut found);
    for (path, left, right) in found {
        out.faults.push(format!("{place}: {path}\n      Java:    {left}\n      Waypost: {right}"));
    }
}

/// Takes away the lines of a 319 that only Waypost has and that the file lists.
fn own_keys(left: &Value, right: &mut Value, listed: &Differences, out: &mut Comparison) {
    let Some(java) = lookup(left, "body.lines").and_then(Value::as_object) else { return };
    let Some(lines) = right.pointer_mut("/body/lines").and_then(Value::as_object_mut) else { return };
    for key in listed.own_keys() {
        if !java.contains_key(key) && lines.remove(key).is_some() {
            out.own_keys.insert(key.clone());
        }
    }
}

/// Takes away what counts as equal: all but the code where Java answers with the text of an exception;
/// an empty ext map against none where the header forms differ (the binary form knows no empty map); the
/// usual members of an answer where the other server gave none.
fn level(left: &mut Value, right: &mut Value) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if text(left, "remark").as_deref() == Some(EXCEPTION) && left.get("code") == right.get("code") {
        for value in [&mut *left, &mut *right] {
            remove(value, "remark");
            remove(value, "ext");
        }
    }
    if text(left, "form") != text(right, "form") {
        for value in [&mut *left, &mut *right] {
            if value.get("ext").and_then(Value::as_object).is_some_and(Map::is_empty) {
                remove(value, "ext");
            }
        }
    }
    if left.get("code").is_some() != right.get("code").is_some() {
        remove_usual(left);
        remove_usual(right);
    }
}

fn differ(
    path: &str,
    left: Option<&Value>,
    right: Option<&Value>,
    found: &mut Vec<(String, String, String)>,
) {
    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let inner =
                    if path.is_empty() { step_name(key) } else { format!("{path}.{}", step_name(key)) };
                differ(&inner, left.get(key), right.get(key), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push((path.to_owned(), show(left), show(right))),
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), canonical)
}

/// A member's name as it stands in a path: in brackets if it has a dot itself.
fn step_name(key: &str) -> String {
    if key.contains(['.', '[', ']']) || key.is_empty() { format!("[{key}]") } else { key.to_owned() }
}

fn path_steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((step, after)) => (step, after),
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        steps.push(step);
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}

fn lookup<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path_steps(path).into_iter().try_fold(value, |value, step| value.get(step))
}

fn remove(value: &mut Value, path: &str) -> Option<Value> {
    let steps = path_steps(path);
    let (last, before) = steps.split_last()?;
    let parent = before.iter().try_fold(value, |value, step| value.get_mut(*step))?;
    parent.as_object_mut()?.remove(*last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trace(seen: Value) -> Trace {
        Trace { observations: vec![Observation { step: "a: 106".to_owned(), seen }] }
    }

    fn listed(java: &str, waypost: &str) -> Differences {
        let text = format!(
            "[[difference]]\nscenario = \"x\"\nstep = \"a: 106\"\npath = \"body.t.[a.b]\"\n\
             java = '{java}'\nwaypost = '{waypost}'\nwhy = \"D5\"\n"
        );
        Differences::parse("differences.toml", &text).unwrap()
    }

    #[test]
    fn equal_traces_have_no_faults() {
        let both = trace(json!({"code": 0}));
        assert!(compare("x", &both, &both, &Differences::default()).faults.is_empty());
    }

    #[test]
    fn an_unlisted_difference_is_a_fault_with_its_path() {
        let (left, right) = (trace(json!({"body": {"a": 1}})), trace(json!({"body": {"a": 2}})));
        let faults = compare("x", &left, &right, &Differences::default()).faults;
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("body.a"), "{faults:?}");
    }

    #[test]
    fn a_listed_difference_occurs_and_is_let_through() {
        let (left, right) = (trace(json!({"body": {"t": {"a.b": {}}}})), trace(json!({"body": {"t": {}}})));
        let comparison = compare("x", &left, &right, &listed("{}", "absent"));
        assert_eq!((comparison.faults.len(), comparison.occurred.len()), (0, 1));
    }

    #[test]
    fn a_listed_difference_that_looks_otherwise_is_a_fault() {
        let (left, right) = (trace(json!({"body": {"t": {"a.b": 1}}})), trace(json!({"body": {"t": {}}})));
        assert_eq!(compare("x", &left, &right, &listed("{}", "absent")).faults.len(), 1);
    }

    #[test]
    fn a_listed_difference_that_does_not_occur_stays_unmarked() {
        let both = trace(json!({"body": {"t": {}}}));
        assert!(compare("x", &both, &both, &listed("{}", "absent")).occurred.is_empty());
    }

    #[test]
    fn texts_of_exceptions_do_not_count() {
        let left = trace(json!({"code": 1, "remark": EXCEPTION}));
        let right = trace(json!({"code": 1, "remark": "brokerId is missing"}));
        assert!(compare("x", &left, &right, &Differences::default()).faults.is_empty());
        let right = trace(json!({"code": 0}));
        assert_eq!(compare("x", &left, &right, &Differences::default()).faults.len(), 2);
    }
}
