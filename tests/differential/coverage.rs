//! What the scenarios have to cover, and what of it cannot be seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use waypost_testkit::scenario::Scenario;

/// The sections of the NameServer's specification by number (`1.` and a code for the requests), its
/// quirks to keep (K), its defects (D); R and a section for the specification of the transport.
const REQUIRED: &str = "
    1.100 1.101 1.102 1.103 1.104 1.105 1.106 1.205 1.206 1.216 1.217 1.219 1.224 1.304 1.311 1.312 1.313
    1.318 1.319 1.322 1.327 1.901 1.904 1.905 1.999
    2.1 2.2 2.3
    2.4.1 2.4.2 2.4.3 2.4.4 2.4.5 2.4.6 2.4.7 2.4.8 2.4.9 2.4.10 2.4.11 2.4.12 2.4.13 2.4.14 2.4.15 2.4.16
    2.5 2.6 2.7 2.8
    2.9.1 2.9.2 2.9.3 2.9.4 2.9.5 2.9.6 2.9.7 2.9.8
    2.10.1 2.10.2 2.10.3 2.10.4 2.10.5
    2.11 2.12 2.13 2.14 2.15 3.1 3.3 3.5 4.4 8.2 8.3
    K1 K2 K3 K4 K5 K6 K7 K8 K9 K10 K11 K12 K13 K14 K15 K16 K17 K18 K19 K20 K21 K22
    D1 D2 D3 D4 D5 D6 D7 D8 D9 D10 D11 D12 D13 D14 D15 D16 D17 D18 D19 D20 D21 D22 D23 D24 D25 D26 D27
    10.1 10.2 10.3 10.4 10.5 10.6 10.7 10.8 10.9 10.10 10.11 10.12 10.13 10.14 10.15 10.16 10.17 10.18
    10.19 10.20 10.21 10.22 10.23 10.24 10.25 10.26
    11 R2.2 R7 R12 R21
    N1 N2 N3 N4 N5 N6 N7 N8
";

/// What no scenario shows, and why.
const NOT_SHOWN: [(&str, &str); 9] = [
    ("2.4.12", "only a line in the log"),
    ("D3", "a race inside the Java server; the registry's own tests run it on every interleaving"),
    ("D7", "a race inside the Java server; readers of Waypost see whole snapshots"),
    ("D17", "the backlog of a listening socket does not show in any answer"),
    ("D18", "Java's cluster-test mode asks an address server outside this machine; Waypost refuses the key"),
    ("D19", "scenarios come from loopback, where everything is allowed"),
    ("D21", "a matter of cost"),
    ("D23", "metrics are on another port and Java has none"),
    ("10.26", "mqadmin is run by the interop tests"),
];

/// Numbers that are not covered, numbers that nobody knows, and exceptions that are none.
pub(crate) fn faults(scenarios: &[Scenario]) -> Vec<String> {
    let required: BTreeSet<&str> = REQUIRED.split_whitespace().collect();
    let mut covered: BTreeMap<String, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for scenario in scenarios {
        let own = scenario.name.split('-').next().unwrap_or_default();
        for number in std::iter::once(own).chain(scenario.covers.iter().map(String::as_str)) {
            let number = plain(number);
            if required.contains(number.as_str()) {
                *covered.entry(number).or_default() += 1;
            } else {
                faults.push(format!("{}: `{number}` is no number of the specification", scenario.name));
            }
        }
    }
    for number in required {
        let reason = NOT_SHOWN.iter().find(|(exception, _)| *exception == number);
        match (covered.get(number), reason) {
            (None, None) => faults.push(format!("no scenario covers {number}")),
            (Some(_), Some((_, reason))) => {
                faults.push(format!("{number} is covered, yet excused: {reason}"))
            }
            _ => {}
        }
    }
    faults
}

/// `2.4.06` is 2.4.6, `D05` is D5, `2.4.10a` is 2.4.10.
fn plain(number: &str) -> String {
    let (letter, digits) = number.split_at(number.find(|c: char| c.is_ascii_digit()).unwrap_or(0));
    let parts: Vec<&str> = digits
        .split('.')
        .map(|part| part.trim_end_matches(|c: char| c.is_ascii_lowercase()))
        .map(|part| if part.len() > 1 { part.trim_start_matches('0') } else { part })
        .collect();
    format!("{letter}{}", parts.join("."))
}
