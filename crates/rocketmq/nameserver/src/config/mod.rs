//! The configuration: which keys exist, where values come from, what they mean.
//!
//! Everything is derived from one table ([`setting::all`]): parsing, [`Configuration::show`],
//! the answers of requests 318 and 319, `docs/configuration.md` and the example file. Sources,
//! the highest first:
//!
//! 1. flags,
//! 2. the environment (`WAYPOST_LISTEN_PORT` and so on, and `ROCKETMQ_HOME`),
//! 3. `runtime.toml` beside the KV file: what request 318 set (decision 11),
//! 4. the `-c` file, TOML or the original's `.properties`,
//! 5. defaults.
//!
//! A configuration is checked whole before anything is opened or bound.
//!
//! ```no_run
//! use waypost_rocketmq_nameserver::config::{Configuration, Inputs, process_environment};
//!
//! let configuration = Configuration::load(Inputs {
//!     file: None,
//!     flags: vec![("listenPort".to_owned(), "0".to_owned())],
//!     environment: process_environment(),
//! })?;
//! assert_eq!(configuration.settings().listen.port, 0);
//! # Ok::<(), waypost_rocketmq_nameserver::config::ConfigError>(())
//! ```

mod error;
mod reference;
pub mod setting;
mod source;
mod table;
mod typed;
mod update;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use waypost_rocketmq_wire::properties;

pub use error::{ConfigError, Problem, Warning};
pub use reference::{example_toml, reference_markdown};
pub use source::Source;
pub use table::{Access, Files, Limits, Listen, Logs, Routes, Settings, Tls};
pub use typed::{ClientAuth, LogFormat, LogLevel, TlsMode};
pub use update::{Change, ChangedValue, NotAllowed, UpdateRefusal};

use self::setting::{Effect, Setting};
use self::source::{Assigned, Findings, Layer};

/// Three heartbeats of a broker, which reports every 30 s by default (decision 6).
const THREE_HEARTBEATS: Duration = Duration::from_secs(90);

/// A live broker reports so often that more only makes dead ones stay longer.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(120);

/// What a configuration is made from.
#[derive(Clone, Debug)]
pub struct Inputs<E> {
    /// The `-c` file.
    pub file: Option<PathBuf>,
    /// Keys in either spelling and their values; the last of one key wins.
    pub flags: Vec<(String, String)>,
    /// The environment, as [`process_environment`] gives it. `HOME` is where the default paths lie.
    pub environment: E,
}

/// The environment of this process. Variables that are not UTF-8 are read with replacement
/// characters, where [`std::env::vars`] panics.
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// One effective value, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The key in the original's spelling.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// What the key does; none for a key of a `.properties` file that is unknown here.
    pub effect: Option<Effect>,
}

/// The effective configuration and where each value comes from.
#[derive(Clone, Debug)]
pub struct Configuration {
    layers: Layers,
    effective: BTreeMap<&'static str, Assigned>,
    settings: Arc<Settings>,
    warnings: Vec<Warning>,
    /// The port that was bound, where 0 was asked for.
    bound_port: Option<u16>,
    runtime_path: PathBuf,
    /// `runtime.toml` is there and could not be read: writing would lose what it holds.
    runtime_unreadable: bool,
}

#[derive(Clone, Debug)]
struct Layers {
    flags: Layer,
    environment: Layer,
    runtime: Layer,
    file: Layer,
    path: Option<Arc<Path>>,
    home: String,
}

impl Configuration {
    /// Reads every source and checks the whole.
    ///
    /// # Errors
    ///
    /// Everything that is wrong: unreadable files, syntax, unknown keys (in TOML and flags), wrong
    /// values and values that contradict each other.
    pub fn load<E>(inputs: Inputs<E>) -> Result<Self, ConfigError>
    where
        E: IntoIterator<Item = (String, String)>,
    {
        let Inputs { file, flags, environment } = inputs;
        let variables: BTreeMap<String, String> = environment.into_iter().collect();
        let mut findings = Findings::default();
        let mut layers = Layers {
            flags: Layer::from_flags(&flags, &mut findings),
            environment: Layer::from_environment(&variables, &mut findings),
            runtime: Layer::default(),
            file: file.as_deref().map_or_else(Layer::default, |path| Layer::from_file(path, &mut findings)),
            path: file.map(Arc::from),
            home: variables
                .get("HOME")
                .filter(|home| !home.is_empty())
                .map_or(".", String::as_str)
                .to_owned(),
        };
        let kv_path = layers.resolve().get("kvConfigPath").map(|assigned| PathBuf::from(&assigned.text));
        let runtime_path = source::runtime_path(&kv_path.unwrap_or_default());
        let mut runtime_unreadable = false;
        match Layer::from_runtime(&runtime_path, &mut findings) {
            Ok(layer) => layers.runtime = layer,
            Err(reason) => {
                runtime_unreadable = true;
                findings.warnings.push(Warning::RuntimeUnreadable { path: runtime_path.clone(), reason });
            }
        }
        if !findings.problems.is_empty() {
            return Err(ConfigError { problems: findings.problems });
        }
        let effective = layers.resolve();
        let settings = read(&effective);
        let problems = contradictions(&settings, &effective);
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        let mut warnings = findings.warnings;
        warnings.extend(layers.hidden());
        warnings.extend(doubts(&settings));
        warnings.extend(open_beside_certificates(&settings.tls));
        let settings = Arc::new(settings);
        Ok(Self { layers, effective, settings, warnings, bound_port: None, runtime_path, runtime_unreadable })
    }

