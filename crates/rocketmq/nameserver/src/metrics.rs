//! What the server counts, as handles that cost one atomic addition.
//!
//! Labels are fixed sets: request codes that the server knows, causes, kinds. Names of brokers,
//! topics and peers never become labels; they are in the logs and in the live table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use waypost_rocketmq_registry::{ConflictKind, RemovalCause};
use waypost_rocketmq_wire::code::{request, request_name};

/// The requests that have a counter of their own; all others share one.
const CODES: [i32; 24] = [
    request::GET_ROUTEINFO_BY_TOPIC,
    request::REGISTER_BROKER,
    request::UNREGISTER_BROKER,
    request::QUERY_DATA_VERSION,
    request::BROKER_HEARTBEAT,
    request::GET_BROKER_MEMBER_GROUP,
    request::GET_BROKER_CLUSTER_INFO,
    request::PUT_KV_CONFIG,
    request::GET_KV_CONFIG,
    request::DELETE_KV_CONFIG,
    request::WIPE_WRITE_PERM_OF_BROKER,
    request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    request::DELETE_TOPIC_IN_NAMESRV,
    request::REGISTER_TOPIC_IN_NAMESRV,
    request::GET_KVLIST_BY_NAMESPACE,
    request::GET_TOPICS_BY_CLUSTER,
    request::GET_SYSTEM_TOPIC_LIST_FROM_NS,
    request::GET_UNIT_TOPIC_LIST,
    request::GET_HAS_UNIT_SUB_TOPIC_LIST,
    request::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    request::UPDATE_NAMESRV_CONFIG,
    request::GET_NAMESRV_CONFIG,
    request::ADD_WRITE_PERM_OF_BROKER,
    OTHER,
];

/// Stands for every code without a counter of its own. No request has it.
const OTHER: i32 = i32::MIN;

type Label = [(&'static str, &'static str); 1];

/// All counters of a server. Clones of the handles inside share their values.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: [RequestMetrics; CODES.len()],
    pub(crate) registrations: Outcomes<RegistrationOutcome>,
    pub(crate) removals: Outcomes<RemovalCause>,
    pub(crate) conflicts: Outcomes<ConflictKind>,
    pub(crate) refusals: Counter,
    pub(crate) route_changes: Counter,
    pub(crate) notices_sent: Counter,
    pub(crate) notices_dropped: Counter,
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) stale_queries: Counter,
    endings: Family<Label, Counter>,
    bad_frames: Family<Label, Counter>,
}

/// The counters of one request code.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    pub(crate) count: Counter,
    pub(crate) latency: Arc<Latency>,
}

/// One counter for each value of a fixed set.
#[derive(Debug)]
pub(crate) struct Outcomes<T> {
    counters: Vec<(T, Counter)>,
}

impl<T: PartialEq + Copy> Outcomes<T> {
    fn new(
        all: &[T],
        family: &Family<Label, Counter>,
        label: &'static str,
        name: impl Fn(T) -> &'static str,
    ) -> Self {
        let counters =
            all.iter().map(|value| (*value, family.get_or_create_owned(&[(label, name(*value))]))).collect();
        Self { counters }
    }

    pub(crate) fn of(&self, value: T) -> &Counter {
        let found = self.counters.iter().find(|(known, _)| *known == value);
        &found.expect("invariant: every value of the set has a counter").1
    }
}

/// What became of a registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegistrationOutcome {
    /// Recognised by its digest.
    Renewed,
    /// Parsed and applied.
    Applied,
    /// Answered as success and ignored: a larger state version holds the id.
    Superseded,
    /// Refused.
    Refused,
    /// The checksum or the body was wrong.
    Malformed,
}

impl RegistrationOutcome {
    const ALL: [Self; 5] = [Self::Renewed, Self::Applied, Self::Superseded, Self::Refused, Self::Malformed];

