//! The list of NameServers that a command speaks to.

use std::fmt;
use std::str::FromStr;

use waypost_net::address::{AddressError, HostPort};

/// The port that a NameServer has unless another is named.
pub const DEFAULT_PORT: u16 = 9876;

/// NameServers in the order of the list, each once; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Servers {
    addresses: Vec<HostPort>,
}

impl Servers {
    /// A list of one.
    #[must_use]
    pub fn one(server: HostPort) -> Self {
        Self { addresses: vec![server] }
    }

    /// The servers.
    #[must_use]
    pub fn addresses(&self) -> &[HostPort] {
        &self.addresses
    }
}

impl FromStr for Servers {
    type Err = AddressError;

    /// Reads `a:9876;b:9876`, as `NAMESRV_ADDR` has it; commas separate as well, a missing port is 9876.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let text = text.strip_suffix([';', ',']).unwrap_or(text);
        let mut addresses = Vec::new();
        for item in text.split([';', ',']) {
            let address = HostPort::parse_with_port(item, DEFAULT_PORT)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self { addresses })
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, address) in self.addresses.iter().enumerate() {
            let separator = if position == 0 { "" } else { ";" };
            write!(formatter, "{separator}{address}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Servers;

    #[test]
    fn lists_are_read_with_ports_left_out_and_repetitions_dropped() {
        let table = [
            ("a:9876;b:9877", "a:9876;b:9877"),
            ("a", "a:9876"),
            (" a , b:1 ;", "a:9876;b:1"),
            ("a;a:9876", "a:9876"),
            ("2001:db8::1", "[2001:db8::1]:9876"),
        ];
        for (text, expected) in table {
            let servers: Servers = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(servers.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn lists_with_a_bad_item_are_refused() {
        for text in ["", ";", "a;;b", "a:port", ":9876"] {
            assert!(text.parse::<Servers>().is_err(), "{text:?}");
        }
    }
}
