//! What the server counts, as handles that cost one atomic addition.
//!
//! Labels are fixed sets: request codes that the server knows, causes, kinds. Names of brokers,
//! topics and peers never become labels; they are in the logs and in the live table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
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
    shards: Arc<Shards>,
    pub(crate) registrations: Outcomes<RegistrationOutcome>,
    pub(crate) removals: Outcomes<RemovalCause>,
    pub(crate) conflicts: Outcomes<ConflictKind>,
    pub(crate) refusals: Counter,
    pub(crate) route_changes: Counter,
    pub(crate) notices_sent: Counter,
    pub(crate) notices_dropped: Counter,
    pub(crate) stale_queries: Counter,
    endings: Family<Label, Counter>,
    bad_frames: Family<Label, Counter>,
}

/// The counters that every request touches, once for each thread: threads that count the same thing must not
/// fight for a cache line. A thread that is one too many shares with another.
#[derive(Debug, Default)]
struct Shards {
    shards: [Shard; SHARDS],
}

/// More than the threads of most machines.
const SHARDS: usize = 16;

/// One thread's share.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    latencies: [Latency; CODES.len()],
    received: AtomicU64,
    sent: AtomicU64,
}

impl Shard {
    /// Notes `count` requests of a code, by its slot, that took `nanoseconds` each.
    pub(crate) fn requests(&self, slot: usize, nanoseconds: u64, count: u64) {
        if let Some(latency) = self.latencies.get(slot) {
            latency.observe(nanoseconds, count);
        }
    }

    /// Notes bytes of requests and of answers.
    pub(crate) fn bytes(&self, received: u64, sent: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
    }
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
        let shards = Arc::new(Shards::default());
        registry.register_collector(Box::new(Arc::clone(&shards)));
        let mut family = |name: &str, help: &str| {
            let family = Family::<Label, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let registrations = family("registrations", "Registrations of brokers by outcome");
        let removals = family("broker_removals", "Brokers that left the table by cause");
        let conflicts = family("conflicts", "Registrations that contradict each other by kind");
        let endings = family("connections_ended", "Connections that ended by reason");
        let bad_frames = family(
            "bad_frames",
            "Bytes that are no request, by reason; all but unexpected_response close the connection",
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            shards,
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
            stale_queries: counter(
                "stale_queries",
                "Route queries dropped with their connection for their age",
            ),
            endings,
            bad_frames,
            registry,
        }
    }

    /// The calling thread's share of the counters that every request touches.
    pub(crate) fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        &self.shards.shards[OWN.with(|own| *own)]
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
        self.shards.shards.iter().flat_map(|shard| &shard.latencies).map(Latency::count).sum()
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

impl Latency {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Shards {
    fn sum(&self, of: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }

    fn encode_latency(&self, slot: usize, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::MAX]);
        let counts = (0..).map(|bucket: usize| self.sum(|shard| &shard.latencies[slot].buckets[bucket]));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let seconds = self.sum(|shard| &shard.latencies[slot].nanoseconds) as f64 / 1e9;
        let count = self.sum(|shard| &shard.latencies[slot].count);
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }
}

/// The labels of a slot.
fn labels(slot: usize) -> [(&'static str, String); 2] {
    let code = CODES[slot];
    match request_name(code) {
        Some(name) => [("code", code.to_string()), ("request", name.to_owned())],
        None => [("code", "other".to_owned()), ("request", "other".to_owned())],
    }
}

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut requests =
            encoder.encode_descriptor("requests", "Requests by code", None, MetricType::Counter)?;
        for slot in 0..CODES.len() {
            let count = self.sum(|shard| &shard.latencies[slot].count);
            requests.encode_family(&labels(slot))?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let help = "Time from reading a request to having its answer, by code";
        let unit = Some(&Unit::Seconds);
        let mut latencies =
            encoder.encode_descriptor("request_latency", help, unit, MetricType::Histogram)?;
        for slot in 0..CODES.len() {
            self.encode_latency(slot, latencies.encode_family(&labels(slot))?)?;
        }
        for (name, help, bytes) in [
            ("received_bytes", "Bytes of requests", self.sum(|shard| &shard.received)),
            ("sent_bytes", "Bytes of answers", self.sum(|shard| &shard.sent)),
        ] {
            let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            counter.encode_counter::<NoLabelSet, _, u64>(&bytes, None)?;
        }
        Ok(())
    }
}
