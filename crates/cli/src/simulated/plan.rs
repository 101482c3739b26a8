//! The file that describes simulated brokers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thiserror::Error;
use waypost_net::address::{Host, HostPort};
use waypost_rocketmq_registrar::Topic;

use super::fault::{Fault, FaultKind};
use crate::arguments::parse_span;
use crate::nearest::distance;

/// The period of registrations is held between these (C1).
const PERIODS: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(60);
/// The shortest time between two heartbeats, and between two turns of a flapping broker.
const SHORTEST: Duration = Duration::from_millis(100);

/// One simulated broker, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct BrokerPlan {
    /// Its cluster.
    pub cluster: String,
    /// Its broker group.
    pub name: String,
    /// Its id: 0 for the master.
    pub id: u64,
    /// Where it listens and what it announces; port 0 for a free one.
    pub address: HostPort,
    /// Its topics.
    pub topics: Vec<Topic>,
    /// From one registration to the next, 10 to 60 s.
    pub period: Duration,
    /// From one heartbeat to the next, as brokers with acting masters send them; none without.
    pub heartbeat: Option<Duration>,
    /// How long servers keep it without a heartbeat, if it sends them.
    pub timeout: Duration,
    /// Announce an address of this machine only to servers on others, too.
    pub allow_unreachable: bool,
    /// What goes wrong with it.
    pub faults: Vec<Fault>,
}

impl Default for BrokerPlan {
    fn default() -> Self {
        Self {
            cluster: "DrillCluster".to_owned(),
            name: "broker-a".to_owned(),
            id: 0,
            address: HostPort { host: Host::Ip([127, 0, 0, 1].into()), port: 0 },
            topics: Vec::new(),
            period: Duration::from_secs(30),
            heartbeat: None,
            timeout: Duration::from_secs(10),
            allow_unreachable: false,
            faults: Vec::new(),
        }
    }
}

/// Why a file of brokers is no good.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Where, if that is one line.
        line: Option<usize>,
        /// What.
        problem: String,
    },
}

/// Reads and checks a file of brokers.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn read(path: &Path) -> Result<Vec<BrokerPlan>, PlanError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PlanError::Unreadable { path: path.to_owned(), source })?;
    parse(&text).map_err(|(line, problem)| PlanError::Wrong { path: path.to_owned(), line, problem })
}

type Problem = (Option<usize>, String);

fn parse(text: &str) -> Result<Vec<BrokerPlan>, Problem> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line =
            error.span().map(|span| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
        (line, in_our_words(error.message()))
    })?;
    if file.broker.is_empty() {
        return Err((None, "it has no broker; begin one with a line [[broker]]".to_owned()));
    }
    let mut taken = BTreeSet::new();
    let mut plans = Vec::new();
    for entry in file.broker {
        let name = entry.name.clone();
        let plan = entry.plan().map_err(|problem| (None, format!("broker {name}: {problem}")))?;
        if !taken.insert((plan.name.clone(), plan.id)) {
            let problem =
                format!("broker {name} is there twice with the id {}; give each another name or id", plan.id);
            return Err((None, problem));
        }
        plans.push(plan);
    }
    Ok(plans)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    broker: Vec<BrokerEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BrokerEntry {
    cluster: Option<String>,
    name: String,
    #[serde(default)]
    id: u64,
    address: Option<String>,
    topics: Vec<TopicEntry>,
    period: Option<Span>,
    heartbeat: Option<Span>,
    timeout: Option<Span>,
    #[serde(default)]
    allow_unreachable: bool,
    #[serde(default)]
    fault: Vec<FaultEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicEntry {
    name: String,
    #[serde(default = "eight")]
    queues: i32,
    #[serde(default = "read_write")]
    perm: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultEntry {
    at: Span,
    #[serde(rename = "for")]
    length: Span,
    kind: Kind,
    by: Option<Span>,
    every: Option<Span>,
    percent: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Pause,
    Silence,
    Slow,
    Flapping,
    Lossy,
}

/// A text such as `500ms` or `10s`.
#[derive(Clone, Copy)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // Faults may begin with the broker.
        if text == "0s" {
            return Ok(Self(Duration::ZERO));
        }
        parse_span(&text).map(Self).map_err(D::Error::custom)
    }
}

fn eight() -> i32 {
    8
}

fn read_write() -> String {
    "rw".to_owned()
}

