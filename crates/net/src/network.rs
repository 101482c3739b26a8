//! Networks in CIDR form, and lists of them that say who may do what.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// A network: an address and how many of its first bits count.
///
/// An IPv4-mapped IPv6 address counts as the IPv4 address, in networks and in what is looked for. The
/// families are apart: `::/0` holds no IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// With all bits zero that do not count.
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// Two separators with nothing between.
    #[error("the list of networks has an empty item; write \"none\" for nobody")]
    Empty,
    /// The part before the slash is no IP address.
    #[error(
        "\"{item}\" is no network; write for example 10.0.0.0/8, 2001:db8::/32, or one of any, loopback, \
         private, none"
    )]
    BadAddress {
        /// The item of the list.
        item: String,
    },
    /// The part after the slash is no number of bits for this family.
    #[error("\"{item}\" has no valid prefix length; it is a number from 0 to {longest}")]
    BadPrefix {
        /// The item of the list.
        item: String,
        /// 32 or 128.
        longest: u8,
    },
    /// `none` stands beside other items.
    #[error("\"none\" stands alone; remove it or the other networks")]
    NoneWithOthers,
}

impl Network {
    /// The network of all addresses that share the first `prefix` bits with `address`. A prefix that is
    /// longer than the address counts as the whole address.
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        let (address, prefix) = match (address, address.to_canonical()) {
            // The 96 bits of the mapping are in the prefix, but not in an IPv4 address.
            (IpAddr::V6(_), IpAddr::V4(mapped)) if prefix >= 96 => {
                (IpAddr::V4(mapped), prefix.saturating_sub(96))
            }
            (address, _) => (address, prefix),
        };
        match address {
            IpAddr::V4(address) => {
                let bits = address.to_bits() & mask_v4(prefix);
                Self { address: Ipv4Addr::from_bits(bits).into(), prefix: prefix.min(32) }
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits() & mask_v6(prefix);
                Self { address: Ipv6Addr::from_bits(bits).into(), prefix: prefix.min(128) }
            }
        }
    }

    /// Whether `address` lies in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                address.to_bits() & mask_v4(self.prefix) == network.to_bits()
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                address.to_bits() & mask_v6(self.prefix) == network.to_bits()
            }
            _ => false,
        }
    }
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0)
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0)
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// `address` or `address/prefix`; bits of the address behind the prefix are dropped.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(NetworkError::Empty);
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| NetworkError::BadAddress { item: text.to_owned() })?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let Some(prefix) = prefix else { return Ok(Self::new(address, longest)) };
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        match prefix.parse::<u8>() {
            Ok(prefix) if digits && prefix <= longest => Ok(Self::new(address, prefix)),
            _ => Err(NetworkError::BadPrefix { item: text.to_owned(), longest }),
        }
    }
}

/// A set of networks, written as items between commas or semicolons. An item is a [`Network`] or a word:
///
/// - `any`: every address;
/// - `loopback`: 127.0.0.0/8 and ::1;
/// - `private`: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7 and the link-local networks
///   169.254.0.0/16 and fe80::/10;
/// - `none`, or nothing at all: no address.
///
/// ```
/// use waypost_net::network::NetworkList;
///
/// let list: NetworkList = "loopback, 10.1.0.0/16".parse().unwrap();
/// assert!(list.contains("::ffff:127.0.0.1".parse().unwrap()));
/// assert_eq!(list.to_string(), "loopback,10.1.0.0/16");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkList {
    items: Vec<Item>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Any,
    Loopback,
    Private,
    Network(Network),
}

impl Item {
    fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => address.is_loopback(),
            Self::Private => is_private(address),
            Self::Network(network) => network.contains(address),
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}

impl NetworkList {
    /// The list that holds every address.
    pub fn any() -> Self {
        Self { items: vec![Item::Any] }
    }

    /// The list that holds no address.
    pub const fn none() -> Self {
        Self { items: Vec::new() }
    }

    /// Whether `address` lies in one of the networks; an IPv4-mapped address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.items.iter().any(|item| item.contains(address))
    }

    /// Whether the list holds no network.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl From<Network> for NetworkList {
    fn from(network: Network) -> Self {
        Self { items: vec![Item::Network(network)] }
    }
}

