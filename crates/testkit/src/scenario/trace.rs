//! What a server was seen to do, as data and as text.

use serde_json::{Map, Value};

use super::ScenarioError;
use super::json::canonical;

/// One observation: a step of the scenario and what it showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The scenario's line, as it stands in the file.
    pub step: String,
    /// What was seen, in canonical form: `event`, or the members of an answer.
    pub seen: Value,
}

/// All observations of one play, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// The observations.
    pub observations: Vec<Observation>,
}

impl Trace {
    /// The trace of a scenario whose server refused to start.
    pub fn of_no_start() -> Self {
        let seen = serde_json::json!({"event": "did not start"});
        Self { observations: vec![Observation { step: START.to_owned(), seen }] }
    }

    pub(super) fn did_not_start(&self) -> bool {
        *self == Self::of_no_start()
    }

    /// The trace as text: each step in a line, each member of what it showed in an indented one. Members
    /// of an answer that are as usual are left out: flag 1, a JSON header, language `JAVA`, version 513,
    /// the caller's opaque.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for observation in &self.observations {
            text.push_str(&observation.step);
            text.push('\n');
            for (key, value) in observation.seen.as_object().into_iter().flatten() {
                if usual(key).as_ref() != Some(value) {
                    text.push_str(&format!("    {key}: {}\n", canonical(value)));
                }
            }
        }
        text
    }

    /// Reads what [`Trace::to_text`] wrote; lines that begin with `#` are comments. `file` is for the message.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`] names the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut trace = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |reason: &str| ScenarioError::File {
                file: file.to_owned(),
                reason: format!("line {}: {reason}", at + 1),
            };
            let Some(member) = line.strip_prefix("    ") else {
                trace
                    .observations
                    .push(Observation { step: line.to_owned(), seen: Value::Object(Map::new()) });
                continue;
            };
            let (key, value) = member.split_once(": ").ok_or_else(|| fault("no `key: value`"))?;
            let value = serde_json::from_str(value).map_err(|error| fault(&error.to_string()))?;
            let seen = trace.observations.last_mut().and_then(|observation| observation.seen.as_object_mut());
            seen.ok_or_else(|| fault("a member before any step"))?.insert(key.to_owned(), value);
        }
        let answers =
            trace.observations.iter_mut().filter_map(|observation| observation.seen.as_object_mut());
        for answer in answers.filter(|members| members.contains_key("code")) {
            for key in ["flag", "form", "language", "opaque", "version"] {
                if let Some(value) = usual(key).filter(|_| !answer.contains_key(key)) {
                    answer.insert(key.to_owned(), value);
                }
            }
        }
        Ok(trace)
    }
}

/// Takes the members away that are as usual.
pub(super) fn remove_usual(answer: &mut Value) {
    if let Some(members) = answer.as_object_mut() {
        members.retain(|key, value| usual(key).as_ref() != Some(value));
    }
}

/// The step of the first observation of a scenario that may not start.
pub(super) const START: &str = "start";

fn usual(key: &str) -> Option<Value> {
    Some(match key {
        "flag" => 1.into(),
        "form" => "JSON".into(),
        "language" => "JAVA".into(),
        "opaque" => "echoed".into(),
        "version" => 513.into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_and_data_are_the_same_trace() {
        let trace = Trace {
            observations: vec![
                Observation {
                    step: "a: 105 topic=T".to_owned(),
                    seen: json!({
                        "code": 17, "flag": 1, "form": "JSON", "language": "JAVA", "opaque": "another",
                        "remark": "x: y\nz", "version": 513,
                    }),
                },
                Observation { step: "a: closed".to_owned(), seen: json!({"event": "closed"}) },
            ],
        };
        assert_eq!(Trace::parse("x", &trace.to_text()).unwrap(), trace);
    }

    #[test]
    fn a_broken_recording_names_its_line() {
        let error = Trace::parse("x.trace", "a: 105\n    code 17").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
