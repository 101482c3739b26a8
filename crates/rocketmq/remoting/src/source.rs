//! Where the list of name servers comes from.

use thiserror::Error;
use waypost_net::address::{AddressError, AddressList};

use crate::address_server::AddressServer;
use crate::list::{self, EntryError, Reading};

/// The setting of the original that holds the list (spec B1.1 rank 2).
pub const ADDRESS_PROPERTY: &str = "rocketmq.namesrv.addr";

/// The environment variable of the original that holds the list (spec B1.1 rank 3).
pub const ADDRESS_VARIABLE: &str = "NAMESRV_ADDR";

/// The setting of the original that names the host of the address server (spec B1.2).
pub const DOMAIN_PROPERTY: &str = "rocketmq.namesrv.domain";

/// The setting of the original for the end of the address server's path (spec B1.2).
pub const SUBGROUP_PROPERTY: &str = "rocketmq.namesrv.domain.subgroup";

/// How much of a list that cannot be used is told, in characters.
const TEXT_SHOWN: usize = 200;

/// Where the list of name servers comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A text of addresses.
    List(AddressList),
    /// An HTTP server that is asked again and again.
    AddressServer(AddressServer),
}

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nobody says where the servers are.
    #[error(
        "no name server is configured; give a list \"host:9876;host:9876\", or set {ADDRESS_VARIABLE}, \
         {ADDRESS_PROPERTY} or {DOMAIN_PROPERTY}"
    )]
    None,
    /// There is a text, but no entry of it is a server.
    #[error("{}the name server list {text:?} names no server{}; write \"host:9876;host:9876\"", named(.setting), first(.entries))]
    NoAddress {
        /// The setting that holds it; `None` if the caller gave it.
        setting: Option<&'static str>,
        /// The text.
        text: String,
        /// What is wrong with its entries.
        entries: Vec<EntryError>,
    },
    /// The host of the address server is no address.
    #[error("{DOMAIN_PROPERTY} is \"{text}\": {error}")]
    Domain {
        /// The text.
        text: String,
        /// What is wrong with it.
        error: AddressError,
    },
}

fn named(setting: &Option<&'static str>) -> String {
    setting.map(|setting| format!("{setting}: ")).unwrap_or_default()
}

fn first(entries: &[EntryError]) -> String {
    entries.first().map(|entry| format!(" ({entry})")).unwrap_or_default()
}

impl Source {
    /// Reads a list ([`list::read`]). Entries that are no server are left out with one warning in the log: a program
    /// that ran with the rest of the list runs on with it.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoAddress`] when nothing is left.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        Self::of(list::read(text), text, None)
    }

    /// The same for the text of a file, where `#` begins a remark.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoAddress`] when nothing is left.
    pub fn parse_file(text: &str) -> Result<Self, SourceError> {
        Self::of(list::read_file(text), text, None)
    }

    fn of(reading: Reading, text: &str, setting: Option<&'static str>) -> Result<Self, SourceError> {
        let Reading { servers, left_out } = reading;
        if servers.is_empty() {
            let text = text.trim().chars().take(TEXT_SHOWN).collect();
            return Err(SourceError::NoAddress { setting, text, entries: left_out });
        }
        if let Some(first) = left_out.first() {
            tracing::warn!(servers = %servers, left_out = left_out.len(), error = %first, "name server list has entries that are no server");
        }
        Ok(Self::List(servers))
    }

    /// Chooses among what is configured (spec B1.1): `explicit`, then the settings by their names in the
    /// original, which `setting` looks up. What holds no entry is as good as not set. [`Source::from_environment`] looks them up in the environment.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that is set, or [`SourceError::None`].
    pub fn from_settings(
        explicit: Option<&str>,
        setting: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SourceError> {
        let set = |name: &str| setting(name).filter(|value| !list::is_blank(value));
        if let Some(text) = explicit.filter(|text| !list::is_blank(text)) {
            return Self::parse(text);
        }
        for name in [ADDRESS_PROPERTY, ADDRESS_VARIABLE] {
            if let Some(text) = set(name) {
                return Self::of(list::read(&text), &text, Some(name));
            }
        }
        let domain = set(DOMAIN_PROPERTY).ok_or(SourceError::None)?;
        let server = AddressServer::new(&domain, set(SUBGROUP_PROPERTY).as_deref())
            .map_err(|error| SourceError::Domain { text: domain, error })?;
        Ok(Self::AddressServer(server))
    }

    /// [`Source::from_settings`] with the variables of this process.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_environment(explicit: Option<&str>) -> Result<Self, SourceError> {
        Self::from_settings(explicit, |name| std::env::var(name).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Source {
        Source::List(list::read(text).servers)
    }

    #[test]
    fn entries_that_are_no_server_are_left_out() {
        assert_eq!(Source::parse(" a:1; ;b;c:x;d:2;").unwrap(), list("a:1;b:9876;d:2"));
    }

    #[test]
    fn a_list_without_a_server_is_an_error_that_names_the_entry() {
        let error = Source::parse("127.0.0.2;9876").unwrap_err().to_string();
        assert!(error.contains("entry 2 of the name server list"), "{error}");
        assert!(error.contains("did you mean \"127.0.0.2:9876\"?"), "{error}");
    }

    #[test]
    fn settings_rank_as_in_the_original() {
        let settings = |names: &'static [(&str, &str)]| {
            move |name: &str| names.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let all = settings(&[(ADDRESS_PROPERTY, "p:1"), (ADDRESS_VARIABLE, "v:1"), (DOMAIN_PROPERTY, "d")]);
        assert_eq!(Source::from_settings(Some("x:1"), all).unwrap(), list("x:1"));
        assert_eq!(Source::from_settings(None, all).unwrap(), list("p:1"));
        let two = settings(&[(ADDRESS_PROPERTY, " "), (ADDRESS_VARIABLE, "v:1"), (DOMAIN_PROPERTY, "d")]);
        for blank in ["", " ", ";", ",\n"] {
            assert_eq!(Source::from_settings(Some(blank), two).unwrap(), list("v:1"), "{blank:?}");
        }
        let http = settings(&[(DOMAIN_PROPERTY, "d"), (SUBGROUP_PROPERTY, "blue")]);
        let Source::AddressServer(server) = Source::from_settings(None, http).unwrap() else {
            panic!("a list");
        };
        assert_eq!(server.to_string(), "http://d:8080/rocketmq/blue");
        assert_eq!(Source::from_settings(None, |_| None), Err(SourceError::None));
    }
}
