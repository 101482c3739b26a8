//! Where values come from: flags, the environment and files, each read into a [`Layer`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use toml::de::{DeTable, DeValue};
use waypost_rocketmq_wire::properties::{self, PropertiesError};

use super::error::{Problem, Warning, short};
use super::setting::{self, Setting};
use crate::text::{self, Decoded, NotUtf8};

/// Where a value comes from. Later ones of this list rank higher.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Source {
    /// The default of the key.
    Default,
    /// The `-c` file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1, if it is known.
        line: Option<usize>,
    },
    /// `runtime.toml`: what request 318 set.
    Runtime {
        /// The file.
        path: Arc<Path>,
        /// The line, from 1; none for a value that was set since the start.
        line: Option<usize>,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line: the key that `--set` was given, or a flag of its own with its dashes.
    Flag(String),
}

impl Source {
    /// The option by which the operator gave `key`, to be named in an error about its value.
    pub(crate) fn option(&self, key: &str) -> String {
        match self {
            Self::Default => key.to_owned(),
            Self::File { .. } | Self::Runtime { .. } => format!("{key} ({self})"),
            Self::Environment(name) => name.clone(),
            Self::Flag(name) if name.starts_with("--") => name.clone(),
            Self::Flag(name) => format!("--set {name}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } | Self::Runtime { path, line } => match line {
                Some(line) => write!(f, "{}:{line}", path.display()),
                None => write!(f, "{}", path.display()),
            },
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The canonical text of a value and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assigned {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// What one source says.
#[derive(Clone, Default, Debug)]
pub(crate) struct Layer {
    pub(crate) values: BTreeMap<&'static str, Assigned>,
    /// Keys of a `.properties` file that this server does not know, as 319 lists them.
    pub(crate) foreign: BTreeMap<String, Assigned>,
}

/// What to do about a damaged `runtime.toml`.
const RUNTIME_REPAIR: &str = "correct it, or remove the file, which undoes what was changed while running";

/// What reading the sources found besides values.
#[derive(Default, Debug)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Warning>,
}

impl Layer {
    /// Checks one value and keeps it; the last of several wins.
    pub(crate) fn assign(
        &mut self,
        setting: &'static Setting,
        text: &str,
        source: Source,
        findings: &mut Findings,
    ) {
        match check(setting, text, &source) {
            Ok(text) => {
                self.values.insert(setting.key, Assigned { text, source });
            }
            Err(problem) => findings.problems.push(problem),
        }
    }

    /// Flags, as pairs of a key in either spelling and a text. A flag that has a name of its own (`--listen-port`)
    /// comes with its dashes.
    pub(crate) fn from_flags(flags: &[(String, String)], findings: &mut Findings) -> Self {
        let mut layer = Self::default();
        for (key, text) in flags {
            let from = Source::Flag(key.clone());
            let named = key.strip_prefix("--").map(|name| name.replace('-', "_"));
            match setting::find(named.as_deref().unwrap_or(key)) {
                Some(setting) => layer.assign(setting, text, from, findings),
                None => findings.problems.push(unknown(from, key)),
            }
        }
        layer
    }

    /// The environment. An empty variable counts as not set.
    pub(crate) fn from_environment(variables: &BTreeMap<String, String>, findings: &mut Findings) -> Self {
        let mut layer = Self::default();
        let mut known = BTreeMap::new();
        for setting in setting::all() {
            known.insert(setting.environment_name(), setting);
        }
        for (name, text) in variables {
            if text.is_empty() {
                continue;
            }
            if let Some(setting) = known.get(name) {
                layer.assign(setting, text, Source::Environment(name.clone()), findings);
            } else if let Some(suggestion) = misspelt_variable(name, &known) {
                findings.warnings.push(Warning::UnknownKey {
                    from: Source::Environment(name.clone()),
                    key: name.clone(),
                    suggestion: Some(suggestion),
                });
            }
        }
        let home = variables.get("ROCKETMQ_HOME").filter(|home| !home.is_empty());
        if let (Some(home), Some(setting)) = (home, setting::find("rocketmqHome"))
            && !layer.values.contains_key(setting.key)
        {
            layer.assign(setting, home, Source::Environment("ROCKETMQ_HOME".to_owned()), findings);
        }
        layer
    }

    /// The `-c` file, TOML or `.properties` by its name or else by its content.
    pub(crate) fn from_file(path: &Path, findings: &mut Findings) -> Self {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) => {
                findings.problems.push(unreadable(path, &error.to_string()));
                return Self::default();
            }
        };
        let Some(decoded) = decoded(path, &content, findings) else { return Self::default() };
        let shared: Arc<Path> = Arc::from(path);
        let at = |line| Source::File { path: Arc::clone(&shared), line };
        if is_properties(path, &decoded.text) {
            if let Some(NotUtf8 { offset, line }) = decoded.not_utf8 {
                findings.warnings.push(Warning::NotUtf8 { path: path.to_owned(), line, offset });
            }
            return Self::from_properties(path, &decoded.text, at, findings);
        }
        if let Some(first) = decoded.not_utf8 {
            findings.problems.push(no_toml(path, first, "TOML is UTF-8: save the file so"));
            return Self::default();
        }
        Self::from_toml(path, &decoded.text, at, findings)
    }

    /// `runtime.toml`; a missing file says nothing. One that cannot be read is the error: the
    /// server starts all the same (C7), and must not write over it.
    pub(crate) fn from_runtime(path: &Path, findings: &mut Findings) -> Result<Self, String> {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error.to_string()),
        };
        let Some(decoded) = decoded(path, &content, findings) else { return Ok(Self::default()) };
        if let Some(first) = decoded.not_utf8 {
            findings.problems.push(no_toml(path, first, RUNTIME_REPAIR));
            return Ok(Self::default());
        }
        let shared: Arc<Path> = Arc::from(path);
        let layer = Self::from_toml(
            path,
            &decoded.text,
            |line| Source::Runtime { path: Arc::clone(&shared), line },
            findings,
        );
        for (key, assigned) in &layer.values {
            if !setting::find(key).is_some_and(Setting::is_live) {
                findings.problems.push(Problem::NotForRuntime { from: assigned.source.clone(), key });
            }
        }
        Ok(layer)
    }

    fn from_toml(
        path: &Path,
        text: &str,
        at: impl Fn(Option<usize>) -> Source,
        findings: &mut Findings,
    ) -> Self {
        let mut layer = Self::default();
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                findings.problems.push(Problem::Syntax {
                    path: path.to_owned(),
                    line: line_of(text, error.span().map_or(0, |span| span.start)),
                    reason: error.message().to_owned(),
                    next: match at(None) {
                        Source::Runtime { .. } => RUNTIME_REPAIR,
                        _ => "correct the line; if this is a .properties file of the Java server, name it *.properties",
                    },
                });
                return layer;
            }
        };
        let mut entries = Vec::new();
        flatten(table.get_ref(), "", &mut entries);
        entries.sort_by_key(|entry| entry.start);
        for entry in entries {
            let from = at(Some(line_of(text, entry.start)));
            let Some(setting) = setting::find(&entry.key) else {
                findings.problems.push(unknown(from, &entry.key));
                continue;
            };
            if let Some(first) = layer.values.get(setting.key) {
                let (key, first) = (setting.key.to_owned(), first.source.clone());
                findings.problems.push(Problem::SetTwice { from, key, first });
                continue;
            }
            match toml_text(setting, entry.value) {
                Ok(text) => layer.assign(setting, &text, from, findings),
                Err(reason) => findings.problems.push(Problem::BadValue {
                    from,
                    key: entry.key,
                    value: toml_shown(entry.value),
                    reason,
                }),
            }
        }
        layer
    }

    fn from_properties(
        path: &Path,
        text: &str,
        at: impl Fn(Option<usize>) -> Source,
        findings: &mut Findings,
    ) -> Self {
        let mut layer = Self::default();
        let pairs = match properties::parse(text) {
            Ok(pairs) => pairs,
            Err(error) => {
                findings.problems.push(Problem::Syntax {
                    path: path.to_owned(),
                    line: match error {
                        PropertiesError::Escape { line } => line,
                        _ => 1,
                    },
                    reason: error.to_string(),
                    next: "correct the line",
                });
                return layer;
            }
        };
        for (key, value) in pairs {
            let from = at(property_line(text, &key));
            if let Some(setting) = setting::find(&key) {
                layer.assign(setting, &value, from, findings);
                continue;
            }
            if !layer.foreign.contains_key(&key) {
                let suggestion = setting::suggest(&key);
                findings.warnings.push(Warning::UnknownKey {
                    from: from.clone(),
                    key: key.clone(),
                    suggestion,
                });
            }
            layer.foreign.insert(key, Assigned { text: value, source: from });
        }
        layer
    }
}

