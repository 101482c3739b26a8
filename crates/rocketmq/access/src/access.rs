//! Who may send which requests (decision 13).
//!
//! Every request code belongs to one class, and each class has a list of networks that it is taken
//! from. The caller is the address of the connection (or what a trusted PROXY preamble says): a
//! connection asks [`AccessPolicy::permits`] once and each request then costs a bit test.
//!
//! ```
//! use waypost_rocketmq_access::access::{AccessPolicy, RequestClass};
//!
//! let policy = AccessPolicy::default();
//! assert!(policy.check(105, "203.0.113.9".parse().unwrap()).is_ok());
//! let refusal = policy.check(318, "10.0.0.5".parse().unwrap()).unwrap_err();
//! assert_eq!(refusal.class, RequestClass::Config);
//! assert!(refusal.to_string().contains("accessConfig"));
//! ```

use std::net::IpAddr;

use waypost_net::network::NetworkList;
use waypost_rocketmq_wire::code::{self, request, response};

/// What a request does, as far as permission goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestClass {
    /// It asks. Codes that the server does not know belong here: they are answered code 3, which
    /// newer brokers rely on when they probe for features.
    Read,
    /// A broker reports itself.
    Broker,
    /// An operator changes the KV configuration, permissions or topics.
    Admin,
    /// An operator changes settings of the running server.
    Config,
}

impl RequestClass {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Broker, Self::Admin, Self::Config];

    /// The class of a request code.
    #[must_use]
    pub const fn of(code: i32) -> Self {
        match code {
            request::REGISTER_BROKER
            | request::UNREGISTER_BROKER
            | request::REGISTER_TOPIC_IN_NAMESRV
            | request::QUERY_DATA_VERSION
            | request::BROKER_HEARTBEAT => Self::Broker,
            request::PUT_KV_CONFIG
            | request::DELETE_KV_CONFIG
            | request::WIPE_WRITE_PERM_OF_BROKER
            | request::DELETE_TOPIC_IN_NAMESRV
            | request::ADD_WRITE_PERM_OF_BROKER => Self::Admin,
            request::UPDATE_NAMESRV_CONFIG => Self::Config,
            _ => Self::Read,
        }
    }

    /// What says who may, as an operator writes it.
    #[must_use]
    pub const fn setting(self, guard: Guard) -> &'static str {
        match (guard, self) {
            (Guard::NameServer, Self::Read) => "accessRead",
            (Guard::NameServer, Self::Broker) => "accessBroker",
            (Guard::NameServer, Self::Admin) => "accessAdmin",
            (Guard::NameServer, Self::Config) => "accessConfig",
            (Guard::Agent, Self::Read) => "--access-read",
            (Guard::Agent, Self::Broker) => "--access-broker",
            // It takes no settings itself; who may ask for them does not depend on a network.
            (Guard::Agent, Self::Admin | Self::Config) => "--access-admin",
        }
    }

    /// A short name, fit for a metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Broker => "broker",
            Self::Admin => "admin",
            Self::Config => "config",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which program guards its requests: its settings have names of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Guard {
    /// A name server.
    NameServer,
    /// An agent, which passes requests on with its own address.
    Agent,
}

impl Guard {
    const fn name(self) -> &'static str {
        match self {
            Self::NameServer => "name server",
            Self::Agent => "agent",
        }
    }
}

/// A request that its caller may not send. Its text is the remark of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} from {caller} is not allowed: add the address to {} of the {}", request_text(*code), class.setting(*guard), guard.name())]
pub struct AccessRefusal {
    /// The request code.
    pub code: i32,
    /// The class of the request.
    pub class: RequestClass,
    /// Who asked.
    pub caller: IpAddr,
    /// Who refused.
    pub guard: Guard,
}

impl AccessRefusal {
    /// The response code.
    #[must_use]
    pub const fn response_code(&self) -> i32 {
        response::NO_PERMISSION
    }
}

fn request_text(request: i32) -> String {
    match code::request_name(request) {
        Some(name) => format!("request {request} {name}"),
        None => format!("request {request}"),
    }
}

/// The networks that each class of requests is taken from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessPolicy {
    /// Who guards.
    pub guard: Guard,
    /// Where [`RequestClass::Read`] is taken from.
    pub read: NetworkList,
    /// Where [`RequestClass::Broker`] is taken from.
    pub broker: NetworkList,
    /// Where [`RequestClass::Admin`] is taken from.
    pub admin: NetworkList,
    /// Where [`RequestClass::Config`] is taken from.
    pub config: NetworkList,
}

impl AccessPolicy {
    /// What an agent allows unless told otherwise: read and broker from anywhere, the others from loopback, because
    /// name servers take the agent's own address for that of an operator.
    #[must_use]
    pub fn of_agent() -> Self {
        Self { guard: Guard::Agent, admin: loopback(), ..Self::default() }
    }

    /// Whether `caller` may send requests of this code. An IPv4-mapped address counts as IPv4.
    ///
    /// # Errors
    ///
    /// The refusal, which names the setting to change.
    pub fn check(&self, code: i32, caller: IpAddr) -> Result<(), AccessRefusal> {
        let class = RequestClass::of(code);
        let caller = caller.to_canonical();
        if self.networks(class).contains(caller) {
            Ok(())
        } else {
            Err(AccessRefusal { code, class, caller, guard: self.guard })
        }
    }

