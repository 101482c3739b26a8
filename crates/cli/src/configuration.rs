//! The configuration of this machine's server, as rows to be shown.

use serde::Serialize;

/// One effective value, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ConfigurationRow {
    /// The key.
    pub key: String,
    /// Its value as text.
    pub value: String,
    /// Where the value comes from, in words.
    pub source: String,
    /// Whether the key does anything.
    pub acts: bool,
}
