//! Request 318: changing settings of the running server (spec 4.4, decision 11).

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::properties;

use super::error::{Warning, short};
use super::setting::{self, Kind, Setting};
use super::source::{Assigned, Layer, Source};
use super::{Configuration, doubts, read};
use waypost_net::durable::{self, ReplaceError};

/// The keys that the original refuses whatever `configBlackList` says (spec 4.1).
const ORIGINAL_BLACK_LIST: [&str; 4] = ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"];

/// Bytes of a request: all keys at once need a tenth of it. Others wait while a request is checked, and each line
/// of it costs a search for its key.
const BODY_MAX: usize = 65_536;

/// What a request 318 changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// The keys that were given, with their values before and after; equal ones included.
    pub values: Vec<ChangedValue>,
    /// What who set them should know about the new values.
    pub warnings: Vec<Warning>,
}

/// One value that was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedValue {
    /// The key in the original's spelling.
    pub key: &'static str,
    /// The text before.
    pub before: String,
    /// The text after.
    pub after: String,
}

/// Why a key is not for request 318.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotAllowed {
    /// The original's black list or the operator's `configBlackList` names it.
    BlackList,
    /// It comes into force only at a start.
    Restart,
    /// A flag or the environment sets it, which rank above what 318 sets.
    Pinned(Source),
}

/// A request 318 that changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefusal {
    /// A key that exists and may not be changed while running.
    #[error("{}", not_allowed(key, why))]
    NotAllowed {
        /// The key.
        key: &'static str,
        /// Why.
        why: NotAllowed,
    },
    /// The body is no text, or not `.properties`.
    #[error("string2Properties error: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// A key that does not exist.
    #[error(
        "unknown key \"{key}\"{}: nothing was changed",
        suggestion.as_ref().map_or_else(String::new, |it| format!(", did you mean \"{it}\""))
    )]
    UnknownKey {
        /// The key as given, cut to 100 characters.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// A value of the wrong type or out of bounds.
    #[error("{key} = {value:?}: {reason}: nothing was changed")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value as given, cut to 100 characters.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// The new values could not be made durable.
    #[error("{} could not be written ({error}): {}", path.display(), not_written(error))]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// What failed.
        #[source]
        error: ReplaceError,
    },
}

impl UpdateRefusal {
    /// The response code: 16 for what is not allowed, 1 for everything else. The remark is the
    /// error's text.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::NotAllowed { .. } => response::NO_PERMISSION,
            Self::Malformed { .. }
            | Self::UnknownKey { .. }
            | Self::BadValue { .. }
            | Self::NotWritten { .. } => response::SYSTEM_ERROR,
        }
    }
}

fn not_written(error: &ReplaceError) -> &'static str {
    match error {
        ReplaceError::Unchanged(_) => "nothing was changed",
        _ => "the values in force were not changed",
    }
}

fn not_allowed(key: &str, why: &NotAllowed) -> String {
    match why {
        NotAllowed::BlackList => format!(
            "Can not update config in black list. {key}: set it in the configuration file and restart; nothing was \
             changed"
        ),
        NotAllowed::Restart => format!(
            "{key} can not be changed while running: set it in the configuration file and restart; nothing was changed"
        ),
        NotAllowed::Pinned(source) => format!(
            "{key} is set by {source}, which ranks above this request: set it there and restart; nothing was changed"
        ),
    }
}

impl Configuration {
    /// Does what the body of a request 318 asks: checks all of it, writes `runtime.toml`, and only
    /// then takes the new values over. Without a body, or with one that sets nothing, it does
    /// nothing.
    ///
    /// It waits for the disk: call it where that is allowed.
    ///
    /// # Errors
    ///
    /// The first reason to refuse, keys that are not allowed before all others; one refuses the
    /// whole request.
    pub fn update(&mut self, body: &[u8]) -> Result<Change, UpdateRefusal> {
        let wanted = self.checked(body)?;
        if wanted.is_empty() {
            return Ok(Change::default());
        }
        let mut layers = self.layers.clone();
        let mut change = Change::default();
        let path = Arc::from(self.runtime_path.as_path());
        for (setting, text) in wanted {
            let before =
                self.effective.get(setting.key).map(|assigned| assigned.text.clone()).unwrap_or_default();
            change.values.retain(|value| value.key != setting.key);
            change.values.push(ChangedValue { key: setting.key, before, after: text.clone() });
            let source = Source::Runtime { path: Arc::clone(&path), line: None };
            layers.runtime.values.insert(setting.key, Assigned { text, source });
        }
        let effective = layers.resolve();
        let settings = read(&effective);
        let text = runtime_text(&mut layers.runtime);
        if self.runtime_unreadable {
            let error = io::Error::other("it could not be read at start, so it is not written over");
            let error = ReplaceError::Unchanged(error);
            return Err(UpdateRefusal::NotWritten { path: self.runtime_path.clone(), error });
        }
        durable::replace(&self.runtime_path, text.as_bytes(), None)
            .map_err(|error| UpdateRefusal::NotWritten { path: self.runtime_path.clone(), error })?;
        let keys: Vec<&str> = change.values.iter().map(|value| value.key).collect();
        change.warnings = doubts(&settings).into_iter().filter(|warning| warning.concerns(&keys)).collect();
        self.effective = layers.resolve();
        self.layers = layers;
        self.settings = Arc::new(settings);
        Ok(change)
    }

