//! The list of NameServers that a command speaks to.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use waypost_net::address::{AddressList, HostPort};
use waypost_rocketmq_remoting::list::{self, EntryError, Reading};

pub use waypost_rocketmq_remoting::list::DEFAULT_PORT;

/// NameServers in the order of the list, each once; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Servers {
    list: AddressList,
}

/// Why a text is no list for a command.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ServersError {
    /// Nothing stands there.
    #[error("the name server list is empty; write \"host:{DEFAULT_PORT};host:{DEFAULT_PORT}\"")]
    Empty,
    /// Some entries are no server. A program that goes on would leave them out; a command would change some servers
    /// and not those that were meant, and somebody is there to mend the list.
    #[error("{}", joined(.0))]
    Entries(Vec<EntryError>),
}

/// How many bad entries are told.
const ENTRIES_TOLD: usize = 3;

fn joined(entries: &[EntryError]) -> String {
    let mut told: Vec<String> = entries.iter().take(ENTRIES_TOLD).map(ToString::to_string).collect();
    let more = entries.len().saturating_sub(ENTRIES_TOLD);
    if more > 0 {
        told.push(format!("{more} more entries are no server"));
    }
    told.join("; ")
}

impl Servers {
    /// A list of one.
    #[must_use]
    pub fn one(server: HostPort) -> Self {
        Self { list: AddressList::from_iter([server]) }
    }

    /// Those of a list, if there are any.
    #[must_use]
    pub fn of(list: AddressList) -> Option<Self> {
        (!list.addresses().is_empty()).then_some(Self { list })
    }

    /// The servers.
    #[must_use]
    pub fn addresses(&self) -> &[HostPort] {
        self.list.addresses()
    }

    /// The list as libraries take it.
    #[must_use]
    pub fn list(&self) -> AddressList {
        self.list.clone()
    }

    /// The first of `texts` that holds an entry; the others are as good as not set.
    ///
    /// # Errors
    ///
    /// Entries of it that are no server, or that none holds one.
    pub fn first_set<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ServersError> {
        texts.into_iter().find(|text| !list::is_blank(text)).ok_or(ServersError::Empty)?.parse()
    }
}

impl FromStr for Servers {
    type Err = ServersError;

    /// Reads a list as the libraries do ([`list::read`]), but refuses it if an entry is no server.
    fn from_str(text: &str) -> Result<Self, ServersError> {
        let Reading { servers, left_out } = list::read(text);
        if !left_out.is_empty() {
            Err(ServersError::Entries(left_out))
        } else if servers.is_empty() {
            Err(ServersError::Empty)
        } else {
            Ok(Self { list: servers })
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::Servers;

    #[test]
    fn what_holds_no_entry_is_as_good_as_not_set() {
        for (texts, expected) in
            [(["", "b", "c"], "b:9876"), (["a", "b", "c"], "a:9876"), ([" ; ", "\n", "c"], "c:9876")]
        {
            assert_eq!(Servers::first_set(texts).expect("a list").to_string(), expected, "{texts:?}");
        }
        assert!(Servers::first_set([""]).is_err());
        assert!(Servers::first_set(["a:port", "b"]).is_err(), "what is wrong is not passed over");
    }

    #[test]
    fn each_bad_entry_is_told_up_to_three() {
        let error = "a:1;b:x;9876".parse::<Servers>().expect_err("bad entries").to_string();
        assert!(error.contains("entry 2") && error.contains("entry 3"), "{error}");
        let error = "a:x,a:x,a:x,a:x,a:x".parse::<Servers>().expect_err("bad entries").to_string();
        assert!(error.ends_with("2 more entries are no server"), "{error}");
    }
}