    /// The effective values.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The effective values, to be kept; a later change makes new ones.
    #[must_use]
    pub fn shared_settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings)
    }

    /// Where the effective value of `key`, in the original's spelling, comes from.
    #[must_use]
    pub fn source(&self, key: &str) -> Option<&Source> {
        self.effective.get(key).map(|assigned| &assigned.source)
    }

    /// The option by which the operator gave `key`: a flag, a variable, or the key and where it stands in a file.
    #[must_use]
    pub fn option(&self, key: &str) -> String {
        self.source(key).unwrap_or(&Source::Default).option(key)
    }

    /// What an operator should see at start.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The file that request 318 writes.
    #[must_use]
    pub fn runtime_path(&self) -> &Path {
        &self.runtime_path
    }

    /// Notes the port that was bound, which 319 and [`Self::show`] then tell instead of 0.
    pub fn note_bound_port(&mut self, port: u16) {
        self.bound_port = Some(port);
    }

    /// Every value with its source, in the order of the reference; then the unknown keys of a
    /// `.properties` file.
    #[must_use]
    pub fn show(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for setting in setting::all() {
            if let Some(assigned) = self.effective.get(setting.key) {
                rows.push(Row {
                    key: setting.key.to_owned(),
                    value: self.shown(setting.key, &assigned.text),
                    source: assigned.source.clone(),
                    effect: Some(setting.effect),
                });
            }
        }
        for (key, assigned) in &self.layers.file.foreign {
            rows.push(Row {
                key: key.clone(),
                value: foreign_text(key, &assigned.text),
                source: assigned.source.clone(),
                effect: None,
            });
        }
        rows
    }

    /// The body of 319 (spec 4.4): `key=value` lines sorted by key, keys without a value left out,
    /// unknown keys of a `.properties` file included. Escaped as `java.util.Properties` reads it,
    /// because mqadmin fails at a raw backslash. The values of unknown keys that look like a secret
    /// are masked: anybody may ask 319.
    #[must_use]
    pub fn properties_text(&self) -> String {
        let mut lines = BTreeMap::new();
        for row in self.show() {
            let is_null =
                row.value.is_empty() && setting::find(&row.key).is_some_and(|it| it.default.is_empty());
            if !is_null {
                lines.insert(row.key, row.value);
            }
        }
        let mut text = String::new();
        for (key, value) in lines {
            properties::write(&mut text, &key, &value);
        }
        text
    }

    fn shown(&self, key: &str, text: &str) -> String {
        match self.bound_port {
            Some(port) if key == "listenPort" => port.to_string(),
            _ => text.to_owned(),
        }
    }
}