impl BrokerEntry {
    fn plan(self) -> Result<BrokerPlan, String> {
        let usual = BrokerPlan::default();
        let names = [Some(&self.name), self.cluster.as_ref()].into_iter().flatten();
        names.chain(self.topics.iter().map(|topic| &topic.name)).try_for_each(check_name)?;
        if i64::try_from(self.id).is_err() {
            return Err(format!("the id {} is too large; choose one below 2^63", self.id));
        }
        let address = match &self.address {
            Some(text) => text.parse::<HostPort>().map_err(|error| error.to_string())?,
            None => usual.address,
        };
        let period = self.period.map_or(usual.period, |span| span.0);
        if !PERIODS.contains(&period) {
            return Err(format!("the period is {period:?}; brokers register every 10 to 60 s"));
        }
        let heartbeat = self.heartbeat.map(|span| span.0);
        let timeout = self.timeout.map_or(usual.timeout, |span| span.0);
        match heartbeat {
            None if self.timeout.is_some() => {
                return Err("timeout has no effect without heartbeat; set both or none".to_owned());
            }
            Some(beat) if beat < SHORTEST || timeout <= beat => {
                return Err(format!(
                    "the heartbeat is {beat:?} and the timeout {timeout:?}; a heartbeat takes at least {SHORTEST:?}, the \
                     timeout longer"
                ));
            }
            _ => {}
        }
        Ok(BrokerPlan {
            cluster: self.cluster.unwrap_or(usual.cluster),
            name: self.name,
            id: self.id,
            address,
            topics: self.topics.into_iter().map(TopicEntry::topic).collect::<Result<_, _>>()?,
            period,
            heartbeat,
            timeout,
            allow_unreachable: self.allow_unreachable,
            faults: self.fault.into_iter().map(FaultEntry::fault).collect::<Result<_, _>>()?,
        })
    }
}

fn check_name(name: &String) -> Result<(), String> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > 255 || name.contains(odd) {
        return Err(format!(
            "the name {name:?} is empty, longer than 255 bytes or has blanks; choose another"
        ));
    }
    Ok(())
}

impl TopicEntry {
    fn topic(self) -> Result<Topic, String> {
        let permission = match self.perm.as_str() {
            "rw" => 6,
            "r" => 4,
            "w" => 2,
            other => return Err(format!("topic {} has the perm \"{other}\"; write rw, r or w", self.name)),
        };
        if self.queues < 0 {
            return Err(format!("topic {} has {} queues; it takes 0 or more", self.name, self.queues));
        }
        Ok(Topic { permission, ..Topic::new(&self.name, self.queues) })
    }
}

impl FaultEntry {
    fn fault(self) -> Result<Fault, String> {
        let given =
            [("by", self.by.is_some()), ("every", self.every.is_some()), ("percent", self.percent.is_some())];
        let needed = match self.kind {
            Kind::Slow => Some("by"),
            Kind::Flapping => Some("every"),
            Kind::Lossy => Some("percent"),
            Kind::Pause | Kind::Silence => None,
        };
        if let Some((odd, _)) = given.iter().find(|(name, given)| *given && Some(*name) != needed) {
            return Err(format!(
                "a fault of this kind has no \"{odd}\"; slow has by, flapping every, lossy percent"
            ));
        }
        let missing = |example: &str| format!("a fault lacks how much; add for example {example}");
        let kind = match self.kind {
            Kind::Pause => FaultKind::Pause,
            Kind::Silence => FaultKind::Silence,
            Kind::Slow => FaultKind::Slow(self.by.ok_or_else(|| missing("by = \"500ms\""))?.0),
            Kind::Flapping => match self.every.ok_or_else(|| missing("every = \"2s\""))?.0 {
                every if every < SHORTEST => return Err(format!("flapping takes at least {SHORTEST:?}")),
                every => FaultKind::Flapping(every),
            },
            Kind::Lossy => match self.percent.ok_or_else(|| missing("percent = 20"))? {
                percent if (0.0..=100.0).contains(&percent) => FaultKind::Lossy(percent / 100.0),
                percent => return Err(format!("lossy takes 0 to 100 percent, not {percent}")),
            },
        };
        Ok(Fault { at: self.at.0, length: self.length.0, kind })
    }
}