impl FromStr for NetworkList {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("none") {
            return Ok(Self::none());
        }
        let mut list = Self::none();
        for item in text.split([',', ';']).map(str::trim) {
            list.items.push(match item.to_ascii_lowercase().as_str() {
                "none" => return Err(NetworkError::NoneWithOthers),
                "any" => Item::Any,
                "loopback" => Item::Loopback,
                "private" => Item::Private,
                _ => Item::Network(item.parse()?),
            });
        }
        Ok(list)
    }
}

impl fmt::Display for NetworkList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items.is_empty() {
            return formatter.write_str("none");
        }
        for (position, item) in self.items.iter().enumerate() {
            if position > 0 {
                formatter.write_str(",")?;
            }
            match item {
                Item::Any => formatter.write_str("any")?,
                Item::Loopback => formatter.write_str("loopback")?,
                Item::Private => formatter.write_str("private")?,
                Item::Network(network) => network.fmt(formatter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn list(text: &str) -> NetworkList {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        let table = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.1.2.3/31", "10.1.2.2", true),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "10.0.0.1", false),
            ("::/0", "::ffff:10.0.0.1", false),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::1", "::1", true),
            ("::1/128", "::2", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
        ];
        for (network, address, expected) in table {
            assert_eq!(list(network).contains(ip(address)), expected, "{network} {address}");
        }
    }

    #[test]
    fn words_stand_for_networks() {
        let table = [
            ("any", "8.8.8.8", true),
            ("ANY", "2001:db8::1", true),
            ("loopback", "127.9.9.9", true),
            ("loopback", "::1", true),
            ("loopback", "::ffff:127.0.0.1", true),
            ("loopback", "10.0.0.1", false),
            ("private", "10.0.0.1", true),
            ("private", "172.31.255.255", true),
            ("private", "172.32.0.0", false),
            ("private", "192.168.1.1", true),
            ("private", "169.254.1.1", true),
            ("private", "fd00::1", true),
            ("private", "fe80::1", true),
            ("private", "2001:db8::1", false),
            ("private", "127.0.0.1", false),
            ("none", "127.0.0.1", false),
            ("", "127.0.0.1", false),
            ("loopback; private", "192.168.1.1", true),
        ];
        for (text, address, expected) in table {
            assert_eq!(list(text).contains(ip(address)), expected, "{text} {address}");
        }
    }

    #[test]
    fn lists_are_written_as_they_can_be_read() {
        for (text, expected) in [
            ("", "none"),
            ("none", "none"),
            (" Loopback ;PRIVATE", "loopback,private"),
            ("any", "any"),
            ("10.1.2.3/8, ::1", "10.0.0.0/8,::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("2001:db8::1/40", "2001:db8::/40"),
        ] {
            assert_eq!(list(text).to_string(), expected);
            assert_eq!(list(expected), list(text));
        }
    }

    #[test]
    fn what_is_no_network_is_named() {
        for (text, reason) in [
            ("10.0.0.0/8,", "has an empty item"),
            ("10.0.0.0/8,,any", "has an empty item"),
            ("locahost", "\"locahost\" is no network"),
            ("10.0.0/8", "\"10.0.0/8\" is no network"),
            ("any,10.0.0.0/33", "\"10.0.0.0/33\" has no valid prefix length; it is a number from 0 to 32"),
            ("::/129", "0 to 128"),
            ("10.0.0.0/", "no valid prefix"),
            ("10.0.0.0/+8", "no valid prefix"),
            ("10.0.0.0/8/8", "no valid prefix"),
            ("any,none", "\"none\" stands alone"),
        ] {
            let error = text.parse::<NetworkList>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_network_holds_what_shares_its_prefix(network: IpAddr, prefix in 0u8..=128, address: IpAddr) {
            let network = Network::new(network, prefix);
            prop_assert!(network.contains(network.address));
            let same = Network::new(address.to_canonical(), network.prefix);
            let expected = address.to_canonical().is_ipv4() == network.address.is_ipv4()
                && same.address == network.address;
            prop_assert_eq!(network.contains(address), expected);
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            if let Ok(list) = text.parse::<NetworkList>() {
                prop_assert_eq!(list.to_string().parse(), Ok(list));
            }
        }
    }
}
