//! Who the broker is.

use std::net::IpAddr;

use waypost_net::address::{AddressList, Host, HostPort};

use crate::error::IdentityError;

/// What a broker says of itself in every request (part C 1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster (`brokerClusterName`).
    pub cluster: String,
    /// The broker group that master and slaves share (`brokerName`).
    pub broker: String,
    /// Where clients find this broker (`brokerIP1:listenPort`).
    pub address: HostPort,
    /// Where slaves fetch from (`brokerIP2:haListenPort`); [`Identity::address`] with the next port if
    /// `None`, as brokers have it.
    pub ha_address: Option<HostPort>,
    /// The zone (`__ZONE_NAME`), if the broker has one.
    pub zone: Option<String>,
}

/// What this member of its broker group is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Not known yet, or not any more: nothing is registered, and what was registered is taken back. A member
    /// that took id 0 before it knows its role would push the living master out of the routes (A5).
    Undecided,
    /// The master, id 0.
    Master,
    /// A slave with its id, which is greater than 0.
    Slave(u64),
}

impl Role {
    /// The broker id; `None` while undecided.
    #[must_use]
    pub const fn id(self) -> Option<u64> {
        match self {
            Self::Undecided => None,
            Self::Master => Some(0),
            Self::Slave(id) => Some(id),
        }
    }
}

impl Identity {
    /// A broker without a zone, whose HA port follows its port.
    #[must_use]
    pub fn new(cluster: &str, broker: &str, address: HostPort) -> Self {
        Self { cluster: cluster.to_owned(), broker: broker.to_owned(), address, ha_address: None, zone: None }
    }

    /// The HA address as it is announced.
    pub(crate) fn announced_ha_address(&self) -> String {
        let next = || HostPort { host: self.address.host.clone(), port: self.address.port.saturating_add(1) };
        self.ha_address.clone().unwrap_or_else(next).to_string()
    }

    pub(crate) fn check(&self, role: Role) -> Result<(), IdentityError> {
        for (what, text) in [("cluster name", &self.cluster), ("broker name", &self.broker)] {
            if text.is_empty() || text.chars().any(char::is_whitespace) {
                return Err(IdentityError::Name { what, name: text.clone() });
            }
        }
        check_role(role)
    }

    /// Refuses an address that clients on other machines cannot reach, unless `servers` are on this machine,
    /// too. `None` stands for servers that are not known yet: they count as remote.
    pub(crate) fn check_reachable(&self, servers: Option<&AddressList>) -> Result<(), IdentityError> {
        let address = self.address.clone();
        if address.port == 0 {
            return Err(IdentityError::NoPort { address });
        }
        let remote = match servers {
            Some(list) => list.addresses().iter().find(|server| !is_here(&server.host)).cloned(),
            None => None,
        };
        let all_here = servers.is_some() && remote.is_none();
        let unspecified = matches!(&address.host, Host::Ip(ip) if ip.to_canonical().is_unspecified());
        if unspecified || (is_here(&address.host) && !all_here) {
            return Err(IdentityError::Unreachable { address, server: remote });
        }
        Ok(())
    }
}

pub(crate) fn check_role(role: Role) -> Result<(), IdentityError> {
    match role {
        Role::Slave(0) => Err(IdentityError::SlaveWithIdZero),
        Role::Slave(id) if i64::try_from(id).is_err() => Err(IdentityError::IdTooLarge { id }),
        _ => Ok(()),
    }
}

/// Whether the host is this machine for whoever uses the address.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => match ip.to_canonical() {
            ip @ IpAddr::V4(_) => ip.is_loopback() || ip.is_unspecified(),
            ip @ IpAddr::V6(_) => ip.is_loopback() || ip.is_unspecified(),
        },
        Host::Name(name) => {
            let name = name.trim_end_matches('.');
            name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(address: &str) -> Identity {
        Identity::new("C", "b", address.parse().expect("an address"))
    }

    fn list(text: &str) -> AddressList {
        waypost_rocketmq_remoting::list::read(text).servers
    }

    #[test]
    fn an_address_of_this_machine_only_is_refused_when_a_server_is_elsewhere() {
        let table = [
            ("127.0.0.1:10911", "127.0.0.1:9876", true),
            ("127.0.0.1:10911", "localhost:9876;[::1]:9876", true),
            ("127.0.0.1:10911", "127.0.0.1:9876;10.0.0.1:9876", false),
            ("localhost:10911", "10.0.0.1:9876", false),
            ("[::1]:10911", "ns.example:9876", false),
            ("[::ffff:127.0.0.1]:10911", "ns.example:9876", false),
            ("0.0.0.0:10911", "127.0.0.1:9876", false),
            ("[::]:10911", "127.0.0.1:9876", false),
            ("10.0.0.7:0", "127.0.0.1:9876", false),
            ("10.0.0.7:10911", "10.0.0.1:9876", true),
            ("broker.example:10911", "10.0.0.1:9876", true),
        ];
        for (address, servers, reachable) in table {
            let result = identity(address).check_reachable(Some(&list(servers)));
            assert_eq!(result.is_ok(), reachable, "{address} with {servers}: {result:?}");
        }
        assert!(identity("127.0.0.1:10911").check_reachable(None).is_err(), "servers that are not known yet");
    }

    #[test]
    fn the_refusal_names_the_address_the_server_and_the_way_out() {
        let error = identity("127.0.0.1:10911").check_reachable(Some(&list("10.0.0.1:9876"))).unwrap_err();
        let text = error.to_string();
        for part in ["127.0.0.1:10911", "10.0.0.1:9876", "allow_unreachable"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn names_and_ids_that_no_server_takes_are_refused() {
        assert!(identity("10.0.0.1:1").check(Role::Master).is_ok());
        assert!(Identity { cluster: String::new(), ..identity("10.0.0.1:1") }.check(Role::Master).is_err());
        assert!(Identity { broker: "a b".to_owned(), ..identity("10.0.0.1:1") }.check(Role::Master).is_err());
        assert_eq!(identity("10.0.0.1:1").check(Role::Slave(0)), Err(IdentityError::SlaveWithIdZero));
        assert!(identity("10.0.0.1:1").check(Role::Slave(u64::MAX)).is_err());
    }

    #[test]
    fn the_ha_port_follows_the_port() {
        assert_eq!(identity("10.0.0.1:10911").announced_ha_address(), "10.0.0.1:10912");
        let ha_address = Some("10.1.0.1:7".parse().expect("an address"));
        assert_eq!(Identity { ha_address, ..identity("10.0.0.1:1") }.announced_ha_address(), "10.1.0.1:7");
    }
}
