//! Where the list of name servers comes from.

use thiserror::Error;
use waypost_net::address::{AddressError, AddressList, HostPort, ListItemError};

use crate::address_server::AddressServer;

/// The setting of the original that holds the list (spec B1.1 rank 2).
pub const ADDRESS_PROPERTY: &str = "rocketmq.namesrv.addr";

/// The environment variable of the original that holds the list (spec B1.1 rank 3).
pub const ADDRESS_VARIABLE: &str = "NAMESRV_ADDR";

/// The setting of the original that names the host of the address server (spec B1.2).
pub const DOMAIN_PROPERTY: &str = "rocketmq.namesrv.domain";

/// The setting of the original for the end of the address server's path (spec B1.2).
pub const SUBGROUP_PROPERTY: &str = "rocketmq.namesrv.domain.subgroup";

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
    /// There is a text, but no item of it is an address.
    #[error("the name server list \"{text}\" holds no address{}; write \"host:9876;host:9876\"", first(.items))]
    NoAddress {
        /// The text.
        text: String,
        /// What is wrong with its items.
        items: Vec<ListItemError>,
    },
    /// An endpoint (`http://…`) that is no address.
    #[error("the endpoint \"{text}\" holds no address: {error}")]
    Endpoint {
        /// The text.
        text: String,
        /// What is wrong with what follows its last slash.
        error: AddressError,
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

fn first(items: &[ListItemError]) -> String {
    items.first().map(|item| format!(" ({item})")).unwrap_or_default()
}

impl Source {
    /// Reads a list as the original does (spec B1.1): items separated by `;`, or an endpoint `http://host:port`.
    /// Items that are no address are left out with one warning in the log; blanks around items are no part of them.
    ///
    /// # Errors
    ///
    /// [`SourceError::NoAddress`] or [`SourceError::Endpoint`] when nothing is left.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("http://") {
            let address = rest.rsplit('/').next().unwrap_or(rest);
            let address = address
                .parse::<HostPort>()
                .map_err(|error| SourceError::Endpoint { text: text.to_owned(), error })?;
            return Ok(Self::List(AddressList::from_iter([address])));
        }
        let (list, items) = AddressList::parse(text);
        if list.is_empty() {
            return Err(SourceError::NoAddress { text: text.to_owned(), items });
        }
        if let Some(first) = items.first() {
            tracing::warn!(list = text, left_out = items.len(), error = %first, "name server list has items that are no address");
        }
        Ok(Self::List(list))
    }

    /// Chooses among what is configured (spec B1.1): `explicit`, then the settings by their names in the
    /// original, which `setting` looks up. [`Source::from_environment`] looks them up in the environment.
    ///
    /// # Errors
    ///
    /// What is wrong with the first that is set, or [`SourceError::None`].
    pub fn from_settings(
        explicit: Option<&str>,
        setting: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SourceError> {
        let set = |name: &str| setting(name).filter(|value| !value.trim().is_empty());
        let explicit = explicit.filter(|text| !text.trim().is_empty()).map(str::to_owned);
        let text = explicit.or_else(|| set(ADDRESS_PROPERTY)).or_else(|| set(ADDRESS_VARIABLE));
        if let Some(text) = text {
            return Self::parse(&text);
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
        Source::List(text.parse().unwrap())
    }

    #[test]
    fn bad_items_are_left_out() {
        assert_eq!(Source::parse(" a:1; ;b;c:2;").unwrap(), list("a:1;c:2"));
    }

    #[test]
    fn a_list_without_an_address_is_an_error_that_names_the_item() {
        let error = Source::parse("a;b").unwrap_err();
        assert!(error.to_string().contains("item 1 of the address list"), "{error}");
        assert!(error.to_string().contains("has no port"), "{error}");
    }

    #[test]
    fn an_endpoint_is_one_address() {
        assert_eq!(Source::parse("http://ignored/mq.example.com:80").unwrap(), list("mq.example.com:80"));
        assert_eq!(Source::parse("http://mq.example.com:80").unwrap(), list("mq.example.com:80"));
        assert!(matches!(Source::parse("http://a:1;b:2"), Err(SourceError::Endpoint { .. })));
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
        assert_eq!(Source::from_settings(Some(""), two).unwrap(), list("v:1"));
        let http = settings(&[(DOMAIN_PROPERTY, "d"), (SUBGROUP_PROPERTY, "blue")]);
        let Source::AddressServer(server) = Source::from_settings(None, http).unwrap() else {
            panic!("a list");
        };
        assert_eq!(server.to_string(), "http://d:8080/rocketmq/blue");
        assert_eq!(Source::from_settings(None, |_| None), Err(SourceError::None));
    }
}