/// Checks a text against its setting.
pub(crate) fn check(setting: &'static Setting, text: &str, source: &Source) -> Result<String, Problem> {
    let text = (setting.check)(setting, text).map_err(|reason| Problem::BadValue {
        from: source.clone(),
        key: setting.key.to_owned(),
        value: short(text),
        reason,
    })?;
    match setting.refusal {
        Some(refusal) if refusal.allowed != text => Err(Problem::Refused {
            from: source.clone(),
            key: setting.key,
            value: short(&text),
            instead: refusal.instead,
        }),
        _ => Ok(text),
    }
}

fn unknown(from: Source, key: &str) -> Problem {
    Problem::UnknownKey { from, key: short(key), suggestion: setting::suggest(key) }
}

fn unreadable(path: &Path, reason: &str) -> Problem {
    Problem::Unreadable { path: path.to_owned(), reason: reason.to_owned() }
}

fn decoded<'a>(path: &Path, content: &'a [u8], findings: &mut Findings) -> Option<Decoded<'a>> {
    match text::decode(content) {
        Ok(decoded) => Some(decoded),
        Err(utf16) => {
            findings.problems.push(unreadable(path, &utf16.to_string()));
            None
        }
    }
}

fn no_toml(path: &Path, NotUtf8 { offset, line }: NotUtf8, next: &'static str) -> Problem {
    Problem::Syntax {
        path: path.to_owned(),
        line,
        reason: format!("it is not UTF-8 text (byte {offset})"),
        next,
    }
}