/// An unknown key with the one that may be meant; everything else as the reader of TOML says it.
fn in_our_words(message: &str) -> String {
    let unknown = |what: &str| message.strip_prefix(what)?.split_once("`, expected ");
    let (kind, found) = match (unknown("unknown field `"), unknown("unknown variant `")) {
        (Some(found), _) => ("key", found),
        (None, Some(found)) => ("kind", found),
        (None, None) => return message.to_owned(),
    };
    let known: Vec<&str> = found.1.split('`').skip(1).step_by(2).collect();
    let closest = known.iter().filter_map(|name| Some((distance(name, found.0)?, name))).min();
    let suggestion = match closest {
        Some((_, name)) => format!("did you mean \"{name}\"?"),
        None => format!("known are {}", Listed(&known)),
    };
    format!("unknown {kind} \"{}\": {suggestion}", found.0)
}

struct Listed<'a>(&'a [&'a str]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
        [[broker]]
        cluster = "C"
        name = "broker-a"
        id = 1
        address = "127.0.0.1:10911"
        topics = [{ name = "orders", queues = 4, perm = "r" }, { name = "stock" }]
        period = "10s"
        heartbeat = "1s"
        timeout = "4s"
        allow_unreachable = true

        [[broker.fault]]
        at = "0s"
        for = "5s"
        kind = "slow"
        by = "500ms"
    "#;

    fn broken(from: &str, to: &str) -> (Option<usize>, String) {
        assert!(WHOLE.contains(from), "{from}");
        parse(&WHOLE.replace(from, to)).expect_err(to)
    }

    #[test]
    fn a_whole_file_is_understood() {
        let plans = parse(WHOLE).expect("a plan");
        let topic = |name, queues, permission| Topic { permission, ..Topic::new(name, queues) };
        let expected = BrokerPlan {
            cluster: "C".to_owned(),
            name: "broker-a".to_owned(),
            id: 1,
            address: "127.0.0.1:10911".parse().expect("an address"),
            topics: vec![topic("orders", 4, 4), topic("stock", 8, 6)],
            period: Duration::from_secs(10),
            heartbeat: Some(Duration::from_secs(1)),
            timeout: Duration::from_secs(4),
            allow_unreachable: true,
            faults: vec![Fault {
                at: Duration::ZERO,
                length: Duration::from_secs(5),
                kind: FaultKind::Slow(Duration::from_millis(500)),
            }],
        };
        assert_eq!(plans, [expected]);
    }

    #[test]
    fn name_and_topics_are_enough() {
        let plans = parse("[[broker]]\nname = \"broker-a\"\ntopics = []\n").expect("a plan");
        assert_eq!(plans, [BrokerPlan::default()]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_a_suggestion() {
        let table = [
            ("period", "perioud", Some(8), "unknown key \"perioud\": did you mean \"period\"?"),
            ("queues", "quues", Some(7), "unknown key \"quues\": did you mean \"queues\"?"),
            ("by", "colour", Some(17), "unknown key \"colour\": known are at, for, kind, by, every, percent"),
            ("\"slow\"", "\"slo\"", Some(16), "unknown kind \"slo\": did you mean \"slow\"?"),
        ];
        for (from, to, line, problem) in table {
            assert_eq!(broken(from, to), (line, problem.to_owned()));
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_in_words() {
        let table = [
            ("period = \"10s\"", "period = \"5s\"", "brokers register every 10 to 60 s"),
            ("timeout = \"4s\"", "timeout = \"1s\"", "the timeout longer"),
            ("heartbeat = \"1s\"", "", "timeout has no effect without heartbeat"),
            ("127.0.0.1:10911", "127.0.0.1", "has no port"),
            ("\"stock\"", "\"two words\"", "has blanks"),
            ("\"r\"", "\"rwx\"", "write rw, r or w"),
            ("queues = 4", "queues = -1", "it takes 0 or more"),
            ("by = \"500ms\"", "", "add for example by = \"500ms\""),
            ("by = \"500ms\"", "every = \"1s\"", "has no \"every\""),
            ("\"5s\"", "\"soon\"", "write a span of time"),
            (
                "[[broker]]",
                "[[broker]]\nname = \"broker-a\"\nid = 1\ntopics = []\n[[broker]]",
                "is there twice",
            ),
        ];
        for (from, to, part) in table {
            let (_, problem) = broken(from, to);
            assert!(problem.contains(part), "{to}: {problem}");
        }
        assert!(parse("").expect_err("empty").1.contains("[[broker]]"));
    }
}