impl Layers {
    /// The highest source of each key.
    fn resolve(&self) -> BTreeMap<&'static str, Assigned> {
        let mut effective = BTreeMap::new();
        for setting in setting::all() {
            if let Some(assigned) = self.value_of(setting) {
                effective.insert(setting.key, assigned);
            }
        }
        effective
    }

    fn value_of(&self, setting: &'static Setting) -> Option<Assigned> {
        if let (Some(path), "configStorePath") = (&self.path, setting.key) {
            // The original reports the -c file here, whatever the file itself says (spec 4.1).
            let source = Source::File { path: Arc::clone(path), line: None };
            return Some(Assigned { text: path.display().to_string(), source });
        }
        for layer in [&self.flags, &self.environment, &self.runtime, &self.file] {
            if let Some(assigned) = layer.values.get(setting.key) {
                return Some(assigned.clone());
            }
        }
        if setting.effect == Effect::IgnoredUnlessSet {
            return None;
        }
        let text = setting.default.replace("$HOME", self.home.trim_end_matches('/'));
        Some(Assigned { text, source: Source::Default })
    }

    /// Each value of `runtime.toml` that makes a difference, or would make one: it is in force in place of another,
    /// or it is not although somebody set it. Who edits the `-c` file, or reads it, should learn of both.
    fn hidden(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let without = Self { runtime: Layer::default(), ..self.clone() };
        for (&key, Assigned { text: runtime, source: runtime_from }) in &self.runtime.values {
            let other = setting::find(key).and_then(|setting| without.value_of(setting));
            let Some(Assigned { text: value, source: from }) = other.filter(|other| other.text != *runtime)
            else {
                continue;
            };
            let (runtime, runtime_from) = (runtime.clone(), runtime_from.clone());
            warnings.push(match from {
                Source::Flag(_) | Source::Environment(_) => {
                    Warning::Outranked { key, runtime, runtime_from, value, from }
                }
                Source::File { .. } | Source::Runtime { .. } | Source::Default => {
                    Warning::Hidden { key, runtime, runtime_from, value, from }
                }
            });
        }
        warnings
    }
}

fn read(effective: &BTreeMap<&'static str, Assigned>) -> Settings {
    Settings::read(|key| &effective.get(key).expect("invariant: every key that acts has a value").text)
}

/// Values that are right alone and wrong together.
fn contradictions(settings: &Settings, effective: &BTreeMap<&'static str, Assigned>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |key: &'static str, reason: &str| {
        if let Some(Assigned { text, source }) = effective.get(key) {
            let (value, from) = (text.clone(), source.clone());
            problems.push(Problem::Contradiction { from, key, value, reason: reason.to_owned() });
        }
    };
    let Tls { mode, certificate, key, client_auth, trust } = &settings.tls;
    if certificate.is_some() && key.is_none() {
        refuse("tls.server.certPath", "a certificate needs its private key; set tls.server.keyPath");
    }
    if key.is_some() && certificate.is_none() {
        refuse("tls.server.keyPath", "a private key needs its certificate; set tls.server.certPath");
    }
    if *mode == TlsMode::Enforcing && certificate.is_none() {
        refuse(
            "tls.server.mode",
            "without a certificate nobody could connect; set tls.server.certPath and tls.server.keyPath",
        );
    }
    if *client_auth != ClientAuth::None && trust.is_none() {
        refuse(
            "tls.server.need.client.auth",
            "clients' certificates cannot be checked without authorities; set tls.server.trustCertPath",
        );
    }
    let limits = &settings.limits;
    if limits.unfinished_frames < limits.frame {
        refuse(
            "unfinishedFrameMemory",
            "it is less than one frame of frameMaxLength bytes, which could never arrive; raise it or lower \
             frameMaxLength",
        );
    }
    if limits.kv_total < limits.kv_value {
        refuse("kvTotalMax", "it is less than one value of kvValueMax bytes; raise it or lower kvValueMax");
    }
    problems
}

/// Values that are possible and probably not wanted.
fn doubts(settings: &Settings) -> Vec<Warning> {
    let (expire, scan) = (settings.routes.broker_expire, settings.routes.scan_interval);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut warnings = Vec::new();
    if expire < THREE_HEARTBEATS {
        warnings.push(Warning::ShortExpiry { millis: millis(expire) });
    }
    if expire > DEFAULT_EXPIRY {
        warnings.push(Warning::LongExpiry { millis: millis(expire), noticed: expire.saturating_add(scan) });
    }
    if scan > expire {
        warnings.push(Warning::SlowScan { scan: millis(scan), expire: millis(expire) });
    }
    warnings
}

/// Clients must show a certificate, yet who speaks no TLS is served without one. The original does the same,
/// so it is no error.
fn open_beside_certificates(tls: &Tls) -> Option<Warning> {
    let (mode, served) = match tls.mode {
        TlsMode::Permissive if tls.certificate.is_some() => ("permissive", "TLS and plain connections"),
        TlsMode::Permissive => ("permissive", "plain connections only, as there is no certificate"),
        TlsMode::Disabled => ("disabled", "plain connections only"),
        TlsMode::Enforcing => return None,
    };
    (tls.client_auth == ClientAuth::Require).then_some(Warning::PlainBesideClientAuth { mode, served })
}

/// The value of an unknown key as it may be shown: masked if it looks secret.
fn foreign_text(key: &str, text: &str) -> String {
    let key = key.to_lowercase();
    if ["password", "passwd", "secret", "token", "accesskey"].iter().any(|word| key.contains(word)) {
        return "******".to_owned();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests;