    /// The settings and canonical texts that a body asks for, in its order.
    fn checked(&self, body: &[u8]) -> Result<Vec<(&'static Setting, String)>, UpdateRefusal> {
        if body.len() > BODY_MAX {
            let reason = format!("the body has {} bytes, more than {BODY_MAX}", body.len());
            return Err(UpdateRefusal::Malformed { reason });
        }
        let text = std::str::from_utf8(body).map_err(|error| UpdateRefusal::Malformed {
            reason: format!("the body is not UTF-8: {error}"),
        })?;
        let pairs = properties::parse(text)
            .map_err(|error| UpdateRefusal::Malformed { reason: error.to_string() })?;
        for (key, _) in &pairs {
            if let Some(setting) = setting::find(key)
                && let Some(why) = self.not_allowed(setting)
            {
                return Err(UpdateRefusal::NotAllowed { key: setting.key, why });
            }
        }
        let mut wanted = Vec::new();
        for (key, value) in &pairs {
            let Some(setting) = setting::find(key) else {
                return Err(UpdateRefusal::UnknownKey { key: short(key), suggestion: setting::suggest(key) });
            };
            let text = (setting.check)(setting, value).map_err(|reason| UpdateRefusal::BadValue {
                key: setting.key,
                value: short(value),
                reason,
            })?;
            wanted.push((setting, text));
        }
        for (setting, text) in &wanted {
            if let Some(source) = self.pinned(setting, text) {
                return Err(UpdateRefusal::NotAllowed { key: setting.key, why: NotAllowed::Pinned(source) });
            }
        }
        Ok(wanted)
    }

    fn not_allowed(&self, setting: &Setting) -> Option<NotAllowed> {
        let listed = |list: &str| {
            list.split(';').any(|key| setting::find(key.trim()).is_some_and(|it| it.key == setting.key))
        };
        if ORIGINAL_BLACK_LIST.contains(&setting.key) || listed(&self.settings.access.black_list) {
            return Some(NotAllowed::BlackList);
        }
        if setting.is_live() { None } else { Some(NotAllowed::Restart) }
    }

    /// The higher source that would keep the new value from coming into force.
    fn pinned(&self, setting: &Setting, text: &str) -> Option<Source> {
        let assigned = self.effective.get(setting.key)?;
        let higher = matches!(assigned.source, Source::Flag(_) | Source::Environment(_));
        (higher && assigned.text != text).then(|| assigned.source.clone())
    }
}

/// The text of `runtime.toml`; notes the line of each value.
fn runtime_text(layer: &mut Layer) -> String {
    let mut text = String::from(
        "# Written by waypost when a setting is changed while it runs (request 318, `waypost config set`).\n\
         # It ranks above the configuration file, below flags and the environment.\n\
         # Remove a line and restart to undo a change.\n",
    );
    let mut line = text.lines().count();
    for (key, assigned) in &mut layer.values {
        let bare = setting::find(key).is_some_and(|it| matches!(it.kind, Kind::Switch | Kind::Integer));
        let value =
            if bare { assigned.text.clone() } else { toml::Value::from(assigned.text.as_str()).to_string() };
        let _ = writeln!(text, "{} = {value}", toml_key(key));
        line += 1;
        if let Source::Runtime { line: at, .. } = &mut assigned.source {
            *at = Some(line);
        }
    }
    text
}

/// A key as TOML writes it: keys with dots are quoted, so that they stay one key.
pub(super) fn toml_key(key: &str) -> String {
    if key.contains('.') { format!("\"{key}\"") } else { key.to_owned() }
}
