//! Waypost against the Java NameServer 5.5.0, scenario by scenario.
//!
//! Each `scenarios/NAME.scenario` says what is done to a server, `scenarios/NAME.trace` beside it what
//! the Java NameServer was seen to do, and `differences.toml` every intended difference. Three things
//! are tested: that the recordings are true (the Java NameServer is played to again), that Waypost does
//! the same but for the listed differences, and that the scenarios cover the specification. `README.md`
//! has the format and the switches.
#![allow(clippy::disallowed_methods)] // real servers, the real clock

mod coverage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use waypost_testkit::peers::{Version, Workshop, tools_present};
use waypost_testkit::scenario::{
    Differences, JavaHost, Scenario, ScenarioError, Trace, WaypostServer, compare, play,
};

/// How many scenarios are played at a time: most of them wait most of the time.
const LANES: usize = 4;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/differential")
}

/// Where the scenarios lie: in the folder that `SCENARIOS` names, for scenarios of others, or here.
fn shelf() -> PathBuf {
    std::env::var_os("SCENARIOS").map_or_else(|| folder().join("scenarios"), PathBuf::from)
}

/// Whether all scenarios of the project are played, and nothing else.
fn is_complete() -> bool {
    std::env::var_os("SCENARIO").is_none() && std::env::var_os("SCENARIOS").is_none()
}

fn recording_of(scenario: &Scenario) -> PathBuf {
    shelf().join(format!("{}.trace", scenario.name))
}

/// The scenarios whose names begin with `SCENARIO`, or all.
fn scenarios() -> Vec<Scenario> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let mut files: Vec<PathBuf> = fs::read_dir(shelf())
        .expect("the folder of scenarios")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "scenario"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8");
            let text = fs::read_to_string(path).expect("a readable scenario");
            Scenario::parse(name, &text).unwrap_or_else(|error| panic!("{error}"))
        })
        .filter(|scenario| scenario.name.starts_with(&wanted))
        .collect()
}

fn differences() -> Differences {
    let text = fs::read_to_string(folder().join("differences.toml")).expect("the list of differences");
    Differences::parse("differences.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Does `work` for every scenario, several at a time, and gathers what it found.
fn for_each<T: Send>(scenarios: &[Scenario], work: impl Fn(&Scenario) -> T + Sync) -> Vec<T> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(scenario);
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Whether single scenarios were asked for: then their traces are printed.
fn is_asked_for() -> bool {
    std::env::var_os("SCENARIO").is_some()
}

/// The JVM that most scenarios share; a new one every now and then, for stopped servers leave things behind.
struct Hosts<'a> {
    jars: &'a Path,
    current: Mutex<(JavaHost, usize)>,
}

/// How many servers one JVM runs before the next takes over.
const SERVERS_PER_JVM: usize = 50;

impl<'a> Hosts<'a> {
    fn start(jars: &'a Path) -> Result<Self, ScenarioError> {
        Ok(Self { jars, current: Mutex::new((JavaHost::start(jars)?, 0)) })
    }

    fn host_for(&self, scenario: &Scenario) -> Result<JavaHost, ScenarioError> {
        if scenario.own_jvm {
            return JavaHost::start_as_shipped(self.jars);
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.1 >= SERVERS_PER_JVM {
            *current = (JavaHost::start(self.jars)?, 0);
        }
        current.1 += 1;
        Ok(current.0.clone())
    }

    /// Has the next scenario start in a new JVM: this one does not start servers any more.
    fn give_up(&self) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).1 = SERVERS_PER_JVM;
    }
}

fn play_java(scenario: &Scenario, hosts: &Hosts<'_>) -> Result<Trace, ScenarioError> {
    match hosts.host_for(scenario)?.serve(scenario) {
        Ok(mut server) => play(scenario, &mut server, true),
        Err(ScenarioError::Refused { .. }) if scenario.may_not_start => Ok(Trace::of_no_start()),
        Err(error) => {
            println!("another JVM after {error}");
            hosts.give_up();
            play(scenario, &mut hosts.host_for(scenario)?.serve(scenario)?, true)
        }
    }
}

