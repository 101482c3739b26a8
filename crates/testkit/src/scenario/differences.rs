//! The one file that lists every intended difference.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::ScenarioError;

/// The listed differences.
#[derive(Debug, Default)]
pub struct Differences {
    entries: Vec<Difference>,
    own_keys: Vec<String>,
}

/// One intended difference.
#[derive(Debug)]
pub struct Difference {
    /// The scenario's name; `*`: any.
    pub scenario: String,
    /// The step's line as it stands in the scenario; `*`: any.
    pub step: String,
    /// Which of several equal lines, from 1; `None`: each.
    pub occurrence: Option<usize>,
    /// Where in the observation: member names joined by dots; `[...]` around a name with a dot. Without
    /// a path the two values are objects with the members of the observation that differ.
    pub path: Option<String>,
    /// What the Java NameServer shows there; `None`: nothing.
    pub java: Option<Value>,
    /// What Waypost shows there; `None`: nothing.
    pub waypost: Option<Value>,
    /// The decision or D number that wants it.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    own_configuration_keys: Vec<String>,
    #[serde(default)]
    difference: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    scenario: String,
    step: String,
    occurrence: Option<usize>,
    path: Option<String>,
    java: String,
    waypost: String,
    why: String,
}

/// Where an observation stands.
pub(super) struct Place<'a> {
    pub(super) scenario: &'a str,
    pub(super) step: &'a str,
    pub(super) occurrence: usize,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: `{}` ({})", self.scenario, self.step, self.occurrence)
    }
}

impl Differences {
    /// Reads the list. `file` is for the message.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`] if it is no TOML, has unknown members, a value that is neither JSON nor
    /// `absent`, or an entry that cites nothing.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let fault = |reason: String| ScenarioError::File { file: file.to_owned(), reason };
        let read: File = toml::from_str(text).map_err(|error| fault(error.to_string()))?;
        let entries = read
            .difference
            .into_iter()
            .map(|entry| {
                if !cites(&entry.why) {
                    return Err(fault(format!("`{}` cites no decision and no D number", entry.why)));
                }
                let value = |text: &str| match text {
                    "absent" => Ok(None),
                    json => serde_json::from_str(json)
                        .map(Some)
                        .map_err(|error| fault(format!("`{json}` is no JSON: {error}"))),
                };
                Ok(Difference {
                    java: value(&entry.java)?,
                    waypost: value(&entry.waypost)?,
                    scenario: entry.scenario,
                    step: entry.step,
                    occurrence: entry.occurrence,
                    path: entry.path,
                    why: entry.why,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { entries, own_keys: read.own_configuration_keys })
    }

    /// Configuration keys that 319 of Waypost shows and that of Java does not know.
    pub fn own_keys(&self) -> &[String] {
        &self.own_keys
    }

    /// All entries, in the order of the file.
    pub fn entries(&self) -> &[Difference] {
        &self.entries
    }

    pub(super) fn at<'a>(&'a self, place: &'a Place<'_>) -> impl Iterator<Item = (usize, &'a Difference)> {
        self.entries.iter().enumerate().filter(|(_, entry)| {
            (entry.scenario == "*" || entry.scenario == place.scenario)
                && (entry.step == "*" || entry.step == place.step)
                && entry.occurrence.is_none_or(|occurrence| occurrence == place.occurrence)
        })
    }
}

impl Difference {
    /// Whether the entry speaks of many places: there it need not occur at each.
    pub(super) fn is_general(&self) -> bool {
        self.scenario == "*" || self.step == "*"
    }

    /// The places that the entry speaks of, each with what either server shows there.
    pub(super) fn places<'a>(&'a self) -> Vec<(String, Option<&'a Value>, Option<&'a Value>)> {
        if let Some(path) = &self.path {
            return vec![(path.clone(), self.java.as_ref(), self.waypost.as_ref())];
        }
        let members =
            |side: &Option<Value>| side.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let keys: BTreeSet<String> =
            members(&self.java).into_iter().chain(members(&self.waypost)).map(|(key, _)| key).collect();
        keys.into_iter()
            .map(|key| {
                let at = |side: &'a Option<Value>| side.as_ref().and_then(|value| value.get(&key));
                let (java, waypost) = (at(&self.java), at(&self.waypost));
                (key, java, waypost)
            })
            .collect()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.as_deref().unwrap_or("members");
        write!(f, "{}: `{}`: {path} ({})", self.scenario, self.step, self.why)
    }
}

/// Whether a reason names a decision (`decision 9`), a section of the specification (`section 11`), a
/// defect of the original (`D5`), or a report from the field (`A18`, `S3`).
fn cites(why: &str) -> bool {
    let words: Vec<&str> = why.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').collect();
    let number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let numbered = |word: &&str| {
        let digits = word.strip_prefix(['A', 'D', 'S']);
        digits.is_some_and(|digits| digits.parse::<u8>().is_ok())
    };
    words.windows(2).any(|pair| matches!(pair[0], "decision" | "section") && number(pair[1]))
        || words.iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_must_cite() {
        assert!(cites("decision 9: leaves nothing behind") && cites("D5") && cites("remoting section 6"));
        assert!(!cites("because it is better") && !cites("D"));
    }

    #[test]
    fn a_list_with_a_mistake_is_refused() {
        let entry = |java: &str, why: &str| {
            format!(
                "[[difference]]\nscenario='x'\nstep='s'\npath='p'\njava='{java}'\nwaypost='absent'\nwhy='{why}'"
            )
        };
        assert!(Differences::parse("f", &entry("1", "D5")).is_ok());
        assert!(Differences::parse("f", &entry("{", "D5")).is_err());
        assert!(Differences::parse("f", &entry("1", "so")).is_err());
        assert!(Differences::parse("f", "[[other]]").is_err());
    }
}
