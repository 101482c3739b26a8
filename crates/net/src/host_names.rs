//! Names by which an HTTP side may be asked.
//!
//! A browser sends the name that stands in its address line as `Host`. A web page can give a name of its own the
//! address of somebody's loopback (DNS rebinding) and read from there what only that machine may see; but it cannot
//! make the browser send another name. So names that nobody listed are refused. IP addresses and `localhost` cannot be
//! had by a stranger.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// The longest name of the domain name system.
const NAME_MAX: usize = 253;

/// A list of host names, without ports and in small letters. IP addresses and `localhost` belong to every list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    names: Vec<String>,
}

/// A text that is no list of host names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be host names without port, separated by \",\", such as ns1.example.com: \"{0}\" is none")]
pub struct HostNameError(String);

impl HostNames {
    /// Whether the value of a `Host` header, with or without port, names this machine by an IP address, as
    /// `localhost` or by a name of the list.
    pub fn admit(&self, host: &str) -> bool {
        let Some(name) = without_port(host.trim()) else { return false };
        if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            // A link-local address may say through which interface.
            return address.split('%').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        }
        let name = canonical(name);
        name.parse::<Ipv4Addr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

/// What stands before the port; `None` if that is no port.
fn without_port(host: &str) -> Option<&str> {
    let end = host.rfind(']').map_or(0, |bracket| bracket.saturating_add(1));
    let Some(colon) = host.get(end..)?.find(':') else { return Some(host) };
    let (name, port) = host.split_at_checked(end.checked_add(colon)?)?;
    port.strip_prefix(':')?.chars().all(|digit| digit.is_ascii_digit()).then_some(name)
}

/// In small letters and without the dot that ends a full name.
fn canonical(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl FromStr for HostNames {
    type Err = HostNameError;

    /// Reads names separated by `,` or `;`. Empty entries count for nothing, so an empty text is an empty list.
    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let mut names = Vec::new();
        for item in text.split([',', ';']).map(str::trim).filter(|item| !item.is_empty()) {
            let name = canonical(item);
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            let is_name = !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits);
            if !is_name {
                return Err(HostNameError(item.escape_default().to_string()));
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(Self { names })
    }
}

impl fmt::Display for HostNames {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> HostNames {
        text.parse().expect("names")
    }

    #[test]
    fn addresses_and_localhost_are_admitted_without_being_listed() {
        let nobody = HostNames::default();
        for host in [
            "127.0.0.1",
            "127.0.0.1:9880",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:9880",
            "[fe80::1%eth0]:9880",
            "localhost",
            "LocalHost:9880",
            "localhost.",
            " 127.0.0.1:9880 ",
        ] {
            assert!(nobody.admit(host), "{host}");
        }
    }

    #[test]
    fn every_other_name_has_to_be_listed() {
        let some = names("ns1.example.com");
        for host in [
            "",
            ":9880",
            "evil.example",
            "evil.example:9880",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:127.0.0.1",
            "user@127.0.0.1",
            "127.0.0.1@evil.example",
            "127.0.0.1/",
            "::1",
            "[::1",
            "[::1]evil",
            "[::1]:port",
            "[evil.example]",
            "[127.0.0.1]",
            "0x7f000001",
            "2130706433",
            "127.1",
            "ns1.example.com.evil",
            "xns1.example.com",
            "example.com",
            "localhost:80:80",
        ] {
            assert!(!some.admit(host), "{host}");
        }
        for host in ["ns1.example.com", "NS1.Example.COM:9880", "ns1.example.com."] {
            assert!(some.admit(host), "{host}");
        }
    }

    #[test]
    fn lists_are_read_tolerantly_and_written_one_way() {
        assert_eq!(names(" NS1.example.com. ;ns2 ,, ns1.example.com").to_string(), "ns1.example.com,ns2");
        assert_eq!(names("").to_string(), "");
        for wrong in ["ns1:9880", "http://ns1", "*", "a b", "[::1]", "."] {
            let error = wrong.parse::<HostNames>().expect_err(wrong);
            assert!(error.to_string().contains("without port"), "{error}");
        }
    }
}
