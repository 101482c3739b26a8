//! One parser for the addresses that people and peers write.
//!
//! Accepted: `host:port`, `1.2.3.4:port`, `[v6]:port`, and a bare IPv6 address whose port follows the
//! last colon (`2001:db8::1:10911` is port 10911 of `2001:db8::1`).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The longest host name that the domain name system can hold, in bytes.
const MAX_NAME: usize = 253;

/// The part of an address that says which machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A literal address.
    Ip(IpAddr),
    /// A name to resolve, or an IPv6 address with a zone (`fe80::1%eth0`), which the system resolves.
    Name(String),
}

/// A machine and a port.
///
/// ```
/// use waypost_net::address::HostPort;
///
/// let address: HostPort = "2001:db8::1:10911".parse().unwrap();
/// assert_eq!(address.to_string(), "[2001:db8::1]:10911");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Which machine.
    pub host: Host,
    /// Which port; 0 is allowed and means "any" to a listener.
    pub port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The text or the list item is empty.
    #[error("an address is empty; write host:port, for example 127.0.0.1:9876")]
    Empty,
    /// There is a host but no port.
    #[error("address \"{text}\" has no port; write {suggestion}")]
    NoPort {
        /// What was given.
        text: String,
        /// How it could be written.
        suggestion: String,
    },
    /// There is a port but no host.
    #[error("address \"{text}\" has no host; write for example 127.0.0.1{text}")]
    NoHost {
        /// What was given.
        text: String,
    },
    /// What follows the last colon is no port.
    #[error("address \"{text}\" has the port \"{port}\"; a port is a number from 0 to 65535")]
    BadPort {
        /// What was given.
        text: String,
        /// The part that is no port.
        port: String,
    },
    /// A `[` without `]`, or brackets around something that is no IPv6 address.
    #[error("address \"{text}\" has broken brackets; write an IPv6 address as [2001:db8::1]:9876")]
    BadBrackets {
        /// What was given.
        text: String,
    },
    /// The host is neither an IP address nor a possible name.
    #[error(
        "address \"{text}\" has the host \"{host}\", which is neither an IP address nor a name of letters, \
         digits, \"-\", \"_\" and \".\""
    )]
    BadHost {
        /// What was given.
        text: String,
        /// The part that is no host.
        host: String,
    },
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(formatter),
            Self::Name(name) => formatter.write_str(name),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(address)) => write!(formatter, "[{address}]:{}", self.port),
            Host::Name(name) if name.contains(':') => write!(formatter, "[{name}]:{}", self.port),
            host => write!(formatter, "{host}:{}", self.port),
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match split(text)? {
            (host, Some(port)) => Ok(Self { host, port }),
            (host, None) => {
                let suggestion = Self { host, port: 9876 }.to_string();
                Err(AddressError::NoPort { text: text.trim().to_owned(), suggestion })
            }
        }
    }
}

impl HostPort {
    /// Parses an address whose port may be left out.
    ///
    /// # Errors
    ///
    /// As [`FromStr`], but for [`AddressError::NoPort`].
    pub fn parse_with_port(text: &str, default_port: u16) -> Result<Self, AddressError> {
        let (host, port) = split(text)?;
        Ok(Self { host, port: port.unwrap_or(default_port) })
    }

    /// Whether both mean one machine and port: in names, capitals make no difference.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_host = match (&self.host, &other.host) {
            (Host::Name(one), Host::Name(other)) => one.eq_ignore_ascii_case(other),
            (one, other) => one == other,
        };
        same_host && self.port == other.port
    }

    /// The address, if the host is a literal one.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Ip(address) => Some(SocketAddr::new(*address, self.port)),
            Host::Name(_) => None,
        }
    }
}

/// Addresses in an order, each once. It is shown as `NAMESRV_ADDR` has it, separated by `;`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressList {
    addresses: Vec<HostPort>,
}

impl AddressList {
    /// The addresses in the order of the list.
    pub fn addresses(&self) -> &[HostPort] {
        &self.addresses
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

impl FromIterator<HostPort> for AddressList {
    /// Repeated addresses are kept once.
    fn from_iter<I: IntoIterator<Item = HostPort>>(addresses: I) -> Self {
        let mut list = Self::default();
        for address in addresses {
            if !list.addresses.iter().any(|known| known.is_same(&address)) {
                list.addresses.push(address);
            }
        }
        list
    }
}

impl fmt::Display for AddressList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, address) in self.addresses.iter().enumerate() {
            let separator = if position == 0 { "" } else { ";" };
            write!(formatter, "{separator}{address}")?;
        }
        Ok(())
    }
}

/// Takes an address apart; the port may be missing.
fn split(text: &str) -> Result<(Host, Option<u16>), AddressError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if let Some(inner) = text.strip_prefix('[') {
        return split_bracketed(text, inner);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Ok((parse_host(text, text)?, None));
    };
    if host.is_empty() {
        return Err(AddressError::NoHost { text: text.to_owned() });
    }
    if !host.contains(':') {
        return Ok((parse_host(text, host)?, Some(parse_port(text, port)?)));
    }
    // More than one colon: only IPv6 is left. The last colon belongs to the port if what stands before it
    // is an address; else the whole may be an address without a port.
    match (parse_v6(host), parse_v6(text)) {
        (Some(host), _) => Ok((host, Some(parse_port(text, port)?))),
        (None, Some(host)) => Ok((host, None)),
        (None, None) => Err(AddressError::BadHost { text: text.to_owned(), host: host.to_owned() }),
    }
}

