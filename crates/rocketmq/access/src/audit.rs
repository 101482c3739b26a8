//! The audit log: who changed what, and who was refused (decision 13).
//!
//! One line for each change by requests 100, 102, 104, 205, 216, 217, 318 and 327, at level info
//! under the target `audit`; one line for each refusal, at level warn under the same target,
//! limited in rate: what was left out is counted in the next line. Names that come from peers are
//! written as quoted texts, so that they cannot forge a line.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_wire::code::request_name;

use crate::access::RequestClass;

/// The target of audit lines.
pub const TARGET: &str = "audit";

/// Refusals of one class of requests that are logged at once.
const REFUSALS_AT_ONCE: u32 = 20;
/// The period in which so many may be logged: one peer that is refused all day costs two lines a
/// second at most.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);
/// Characters of a KV value or remark in a line.
const TEXT_MAX: usize = 200;

/// Lets a few events of each period through and counts the others. Pure: time is an argument.
#[derive(Clone, Debug)]
pub struct RateLimit {
    burst: u32,
    period: Duration,
    started: Option<Millis>,
    admitted: u32,
    suppressed: u64,
}

impl RateLimit {
    /// A limit of `burst` events in each period; periods begin with an event.
    #[must_use]
    pub const fn new(burst: u32, period: Duration) -> Self {
        Self { burst, period, started: None, admitted: 0, suppressed: 0 }
    }

    /// Counts an event. If it is let through, gives the number of those that were not since the
    /// last one that was.
    pub fn admit(&mut self, now: Millis) -> Option<u64> {
        if self.started.is_none_or(|started| now.since(started) >= self.period) {
            self.started = Some(now);
            self.admitted = 0;
        }
        if self.admitted >= self.burst {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.admitted += 1;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// After a period is over: the number of events that were not let through and that no later
    /// event has told yet. For a tick that reports the end of a storm.
    pub fn left_out(&mut self, now: Millis) -> Option<u64> {
        let over = self.started.is_some_and(|started| now.since(started) >= self.period);
        if !over || self.suppressed == 0 {
            return None;
        }
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// A change that a request made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Changed<'a> {
    /// 100.
    KvPut {
        /// The namespace.
        namespace: &'a str,
        /// The key.
        key: &'a str,
        /// The value; none for a put without one.
        value: Option<&'a str>,
    },
    /// 102.
    KvDeleted {
        /// The namespace.
        namespace: &'a str,
        /// The key.
        key: &'a str,
    },
    /// 104.
    BrokerUnregistered {
        /// The cluster.
        cluster: &'a str,
        /// The broker name.
        broker: &'a str,
        /// Its address.
        address: &'a str,
        /// Its id.
        id: i64,
    },
    /// 205.
    WritePermissionWiped {
        /// The broker name.
        broker: &'a str,
        /// How many topics of it there are.
        topics: usize,
    },
    /// 327.
    WritePermissionAdded {
        /// The broker name.
        broker: &'a str,
        /// How many topics of it there are.
        topics: usize,
    },
    /// 216.
    TopicDeleted {
        /// The topic.
        topic: &'a str,
        /// The cluster; none for all.
        cluster: Option<&'a str>,
    },
    /// 217.
    TopicRegistered {
        /// The topic.
        topic: &'a str,
        /// How many brokers it was registered for.
        brokers: usize,
    },
    /// 318; one line a key.
    Setting {
        /// Which.
        key: &'a str,
        /// Its value before.
        before: &'a str,
        /// Its value now.
        after: &'a str,
    },
}

impl Changed<'_> {
    /// The code of the request.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::KvPut { .. } => 100,
            Self::KvDeleted { .. } => 102,
            Self::BrokerUnregistered { .. } => 104,
            Self::WritePermissionWiped { .. } => 205,
            Self::TopicDeleted { .. } => 216,
            Self::TopicRegistered { .. } => 217,
            Self::Setting { .. } => 318,
            Self::WritePermissionAdded { .. } => 327,
        }
    }
}

