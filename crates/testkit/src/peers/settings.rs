//! Settings of a server, in the `.properties` form that all of them read.

use std::collections::BTreeMap;
use std::fmt;

/// Keys and values of a `.properties` file, sorted by key. Values must need no escaping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// No settings: the server's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same settings with `key` set to `value`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.set(key, value);
        self
    }

    /// Sets `key` to `value`.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.0.insert(key.to_owned(), value.to_string());
    }

    /// Takes over all of `other`, also where a key is set already.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().map(|(key, value)| (key.clone(), value.clone())));
    }

    /// The value of `key`, if it is set.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
    }
}