fn split_bracketed(text: &str, inner: &str) -> Result<(Host, Option<u16>), AddressError> {
    let broken = || AddressError::BadBrackets { text: text.to_owned() };
    let (host, rest) = inner.split_once(']').ok_or_else(broken)?;
    let host = parse_v6(host).ok_or_else(broken)?;
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(parse_port(text, port)?))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(broken()),
    }
}

fn parse_port(text: &str, port: &str) -> Result<u16, AddressError> {
    let bad = || AddressError::BadPort { text: text.to_owned(), port: port.to_owned() };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        // The standard parser would take a leading "+".
        return Err(bad());
    }
    port.parse().map_err(|_| bad())
}

fn parse_v6(text: &str) -> Option<Host> {
    if let Some((address, zone)) = text.split_once('%') {
        let _: Ipv6Addr = address.parse().ok()?;
        return is_name(zone).then(|| Host::Name(text.to_owned()));
    }
    text.parse::<Ipv6Addr>().ok().map(|address| Host::Ip(address.into()))
}

fn parse_host(text: &str, host: &str) -> Result<Host, AddressError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Host::Ip(address));
    }
    if is_name(host) {
        return Ok(Host::Name(host.to_owned()));
    }
    Err(AddressError::BadHost { text: text.to_owned(), host: host.to_owned() })
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_of_every_form_are_read() {
        let table = [
            ("127.0.0.1:9876", "127.0.0.1:9876"),
            ("  127.0.0.1:9876 ", "127.0.0.1:9876"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("broker-a.example.com:10911", "broker-a.example.com:10911"),
            ("rocketmq_namesrv:9876", "rocketmq_namesrv:9876"),
            ("localhost:65535", "localhost:65535"),
            ("[::1]:9876", "[::1]:9876"),
            ("[2001:db8::1]:10911", "[2001:db8::1]:10911"),
            ("2001:db8::1:10911", "[2001:db8::1]:10911"),
            ("::1:9876", "[::1]:9876"),
            ("1:2:3:4:5:6:7:8:9876", "[1:2:3:4:5:6:7:8]:9876"),
            ("[::ffff:10.0.0.1]:9876", "[::ffff:10.0.0.1]:9876"),
            ("::ffff:10.0.0.1:9876", "[::ffff:10.0.0.1]:9876"),
            ("[fe80::1%eth0]:9876", "[fe80::1%eth0]:9876"),
            ("fe80::1%eth0:9876", "[fe80::1%eth0]:9876"),
            ("[2001:DB8::0:1]:00080", "[2001:db8::1]:80"),
        ];
        for (text, expected) in table {
            let address: HostPort = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(address.to_string(), expected, "{text}");
            assert_eq!(address.to_string().parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_addresses_are_refused_with_the_reason() {
        let table = [
            ("", "an address is empty"),
            ("   ", "an address is empty"),
            ("127.0.0.1", "has no port; write 127.0.0.1:9876"),
            ("localhost", "has no port; write localhost:9876"),
            ("2001:db8::1", "has no port; write [2001:db8::1]:9876"),
            ("[2001:db8::1]", "has no port; write [2001:db8::1]:9876"),
            ("fe80::1%eth0", "has no port; write [fe80::1%eth0]:9876"),
            (":9876", "has no host; write for example 127.0.0.1:9876"),
            ("127.0.0.1:", "has the port \"\""),
            ("127.0.0.1:65536", "has the port \"65536\""),
            ("127.0.0.1:+80", "has the port \"+80\""),
            ("127.0.0.1:-1", "has the port \"-1\""),
            ("127.0.0.1:x", "has the port \"x\""),
            ("[::1]:x", "has the port \"x\""),
            ("[broken", "has broken brackets"),
            ("[broken]:80", "has broken brackets"),
            ("[::1]9876", "has broken brackets"),
            ("[127.0.0.1]:80", "has broken brackets"),
            ("[fe80::1%]:80", "has broken brackets"),
            ("a:b:80", "has the host \"a:b\""),
            ("10.0.0.1:9876:9877", "has the host \"10.0.0.1:9876\""),
            ("http://host:80", "has the host \"http://host\""),
            ("two words:80", "has the host \"two words\""),
            ("h\u{f6}st:80", "has the host"),
        ];
        for (text, reason) in table {
            let error = text.parse::<HostPort>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let long = format!("{}:80", "a".repeat(254));
        assert!(matches!(long.parse::<HostPort>(), Err(AddressError::BadHost { .. })));
    }

    #[test]
    fn a_missing_port_can_be_given() {
        for (text, expected) in
            [("::1", "[::1]:9876"), ("host", "host:9876"), ("[::1]", "[::1]:9876"), ("host:1", "host:1")]
        {
            assert_eq!(HostPort::parse_with_port(text, 9876).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_list_has_each_address_once() {
        let address = |text: &str| text.parse::<HostPort>().unwrap();
        let list = AddressList::from_iter(["a:1", "[::1]:2", "A:1", "a:2", "a:1"].map(address));
        assert_eq!(list.to_string(), "a:1;[::1]:2;a:2");
        assert!(AddressList::default().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            if let Ok(address) = text.parse::<HostPort>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }

        #[test]
        fn any_colons_and_digits_are_read_or_refused(text in "[0-9a-f:.%\\[\\]]{0,30}") {
            if let Ok(address) = text.parse::<HostPort>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }

        #[test]
        fn socket_addresses_round_trip(address: SocketAddr) {
            let host_port = HostPort::from(address);
            prop_assert_eq!(host_port.to_string().parse(), Ok(host_port));
        }
    }
}