/// Writes the audit log. One for the server; it is shared by its connections.
#[derive(Debug)]
pub struct Audit {
    refusals: Mutex<[RateLimit; 4]>,
}

impl Default for Audit {
    fn default() -> Self {
        let limit = RateLimit::new(REFUSALS_AT_ONCE, REFUSAL_PERIOD);
        Self { refusals: Mutex::new([limit.clone(), limit.clone(), limit.clone(), limit]) }
    }
}

impl Audit {
    /// Logs a change and who made it.
    pub fn changed(&self, peer: SocketAddr, changed: Changed<'_>) {
        let code = changed.code();
        let peer = canonical(peer);
        match changed {
            Changed::KvPut { namespace, key, value } => {
                let value = value.map(cut);
                tracing::info!(target: TARGET, %peer, code, namespace, key, value, "KV value set");
            }
            Changed::KvDeleted { namespace, key } => {
                tracing::info!(target: TARGET, %peer, code, namespace, key, "KV value deleted");
            }
            Changed::BrokerUnregistered { cluster, broker, address, id } => {
                tracing::info!(target: TARGET, %peer, code, cluster, broker, address, id, "broker unregistered");
            }
            Changed::WritePermissionWiped { broker, topics } => {
                tracing::info!(target: TARGET, %peer, code, broker, topics, "write permission wiped");
            }
            Changed::WritePermissionAdded { broker, topics } => {
                tracing::info!(target: TARGET, %peer, code, broker, topics, "write permission added");
            }
            Changed::TopicDeleted { topic, cluster } => {
                tracing::info!(target: TARGET, %peer, code, topic, cluster, "topic deleted");
            }
            Changed::TopicRegistered { topic, brokers } => {
                tracing::info!(target: TARGET, %peer, code, topic, brokers, "topic registered");
            }
            Changed::Setting { key, before, after } => {
                tracing::info!(target: TARGET, %peer, code, key, before, after, "setting changed");
            }
        }
    }

    /// Logs a request that was refused: by [`crate::access`], or because of what it asked for.
    /// `reason` is the remark of the answer.
    pub fn refused(&self, peer: SocketAddr, code: i32, reason: &str, now: Millis) {
        let class = RequestClass::of(code);
        let admitted = self.limits()[class as usize].admit(now);
        let Some(suppressed) = admitted else { return };
        let peer = canonical(peer);
        let (request, reason) = (request_name(code), cut(reason));
        tracing::warn!(target: TARGET, %peer, code, request, reason, suppressed, "request refused");
    }

    /// Reports refusals that were left out and that no later line told. To be called now and then,
    /// and at the end.
    pub fn tick(&self, now: Millis) {
        let mut limits = self.limits();
        for class in RequestClass::ALL {
            if let Some(suppressed) = limits[class as usize].left_out(now) {
                let class = class.name();
                tracing::warn!(target: TARGET, class, suppressed, "requests refused, not logged one by one");
            }
        }
    }

