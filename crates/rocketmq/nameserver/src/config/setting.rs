//! One entry of the table of settings, and how keys are found in it.

use std::fmt;

use super::table::{ACTING, IGNORED};

/// What the text of a value must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number between two bounds, both included.
    Integer,
    /// Any text.
    Text,
    /// A path of a file; empty where the file is optional.
    Path,
    /// An IP address.
    Address,
    /// `ADDRESS:PORT`, or `off`.
    Endpoint,
    /// A list of networks, `any` or `none`.
    Networks,
    /// A list of host names.
    Hosts,
    /// One of the given words.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// The kind as the reference names it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Integer => "number",
            Self::Text => "text",
            Self::Path => "path",
            Self::Address => "IP address",
            Self::Endpoint => "address:port or off",
            Self::Networks => "networks",
            Self::Hosts => "host names",
            Self::Choice(_) => "one of",
        }
    }
}

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// A plain count, or not a number.
    Plain,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// The unit as the reference names it; empty for a plain count.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
        }
    }
}

/// When a changed value comes into force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applies {
    /// At once: request 318 may set it (decision 11).
    Live,
    /// At the next start.
    Restart,
}

/// Where a key comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The Java NameServer has the same key.
    Original,
    /// Only Waypost has it.
    Own,
}

/// What a key does here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// It does what its description says.
    Acts,
    /// It is accepted, so that files in use can be taken over, and does nothing. Request 319
    /// reports it with its default, as the original does.
    Ignored,
    /// As `Ignored`, but 319 reports it only where a file sets it (spec 4.2, client side).
    IgnoredUnlessSet,
}

/// A value that stops the start, and what to do instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The only value that is accepted.
    pub allowed: &'static str,
    /// What the operator does instead.
    pub instead: &'static str,
}

/// The smallest and the largest number that a setting takes.
pub type Bounds = (i64, i64);

/// One setting: everything that is known about it, from which parsing, `config show`, request
/// 318 and 319, the reference and the example file are derived.
#[derive(Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The key in the original's spelling.
    pub key: &'static str,
    /// The section of the reference.
    pub section: &'static str,
    /// What its text must be.
    pub kind: Kind,
    /// What a number counts.
    pub unit: Unit,
    /// The smallest and the largest number; `(0, 0)` where it is not a number.
    pub bounds: Bounds,
    /// The default as text. `$HOME` stands for the home folder.
    pub default: &'static str,
    /// When a change comes into force.
    pub applies: Applies,
    /// Where the key comes from.
    pub origin: Origin,
    /// Whether it does anything.
    pub effect: Effect,
    /// A value that stops the start, if there is one.
    pub refusal: Option<Refusal>,
    /// What it means, in sentences.
    pub doc: &'static str,
    /// Checks a text; gives its canonical form or what is wrong with it.
    pub(crate) check: fn(&Self, &str) -> Result<String, String>,
}

impl Setting {
    /// The key as TOML prefers it: `brokerExpireMillis` is `broker_expire_millis`,
    /// `tls.server.certPath` is `tls_server_cert_path`.
    #[must_use]
    pub fn alias(&self) -> String {
        snake_case(self.key)
    }

    /// The environment variable that sets it.
    #[must_use]
    pub fn environment_name(&self) -> String {
        format!("WAYPOST_{}", self.alias().to_ascii_uppercase())
    }

    /// Whether request 318 may change it, the operator's `configBlackList` aside.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.applies == Applies::Live
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

/// Every setting, those that act first, each section together.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    ACTING.iter().chain(IGNORED)
}

/// The setting of a key in the original's spelling or as its alias.
#[must_use]
pub fn find(key: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.key == key).or_else(|| {
        let plain = key.replace('.', "_");
        all().find(|setting| setting.alias() == plain)
    })
}

/// The key that was probably meant, in the spelling (original or alias) that is nearer.
#[must_use]
pub fn suggest(key: &str) -> Option<String> {
    let wanted = key.to_lowercase();
    let mut best: Option<(usize, String)> = None;
    for setting in all() {
        for candidate in [setting.key.to_owned(), setting.alias()] {
            let distance = strsim::osa_distance(&wanted, &candidate.to_lowercase());
            let allowed = (candidate.len() / 5).clamp(1, 3);
            if distance <= allowed && best.as_ref().is_none_or(|(least, _)| distance < *least) {
                best = Some((distance, candidate));
            }
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `brokerExpireMillis` to `broker_expire_millis`; a run of capitals counts as one word and a
/// dot separates words.
pub(crate) fn snake_case(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    let mut after_lower = false;
    for c in key.chars() {
        if c == '.' {
            out.push('_');
            after_lower = false;
            continue;
        }
        if c.is_ascii_uppercase() && after_lower {
            out.push('_');
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn aliases_are_snake_case() {
        assert_eq!(snake_case("brokerExpireMillis"), "broker_expire_millis");
        assert_eq!(snake_case("useTLS"), "use_tls");
        assert_eq!(snake_case("tls.server.need.client.auth"), "tls_server_need_client_auth");
        assert_eq!(snake_case("unRegisterBrokerQueueCapacity"), "un_register_broker_queue_capacity");
    }

    #[test]
    fn keys_and_aliases_name_one_setting_each() {
        let mut seen = BTreeSet::new();
        for setting in all() {
            assert!(seen.insert(setting.key.to_owned()), "{} stands twice", setting.key);
            if setting.alias() != setting.key {
                assert!(seen.insert(setting.alias()), "{} is ambiguous", setting.alias());
            }
        }
    }

    #[test]
    fn both_spellings_find_the_setting() {
        for key in ["tls.server.certPath", "tls_server_cert_path", "tls.server.cert_path"] {
            assert_eq!(find(key).map(|setting| setting.key), Some("tls.server.certPath"));
        }
        assert!(find("listenport").is_none());
    }

    #[test]
    fn a_misspelt_key_gets_the_nearest_key() {
        assert_eq!(suggest("listenport").as_deref(), Some("listenPort"));
        assert_eq!(suggest("lisetnPort").as_deref(), Some("listenPort"));
        assert_eq!(suggest("broker_expire_milis").as_deref(), Some("broker_expire_millis"));
        assert_eq!(suggest("orderMessageEnabled").as_deref(), Some("orderMessageEnable"));
        assert_eq!(suggest("mysqlPassword"), None);
    }

    #[test]
    fn every_default_passes_its_own_check() {
        for setting in all() {
            let text = setting.default.replace("$HOME", "/home/someone");
            let canonical = (setting.check)(setting, &text);
            assert_eq!(canonical, Ok(text), "{}", setting.key);
        }
    }
}
