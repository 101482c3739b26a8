//! What can be wrong with a configuration, and what is only worth a warning.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::source::Source;

/// A configuration that the server does not start with: everything that is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct ConfigError {
    /// Each problem; at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("{}: cannot be read: {reason}; give a readable file to -c", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file is neither TOML nor `.properties`.
    #[error("{}:{line}: {reason}; {next}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
        /// What to do.
        next: &'static str,
    },
    /// A key that does not exist.
    #[error("{from}: unknown key \"{key}\": {}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// Where it stands.
        from: Source,
        /// The key as written.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// One key twice in one source.
    #[error("{from}: {key} is set a second time (first at {first}); remove one of the two")]
    SetTwice {
        /// The second place.
        from: Source,
        /// The key.
        key: String,
        /// The first place.
        first: Source,
    },
    /// A value of the wrong type or out of bounds.
    #[error("{from}: {key} = {value:?}: {reason}; correct it there and start again")]
    BadValue {
        /// Where it stands.
        from: Source,
        /// The key.
        key: String,
        /// The value as written, cut to 100 characters.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// A value that is understood and not served.
    #[error("{from}: {key} = {value:?} is not possible: {instead}")]
    Refused {
        /// Where it stands.
        from: Source,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// A key in `runtime.toml` that is not taken from there.
    #[error(
        "{from}: {key} cannot be changed while running, so it does not belong in this file; move it to the -c file"
    )]
    NotForRuntime {
        /// Where it stands.
        from: Source,
        /// The key.
        key: &'static str,
    },
    /// Values that are right alone and wrong together.
    #[error("{from}: {key} = {value:?}: {reason}")]
    Contradiction {
        /// Where the first of them stands.
        from: Source,
        /// Its key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why it cannot be, and what to do.
        reason: String,
    },
}

/// Something that an operator should see, and that stops nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A key of a `.properties` file, or a variable of the environment, that does not exist here.
    #[error("{from}: unknown key \"{key}\" has no effect: {}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// Where it stands.
        from: Source,
        /// The key as written.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// A `.properties` file that is not UTF-8.
    #[error(
        "{}:{line}: byte {offset} is not UTF-8, so the file was read as Latin-1, as the Java server does; save it as UTF-8 if \
         values have characters beyond ASCII",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line of the first such byte, from 1.
        line: usize,
        /// Bytes before it.
        offset: usize,
    },
    /// Brokers may be removed although they live (decision 6).
    #[error(
        "brokerExpireMillis = {millis} is less than three heartbeats (90000): a broker that misses one is taken \
         off its routes; brokers that need less announce a timeout of their own"
    )]
    ShortExpiry {
        /// The value in milliseconds.
        millis: u64,
    },
    /// A broker that hangs is noticed later than by default (decision 6).
    #[error(
        "brokerExpireMillis = {millis} is more than the default of 120000: a broker that falls silent while its \
         connection stays open is noticed after up to {} s, not 125 s, unless it announces a timeout of its own",
        noticed.as_secs_f64()
    )]
    LongExpiry {
        /// The value in milliseconds.
        millis: u64,
        /// The longest time until such a broker is removed.
        noticed: Duration,
    },
    /// The scan is so rare that it decides when brokers expire.
    #[error(
        "scanNotActiveBrokerInterval = {scan} is more than brokerExpireMillis = {expire}: a silent broker stays on \
         its routes for up to the sum of both"
    )]
    SlowScan {
        /// The scan interval in milliseconds.
        scan: u64,
        /// The expiry in milliseconds.
        expire: u64,
    },
    /// Plain connections get in where clients are said to need a certificate.
    #[error(
        "tls.server.need.client.auth = \"require\" does not keep out who speaks no TLS: tls.server.mode = \"{mode}\" serves \
         {served}. Set tls.server.mode = enforcing (with certPath and keyPath) to close plain connections, or \
         tls.server.need.client.auth = none or optional if they are wanted"
    )]
    PlainBesideClientAuth {
        /// The mode that lets them in.
        mode: &'static str,
        /// What is served in this mode.
        served: &'static str,
    },
    /// `runtime.toml` cannot be read: what it sets is not in force, and 318 cannot change anything.
    #[error(
        "{} cannot be read ({reason}): what was changed while running is not in force, and nothing can be changed until \
         it is readable and the server restarts",
        path.display()
    )]
    RuntimeUnreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// What 318 set is in force instead of the value of the `-c` file or the default.
    #[error(
        "{key} = {runtime:?} ({runtime_from}) hides {value:?} ({from}); remove the first to use the second"
    )]
    Hidden {
        /// The key.
        key: &'static str,
        /// The value in force.
        runtime: String,
        /// Where it stands.
        runtime_from: Source,
        /// The value that would be in force without it.
        value: String,
        /// Where that stands.
        from: Source,
    },
    /// What 318 set is not in force, because a flag or the environment ranks above it.
    #[error("{key} = {runtime:?} ({runtime_from}) has no effect: {from} sets {value:?} and ranks above it")]
    Outranked {
        /// The key.
        key: &'static str,
        /// The value without effect.
        runtime: String,
        /// Where it stands.
        runtime_from: Source,
        /// The value in force.
        value: String,
        /// What sets it.
        from: Source,
    },
}

impl Warning {
    /// Whether a value of one of `keys` is a reason for it.
    pub(super) fn concerns(&self, keys: &[&str]) -> bool {
        let reasons: &[&str] = match self {
            Self::UnknownKey { key, .. } => &[key],
            Self::Hidden { key, .. } | Self::Outranked { key, .. } => &[key],
            Self::ShortExpiry { .. } => &["brokerExpireMillis"],
            Self::LongExpiry { .. } | Self::SlowScan { .. } => {
                &["brokerExpireMillis", "scanNotActiveBrokerInterval"]
            }
            Self::PlainBesideClientAuth { .. } => &["tls.server.mode", "tls.server.need.client.auth"],
            Self::NotUtf8 { .. } | Self::RuntimeUnreadable { .. } => &[],
        };
        reasons.iter().any(|key| keys.contains(key))
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(
        || "`waypost config reference` lists every key".to_owned(),
        |suggestion| format!("did you mean \"{suggestion}\"?"),
    )
}

/// A value for a message: at most 100 characters.
pub(crate) fn short(value: &str) -> String {
    const MOST: usize = 100;
    match value.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}