    fn limits(&self) -> std::sync::MutexGuard<'_, [RateLimit; 4]> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An IPv4-mapped address as IPv4, so that one caller has one spelling.
fn canonical(peer: SocketAddr) -> SocketAddr {
    let ip: IpAddr = peer.ip().to_canonical();
    SocketAddr::new(ip, peer.port())
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(TEXT_MAX).map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that are logged by `body`, as the server's text format writes them.
    fn logged(body: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .without_time()
            .with_ansi(false)
            .finish();
        tracing::subscriber::with_default(subscriber, body);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn peer() -> SocketAddr {
        "[::ffff:10.0.0.5]:4711".parse().unwrap()
    }

    fn at(seconds: u64) -> Millis {
        Millis::new(seconds * 1_000)
    }

    #[test]
    fn a_change_is_one_line_with_its_caller() {
        let setting = Changed::Setting { key: "enableTopicList", before: "true", after: "false" };
        let changes = [
            Changed::KvPut { namespace: "ns", key: "k", value: Some("v") },
            Changed::KvDeleted { namespace: "ns", key: "k" },
            Changed::BrokerUnregistered { cluster: "c", broker: "b", address: "10.0.0.5:10911", id: 0 },
            Changed::WritePermissionWiped { broker: "b", topics: 3 },
            Changed::WritePermissionAdded { broker: "b", topics: 3 },
            Changed::TopicDeleted { topic: "t", cluster: None },
            Changed::TopicRegistered { topic: "t", brokers: 2 },
            setting,
        ];
        let audit = Audit::default();
        let lines = logged(|| changes.into_iter().for_each(|changed| audit.changed(peer(), changed)));
        assert_eq!(lines.len(), changes.len());
        for (line, changed) in lines.iter().zip(changes) {
            assert!(line.starts_with("INFO audit: "), "{line}");
            assert!(line.contains(&format!("peer=10.0.0.5:4711 code={}", changed.code())), "{line}");
        }
        assert!(
            lines[0].contains(r#"KV value set peer=10.0.0.5:4711 code=100 namespace="ns" key="k" value="v""#)
        );
        assert!(lines[7].contains(r#"key="enableTopicList" before="true" after="false""#), "{}", lines[7]);
    }

    #[test]
    fn a_name_with_a_line_end_cannot_forge_a_line() {
        let audit = Audit::default();
        let topic = "t\nINFO audit: broker unregistered";
        let lines = logged(|| audit.changed(peer(), Changed::TopicDeleted { topic, cluster: Some("c") }));
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn refusals_are_limited_for_each_class_and_the_rest_is_counted() {
        let audit = Audit::default();
        let storm = 3 * u64::from(REFUSALS_AT_ONCE);
        let lines = logged(|| {
            for _ in 0..storm {
                audit.refused(peer(), 318, "no", at(1));
            }
            audit.refused(peer(), 100, "no", at(1));
            audit.refused(peer(), 318, "no", at(20));
        });
        assert_eq!(lines.len(), usize::try_from(REFUSALS_AT_ONCE).unwrap() + 2);
        assert!(
            lines[0].starts_with("WARN audit: request refused peer=10.0.0.5:4711 code=318"),
            "{}",
            lines[0]
        );
        assert!(
            lines[0].contains("UPDATE_NAMESRV_CONFIG") && lines[0].contains("suppressed=0"),
            "{}",
            lines[0]
        );
        let left_out = storm - u64::from(REFUSALS_AT_ONCE);
        assert!(lines[lines.len() - 1].contains(&format!("suppressed={left_out}")), "{lines:?}");
    }

    #[test]
    fn the_end_of_a_storm_is_told_by_the_next_tick() {
        let audit = Audit::default();
        let lines = logged(|| {
            for _ in 0..=REFUSALS_AT_ONCE {
                audit.refused(peer(), 318, "no", at(1));
            }
            audit.tick(at(2));
            audit.tick(at(30));
            audit.tick(at(60));
        });
        let told = lines.iter().filter(|line| line.contains("not logged one by one")).collect::<Vec<_>>();
        assert_eq!(told.len(), 1);
        assert!(told[0].contains(r#"class="config" suppressed=1"#), "{}", told[0]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(TEXT_MAX + 1);
        assert_eq!(cut(&long).chars().count(), TEXT_MAX);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn a_rate_limit_begins_a_period_with_an_event() {
        let mut limit = RateLimit::new(2, Duration::from_secs(10));
        assert_eq!((limit.admit(at(3)), limit.admit(at(4)), limit.admit(at(12))), (Some(0), Some(0), None));
        assert_eq!((limit.admit(at(13)), limit.admit(at(14)), limit.admit(at(15))), (Some(1), Some(0), None));
        assert_eq!(limit.left_out(at(22)), None);
        assert_eq!((limit.left_out(at(23)), limit.left_out(at(24))), (Some(1), None));
    }

    #[test]
    fn a_clock_that_stands_still_never_opens_the_limit() {
        let mut limit = RateLimit::new(1, Duration::from_secs(10));
        assert_eq!(limit.admit(at(5)), Some(0));
        assert!((0..1_000).all(|_| limit.admit(at(5)).is_none()));
    }
}
