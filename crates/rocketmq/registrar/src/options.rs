//! What a registrar is told at its start.

use std::time::Duration;

use waypost_net::dialer::Dialer;
use waypost_rocketmq_remoting::source::Source;

use crate::identity::{Identity, Role};
use crate::topics::Topic;

/// The shortest and the longest period of registrations (part C 1).
const PERIOD_MIN: Duration = Duration::from_secs(10);
const PERIOD_MAX: Duration = Duration::from_secs(60);

/// Everything that a registrar is told at its start.
#[derive(Debug)]
pub struct Options {
    /// Who the broker is.
    pub identity: Identity,
    /// What it is in its group. Default: [`Role::Undecided`], which registers nothing.
    pub role: Role,
    /// Its topics at start.
    pub topics: Vec<Topic>,
    /// Where the name servers are.
    pub servers: Source,
    /// Opens the connections.
    pub dialer: Dialer,
    /// When it registers.
    pub timing: Timing,
    /// How it registers.
    pub form: Form,
    /// Announce an address that other machines cannot reach, such as 127.0.0.1, all the same.
    pub allow_unreachable: bool,
    /// Seeds the jitter; from the system if `None`.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults for this broker and these servers.
    #[must_use]
    pub fn new(identity: Identity, servers: Source) -> Self {
        Self {
            identity,
            role: Role::Undecided,
            topics: Vec::new(),
            servers,
            dialer: Dialer::default(),
            timing: Timing::default(),
            form: Form::default(),
            allow_unreachable: false,
            seed: None,
        }
    }
}

/// When a registrar speaks to a server (part C 1, part C 4, part C 11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// From one registration to the next. Default 30 s, held between 10 and 60 s.
    pub period: Duration,
    /// From the first registration on a connection to the second, at most; half of it at least, so that
    /// brokers that met a new server together do not come together for ever. Default 10 s.
    pub first_delay: Duration,
    /// Whether the registration is repeated at each period even if the server says that it has it
    /// (`forceRegister`). Default true.
    pub force: bool,
    /// How often a server is asked (322, with an answer) which version it has: so one that forgot the broker
    /// is noticed before the period is over. Zero: never. Default 5 s.
    pub check: Duration,
    /// Heartbeats of brokers with acting masters. Default: none.
    pub acting_master: Option<ActingMaster>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(30),
            first_delay: Duration::from_secs(10),
            force: true,
            check: Duration::from_secs(5),
            acting_master: None,
        }
    }
}

impl Timing {
    /// The period, held between its bounds.
    pub(crate) fn clamped_period(&self) -> Duration {
        self.period.clamp(PERIOD_MIN, PERIOD_MAX)
    }
}

/// Heartbeats to name servers (part C 11), for brokers whose slaves may act as master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActingMaster {
    /// From one heartbeat to the next. Default 1 s; at least 100 ms.
    pub beat: Duration,
    /// What a heartbeat is. Default: [`Beat::DataVersion`].
    pub with: Beat,
    /// How long servers keep a silent broker (`heartbeatTimeoutMillis`). Default 10 s.
    pub timeout: Duration,
}

impl Default for ActingMaster {
    fn default() -> Self {
        Self { beat: Duration::from_secs(1), with: Beat::DataVersion, timeout: Duration::from_secs(10) }
    }
}

/// Which request serves as heartbeat, always one-way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Beat {
    /// 322, which every server knows (`compatibleWithOldNameSrv`).
    DataVersion,
    /// 904; servers below 5.0 do not know it and get 322.
    Heartbeat,
}

/// How a registration is made (part C 5, part C 7, part C 9, part C 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// What the broker as a whole permits: without 4 or 2, each topic's permission is masked. Default 6.
    pub permission: i32,
    /// The epoch of the master (`stateVersion` of the data version). Default 0.
    pub state_version: i64,
    /// Announce the topics named after cluster and broker, as brokers do. Default true.
    pub own_topics: bool,
    /// Send a change as a table of the changed topics only; else as the whole table. Default true. Turn it
    /// off for Java servers with `deleteTopicWithBrokerRegistration=true`: they take what is not listed for
    /// deleted.
    pub incremental: bool,
    /// Send a change topic by topic (217) instead. Servers below 5.0 do not know it and get a table. Default
    /// false.
    pub single_topic: bool,
    /// Send the whole table in parts of so many topics, at least 2 (`splitRegistrationSize`, in brokers 800).
    /// Default: `None`, in one piece.
    pub split: Option<usize>,
    /// Deflate the body, and say so. A server that refuses it gets plain JSON. Default false.
    pub compressed: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            permission: 6,
            state_version: 0,
            own_topics: true,
            incremental: true,
            single_topic: false,
            split: None,
            compressed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_held_between_10_and_60_s() {
        for (given, kept) in [(0, 10), (9, 10), (10, 10), (30, 30), (60, 60), (3600, 60)] {
            let timing = Timing { period: Duration::from_secs(given), ..Timing::default() };
            assert_eq!(timing.clamped_period(), Duration::from_secs(kept));
        }
    }
}