    fn name(self) -> &'static str {
        match self {
            Self::Renewed => "renewed",
            Self::Applied => "applied",
            Self::Superseded => "superseded",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("waypost_nameserver");
        let counts = Family::<[(&'static str, String); 2], Counter>::default();
        let latencies = Family::<[(&'static str, String); 2], SharedLatency>::default();
        registry.register("requests", "Requests by code", counts.clone());
        registry.register_with_unit(
            "request_latency",
            "Time from reading a request to having its answer, by code",
            Unit::Seconds,
            latencies.clone(),
        );
        let requests = CODES.map(|code| {
            let (number, name) = match request_name(code) {
                Some(name) => (code.to_string(), name.to_owned()),
                None => ("other".to_owned(), "other".to_owned()),
            };
            let labels = [("code", number), ("request", name)];
            RequestMetrics {
                count: counts.get_or_create_owned(&labels),
                latency: latencies.get_or_create_owned(&labels).0,
            }
        });
        let mut family = |name: &str, help: &str| {
            let family = Family::<Label, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let registrations = family("registrations", "Registrations of brokers by outcome");
        let removals = family("broker_removals", "Brokers that left the table by cause");
        let conflicts = family("conflicts", "Registrations that contradict each other by kind");
        let endings = family("connections_ended", "Connections that ended by reason");
        let bad_frames = family("bad_frames", "Connections closed for bytes that are no request, by reason");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            requests,
            registrations: Outcomes::new(
                &RegistrationOutcome::ALL,
                &registrations,
                "outcome",
                RegistrationOutcome::name,
            ),
            removals: Outcomes::new(&RemovalCause::ALL, &removals, "cause", RemovalCause::name),
            conflicts: Outcomes::new(&ConflictKind::ALL, &conflicts, "kind", ConflictKind::name),
            refusals: counter("refusals", "Requests refused because of the caller's network"),
            route_changes: counter("route_changes", "Routes made anew"),
            notices_sent: counter(
                "notices_sent",
                "Notices of a changed smallest broker id (905) that were sent",
            ),
            notices_dropped: counter("notices_dropped", "Notices (905) that could not be sent"),
            bytes_received: counter("received_bytes", "Bytes of requests"),
            bytes_sent: counter("sent_bytes", "Bytes of answers"),
            stale_queries: counter(
                "stale_queries",
                "Route queries dropped with their connection for their age",
            ),
            endings,
            bad_frames,
            registry,
        }
    }

    /// The counters of a request code.
    pub(crate) fn request(&self, code: i32) -> &RequestMetrics {
        &self.requests[request_slot(code)]
    }

    pub(crate) fn request_in_slot(&self, slot: usize) -> &RequestMetrics {
        &self.requests[slot.min(CODES.len() - 1)]
    }

    /// Counts the end of a connection. `reason` is one of a fixed set of names.
    pub(crate) fn connection_ended(&self, reason: &'static str) {
        self.endings.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts bytes that are no request. `reason` is one of a fixed set of names.
    pub(crate) fn bad_frame(&self, reason: &'static str) {
        self.bad_frames.get_or_create(&[("reason", reason)]).inc();
    }

    /// Everything in the Prometheus text format, without the end mark, so that more can follow.
    ///
    /// # Errors
    ///
    /// When the text cannot be written, which a `String` never reports.
    pub fn encode(&self, text: &mut String) -> Result<(), fmt::Error> {
        prometheus_client::encoding::text::encode_registry(text, &self.registry)
    }

    /// Requests answered so far, of all codes.
    pub fn requests_total(&self) -> u64 {
        self.requests.iter().map(|request| request.count.get()).sum()
    }
}

/// Where the counters of a code are.
pub(crate) fn request_slot(code: i32) -> usize {
    CODES.iter().position(|known| *known == code).unwrap_or(CODES.len() - 1)
}

/// How many slots there are.
pub(crate) const REQUEST_SLOTS: usize = CODES.len();

/// Upper bounds of the latency buckets in microseconds: from a hash lookup to a client's patience.
const BOUNDS_MICROS: [u64; 16] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 3_000_000,
    10_000_000,
];

/// A histogram whose observation is three relaxed additions and no lock.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Latency {
    /// Notes `count` requests that took `nanoseconds` each.
    pub(crate) fn observe(&self, nanoseconds: u64, count: u64) {
        let micros = nanoseconds / 1_000;
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros < *bound).unwrap_or(BOUNDS_MICROS.len());
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds * count, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, Default)]
struct SharedLatency(Arc<Latency>);

impl TypedMetric for SharedLatency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for SharedLatency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.0.buckets.iter().map(load)).collect();
        let seconds = load(&self.0.nanoseconds) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(seconds, load(&self.0.count), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