/// The key that a `WAYPOST_` variable of another name nearly is. Others are left alone: commands
/// of this program have variables of their own, and Kubernetes sets `WAYPOST_PORT_...` and
/// `WAYPOST_SERVICE_...` for a service of that name.
fn misspelt_variable(name: &str, known: &BTreeMap<String, &'static Setting>) -> Option<String> {
    let key = name.strip_prefix("WAYPOST_")?;
    if key.starts_with("SERVICE_") || key.starts_with("PORT") {
        return None;
    }
    known
        .keys()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, candidate)| candidate.clone())
}

/// Whether a file is `.properties` rather than TOML. Its name decides; for other names the
/// content does: it is TOML if it parses as such and holds a table, a list or a quoted text,
/// which no file of the original has.
fn is_properties(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => false,
        Some("properties") => true,
        _ => match DeTable::parse(text) {
            Ok(table) => !table.get_ref().values().any(|value| {
                matches!(value.get_ref(), DeValue::String(_) | DeValue::Array(_) | DeValue::Table(_))
            }),
            Err(_) => true,
        },
    }
}

struct Entry<'a> {
    key: String,
    start: usize,
    value: &'a DeValue<'a>,
}

/// `[tls.server] mode = ..`, `tls.server.mode = ..` and `"tls.server.mode" = ..` are one key.
fn flatten<'a>(table: &'a DeTable<'_>, prefix: &str, out: &mut Vec<Entry<'a>>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => flatten(inner, &format!("{name}."), out),
            other => out.push(Entry { key: name, start: key.span().start, value: other }),
        }
    }
}

/// The text of a TOML value if it has the type that the setting wants.
fn toml_text(setting: &Setting, value: &DeValue<'_>) -> Result<String, String> {
    use setting::Kind;
    match (setting.kind, value) {
        (Kind::Switch, DeValue::Boolean(value)) => Ok(value.to_string()),
        (Kind::Integer, DeValue::Integer(number)) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "must be a smaller number".to_owned()),
        (Kind::Switch, _) => Err("must be true or false, written without quotes".to_owned()),
        (Kind::Integer, _) => Err("must be a whole number, written without quotes".to_owned()),
        (_, DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Networks, DeValue::Array(items)) => {
            let mut networks = Vec::new();
            for item in items {
                let DeValue::String(network) = item.get_ref() else {
                    return Err("must be a list of texts".to_owned());
                };
                networks.push(network.to_string());
            }
            Ok(if networks.is_empty() { "none".to_owned() } else { networks.join(",") })
        }
        _ => Err("must be a text in quotes".to_owned()),
    }
}

fn toml_shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => short(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The last line that begins with this key: the one that is in force. Keys with escapes are not
/// found.
fn property_line(text: &str, key: &str) -> Option<usize> {
    let begins = |line: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':', ' ', '\t', '\x0c']))
    };
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().rposition(|line| begins(line)).map(|index| index + 1)
}

/// The file that request 318 writes: beside the KV file.
pub(crate) fn runtime_path(kv_path: &Path) -> PathBuf {
    kv_path.with_file_name("runtime.toml")
}