fn play_waypost(scenario: &Scenario) -> Result<Trace, ScenarioError> {
    let own = [("adminListen".to_owned(), "off".to_owned())];
    match WaypostServer::serve(Path::new(env!("CARGO_BIN_EXE_waypost")), scenario, &own) {
        Ok(mut server) => play(scenario, &mut server, false),
        Err(ScenarioError::Refused { .. }) if scenario.may_not_start => Ok(Trace::of_no_start()),
        Err(error) => Err(error),
    }
}

#[test]
fn the_java_name_server_does_what_is_recorded() {
    if !tools_present(
        "the recorded answers of the Java NameServer are not checked",
        &["java", "javac", "mvn"],
    ) {
        return;
    }
    let jars =
        Workshop::open().and_then(|workshop| workshop.jars(Version::V5)).expect("the jars of RocketMQ 5.5.0");
    let hosts = Hosts::start(&jars).expect("a JVM");
    let record = std::env::var_os("RECORD").is_some();
    let scenarios = scenarios();
    let faults: Vec<String> = for_each(&scenarios, |scenario| {
        let seen = match play_java(scenario, &hosts) {
            Ok(trace) => trace,
            Err(error) => return Some(format!("{}: {error}", scenario.name)),
        };
        let text = format!(
            "# Java NameServer 5.5.0; what every answer has is left out (README.md)\n{}",
            seen.to_text()
        );
        if is_asked_for() {
            println!("== Java: {}\n{text}", scenario.name);
        }
        if record {
            fs::write(recording_of(scenario), text).expect("a writable recording");
            return None;
        }
        let recorded = fs::read_to_string(recording_of(scenario)).unwrap_or_default();
        (recorded != text).then(|| {
            format!("{}: the recording differs{}", scenario.name, first_difference(&recorded, &text))
        })
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(faults.is_empty(), "{} of {} scenarios:\n{}", faults.len(), scenarios.len(), faults.join("\n"));
}

fn first_difference(recorded: &str, seen: &str) -> String {
    let (mut recorded, mut seen) = (recorded.lines(), seen.lines());
    loop {
        match (recorded.next(), seen.next()) {
            (left, right) if left == right && left.is_some() => {}
            (None, None) => return String::new(),
            (left, right) => {
                return format!(
                    "\n  recorded: {}\n  seen:     {}",
                    left.unwrap_or("-"),
                    right.unwrap_or("-")
                );
            }
        }
    }
}

#[test]
fn waypost_does_the_same_but_for_the_listed_differences() {
    let listed = differences();
    let scenarios = scenarios();
    let (mut faults, mut occurred, mut own_keys) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for comparison in for_each(&scenarios, |scenario| {
        let text = fs::read_to_string(recording_of(scenario))
            .map_err(|error| format!("{}: {error}", scenario.name))?;
        let reference = Trace::parse(&scenario.name, &text).map_err(|error| error.to_string())?;
        let seen = play_waypost(scenario).map_err(|error| format!("{}: {error}", scenario.name))?;
        if is_asked_for() {
            println!("== Waypost: {}\n{}", scenario.name, seen.to_text());
        }
        Ok(compare(&scenario.name, &reference, &seen, &listed))
    }) {
        match comparison {
            Ok(comparison) => {
                faults.extend(comparison.faults);
                occurred.extend(comparison.occurred);
                own_keys.extend(comparison.own_keys);
            }
            Err(fault) => faults.push(fault),
        }
    }
    let played = |name: &str| name == "*" || scenarios.iter().any(|scenario| scenario.name == name);
    for (at, difference) in listed.entries().iter().enumerate() {
        if !occurred.contains(&at)
            && (is_complete() || (difference.scenario != "*" && played(&difference.scenario)))
        {
            faults.push(format!("listed, but it does not occur: {difference}"));
        }
    }
    if is_complete() {
        let unseen = listed.own_keys().iter().filter(|key| !own_keys.contains(*key));
        faults.extend(
            unseen.map(|key| format!("own_configuration_keys has `{key}`, but 319 does not show it")),
        );
    }
    faults.sort();
    assert!(
        faults.is_empty(),
        "{} differences in {} scenarios:\n{}",
        faults.len(),
        scenarios.len(),
        faults.join("\n")
    );
}

#[test]
fn the_scenarios_cover_the_specification() {
    if !is_complete() {
        return;
    }
    let faults = coverage::faults(&scenarios());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