    /// What `caller` may do, to be kept with its connection.
    #[must_use]
    pub fn permits(&self, caller: IpAddr) -> Permits {
        let caller = caller.to_canonical();
        let mut classes = 0;
        for class in RequestClass::ALL {
            if self.networks(class).contains(caller) {
                classes |= class.bit();
            }
        }
        Permits { classes, caller, guard: self.guard }
    }

    fn networks(&self, class: RequestClass) -> &NetworkList {
        match class {
            RequestClass::Read => &self.read,
            RequestClass::Broker => &self.broker,
            RequestClass::Admin => &self.admin,
            RequestClass::Config => &self.config,
        }
    }
}

impl Default for AccessPolicy {
    /// Read and broker from anywhere, admin from loopback and private networks, config from
    /// loopback.
    fn default() -> Self {
        Self {
            guard: Guard::NameServer,
            read: NetworkList::any(),
            broker: NetworkList::any(),
            admin: "loopback,private".parse().unwrap_or_else(|_| NetworkList::none()),
            config: loopback(),
        }
    }
}

fn loopback() -> NetworkList {
    // Never fails; were it to, nobody would be let in.
    "loopback".parse().unwrap_or_else(|_| NetworkList::none())
}

/// What one caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permits {
    classes: u8,
    caller: IpAddr,
    guard: Guard,
}

impl Permits {
    /// Whether requests of this code may be sent.
    ///
    /// # Errors
    ///
    /// The refusal, which names the setting to change.
    #[inline]
    pub const fn check(&self, code: i32) -> Result<(), AccessRefusal> {
        let class = RequestClass::of(code);
        if self.classes & class.bit() != 0 {
            Ok(())
        } else {
            Err(AccessRefusal { code, class, caller: self.caller, guard: self.guard })
        }
    }

    /// Who it is about, in canonical form.
    #[must_use]
    pub const fn caller(&self) -> IpAddr {
        self.caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn policy(read: &str, broker: &str, admin: &str, config: &str) -> AccessPolicy {
        let list = |text: &str| text.parse().unwrap();
        AccessPolicy {
            guard: Guard::NameServer,
            read: list(read),
            broker: list(broker),
            admin: list(admin),
            config: list(config),
        }
    }

    #[test]
    fn each_code_has_the_class_of_decision_13() {
        let classes = [
            (RequestClass::Read, &[101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 319, 901][..]),
            (RequestClass::Broker, &[103, 104, 217, 322, 904]),
            (RequestClass::Admin, &[100, 102, 205, 216, 327]),
            (RequestClass::Config, &[318]),
        ];
        for (class, codes) in classes {
            for code in codes {
                assert_eq!(RequestClass::of(*code), class, "{code}");
            }
        }
    }

    #[test]
    fn unknown_codes_may_be_asked_by_readers() {
        for code in [-1, 0, 10, 905, 1_001, i32::MAX] {
            assert_eq!(RequestClass::of(code), RequestClass::Read);
        }
    }

    #[test]
    fn by_default_outsiders_read_and_register_and_no_more() {
        let policy = AccessPolicy::default();
        for (caller, allowed) in [
            ("203.0.113.9", &[105, 103][..]),
            ("10.1.2.3", &[105, 103, 100]),
            ("fd00::1", &[105, 103, 100]),
            ("127.0.0.1", &[105, 103, 100, 318]),
            ("::1", &[105, 103, 100, 318]),
            ("::ffff:127.0.0.1", &[105, 103, 100, 318]),
            ("::ffff:203.0.113.9", &[105, 103]),
        ] {
            for code in [105, 103, 100, 318] {
                let expected = allowed.contains(&code);
                assert_eq!(policy.check(code, ip(caller)).is_ok(), expected, "{code} from {caller}");
                assert_eq!(policy.permits(ip(caller)).check(code).is_ok(), expected, "{code} from {caller}");
            }
        }
    }

    #[test]
    fn a_refusal_is_code_16_and_names_the_request_the_caller_and_the_setting() {
        let policy = policy("none", "10.0.0.0/8", "any", "any");
        let refusal = policy.check(105, ip("::ffff:10.0.0.5")).unwrap_err();
        assert_eq!(refusal.response_code(), 16);
        assert_eq!(
            refusal.to_string(),
            "request 105 GET_ROUTEINFO_BY_TOPIC from 10.0.0.5 is not allowed: add the address to accessRead of the \
             name server"
        );
        let refusal = policy.permits(ip("192.0.2.1")).check(104).unwrap_err();
        assert_eq!((refusal.class.setting(refusal.guard), refusal.caller), ("accessBroker", ip("192.0.2.1")));
        assert!(policy.check(104, ip("::ffff:10.9.9.9")).is_ok());
    }

    #[test]
    fn an_agent_takes_writes_of_operators_from_loopback_only() {
        let policy = AccessPolicy::of_agent();
        for caller in ["10.1.2.3", "fd00::1", "203.0.113.9", "::ffff:10.1.2.3"] {
            for code in [100, 102, 205, 216, 318, 327] {
                let refusal = policy.permits(ip(caller)).check(code).unwrap_err();
                assert!(
                    refusal.to_string().ends_with("add the address to --access-admin of the agent"),
                    "{refusal}"
                );
            }
            assert!(
                [105, 103].iter().all(|code| policy.permits(ip(caller)).check(*code).is_ok()),
                "{caller}"
            );
        }
        for code in [100, 102, 205, 216, 327] {
            assert!(policy.permits(ip("127.0.0.1")).check(code).is_ok(), "{code}");
        }
    }
}
