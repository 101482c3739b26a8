//! What the admin side shows of a running server. Nothing here changes anything.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::Serialize;
use waypost_net::accept::AcceptStats;
use waypost_net::budget::MemoryBudget;
use waypost_net::queues::Queues;
use waypost_net::tls::ServerTls;
use waypost_rocketmq_registry::{BrokerRow, DeletedRow, TableCounts, TopicRow};
use waypost_rocketmq_wire::body::Dialect;

use crate::server::NameServer;
use crate::state::State;

/// A look into a running server. Cheap to clone; reading the table waits for the table's lock, so
/// callers do it where waiting is allowed.
#[derive(Clone, Debug)]
pub struct View {
    state: Arc<State>,
    accepted: Arc<AcceptStats>,
    budget: MemoryBudget,
    queues: Queues,
    tls: Option<ServerTls>,
}

/// Which part of the table is wanted.
#[derive(Clone, Debug, Default)]
pub struct TableFilter {
    /// Topics are listed at all.
    pub topics: bool,
    /// Only this topic.
    pub topic: Option<String>,
    /// Only this broker name, and topics that have queues on it.
    pub broker: Option<String>,
    /// Only brokers of this cluster.
    pub cluster: Option<String>,
    /// At most so many topics.
    pub limit: usize,
}

/// The live table.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TableView {
    /// How much the table holds.
    pub counts: CountsView,
    /// Brokers by address.
    pub brokers: Vec<BrokerView>,
    /// Topics by name, if they were asked for.
    pub topics: Vec<TopicView>,
    /// Topics that were deleted here while brokers have them, if topics were asked for.
    pub deleted: Vec<DeletedView>,
    /// There are more topics, or more deleted ones, than the limit allowed.
    pub truncated: bool,
}

/// A topic that comes back with the next registration of a broker, unless it is deleted there, too.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeletedView {
    /// The topic.
    pub topic: String,
    /// The broker names that had announced it and did not register without it since.
    pub brokers: Vec<String>,
    /// When it was deleted, in milliseconds since 1970.
    pub deleted_at_ms: u64,
    /// How long ago that is.
    pub deleted_age_ms: u64,
}

/// How much the table holds.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct CountsView {
    /// Registered addresses.
    pub brokers: usize,
    /// Broker names.
    pub groups: usize,
    /// Topics with queues.
    pub topics: usize,
    /// Brokers whose connection broke by time-out and that are removed soon unless heard of.
    pub suspects: usize,
}

/// A registered broker, with what no request of the protocol tells.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BrokerView {
    /// Cluster that it registered with.
    pub cluster: String,
    /// Broker name.
    pub broker: String,
    /// Broker id; 0 is the master.
    pub id: i64,
    /// Advertised address.
    pub address: String,
    /// Replication address.
    pub ha_address: Option<String>,
    /// Zone of its group.
    pub zone: Option<String>,
    /// `enableActingMaster`; null for a 4.x broker.
    pub acting_master: Option<bool>,
    /// Registered without interruption since, in milliseconds since 1970.
    pub registered_at_ms: u64,
    /// The last registration or heartbeat, in milliseconds since 1970.
    pub last_heartbeat_at_ms: u64,
    /// How long ago that is.
    pub last_heartbeat_age_ms: u64,
    /// Removed after this long without a sign of life.
    pub timeout_ms: u64,
    /// Removed in this long unless heard of; only while its connection is broken by time-out.
    pub removed_in_ms: Option<u64>,
    /// Data version it announced last.
    pub data_version: DataVersionView,
    /// Number of the connection it is bound to.
    pub connection: u64,
    /// Other end of that connection; null while it is gone.
    pub peer: Option<String>,
    /// Topics that its group has queues for.
    pub topics: usize,
}

/// A data version.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct DataVersionView {
    /// Orders registrations of one id.
    pub state_version: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Counts changes.
    pub counter: i64,
}

/// A topic.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TopicView {
    /// The topic.
    pub topic: String,
    /// Its queues by broker name.
    pub queues: Vec<QueueView>,
}

/// The queues of a topic on one broker name. Permissions are bits: 1 inherit, 2 write, 4 read, 8 priority.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueView {
    /// Broker name.
    pub broker: String,
    /// Read queues.
    pub read_queues: i32,
    /// Write queues.
    pub write_queues: i32,
    /// Permission that readers get.
    pub perm: i32,
    /// Permission that the broker announced; another one is overlaid if the two differ.
    pub announced_perm: i32,
    /// `topicSysFlag`.
    pub sys_flag: i32,
}

impl NameServer {
    /// A look into the server.
    pub fn view(&self) -> View {
        View {
            state: Arc::clone(&self.state),
            accepted: self.accept_stats(),
            budget: self.budget().clone(),
            queues: self.queues().clone(),
            tls: self.tls().cloned(),
        }
    }
}

impl View {
    /// Whether clients are served: not in the waiting time after a start, not while stopping.
    pub fn is_ready(&self) -> bool {
        self.state.serves_routes() && !self.state.is_stopping()
    }

    /// Asks the readers' index and the table, as a request would; fails only by hanging, so callers
    /// set a limit.
    pub fn probe(&self) {
        self.state.index.with_route("TBW102", |route| route.body(Dialect::Standard).len());
        self.state.owner.read(|table| table.counts());
    }

    /// The live table.
    pub fn table(&self, filter: &TableFilter) -> TableView {
        let state = &self.state;
        let (now, wall) = (state.owner.now(), state.clock.wall_millis());
        let wanted_topic = |name: &str| filter.topic.as_ref().is_none_or(|topic| topic == name);
        let (counts, brokers, topics, deleted) = state.owner.read(|table| {
            // One more than wanted tells whether there are more; the filter by broker comes after.
            let limit = if filter.broker.is_some() { usize::MAX } else { filter.limit.saturating_add(1) };
            let topics = if filter.topics { table.topics(wanted_topic, limit) } else { Vec::new() };
            let deleted = if filter.topics { table.deleted_topics(wanted_topic, limit) } else { Vec::new() };
            (table.counts(), table.brokers(), topics, deleted)
        });
        let wall_at = |at: std::time::Duration| {
            let age = now.saturating_sub(at).as_millis() as u64;
            (wall.saturating_sub(age), age)
        };
        let brokers = brokers.into_iter().filter(|row| {
            filter.broker.as_ref().is_none_or(|broker| **broker == *row.broker)
                && filter.cluster.as_ref().is_none_or(|cluster| **cluster == *row.cluster)
        });
        let brokers = brokers.map(|row| self.broker(row, now, wall_at)).collect();
        let topics = topics.into_iter().filter(|row| {
            filter
                .broker
                .as_ref()
                .is_none_or(|broker| row.queues.iter().any(|queues| *queues.broker == **broker))
        });
        let mut topics: Vec<TopicView> = topics.take(filter.limit.saturating_add(1)).map(topic).collect();
        let deleted = deleted
            .into_iter()
            .map(|row| deleted_view(row, wall_at))
            .filter(|row| filter.broker.as_ref().is_none_or(|broker| row.brokers.contains(broker)));
        let mut deleted: Vec<DeletedView> = deleted.take(filter.limit.saturating_add(1)).collect();
        let truncated = topics.len() > filter.limit || deleted.len() > filter.limit;
        topics.truncate(filter.limit);
        deleted.truncate(filter.limit);
        TableView { counts: counts_view(counts), brokers, topics, deleted, truncated }
    }

    fn broker(
        &self,
        row: BrokerRow,
        now: std::time::Duration,
        wall_at: impl Fn(std::time::Duration) -> (u64, u64),
    ) -> BrokerView {
        let (last_heartbeat_at_ms, last_heartbeat_age_ms) = wall_at(row.last_sign);
        let version = row.data_version;
        BrokerView {
            cluster: row.cluster.to_string(),
            broker: row.broker.to_string(),
            id: row.id,
            address: row.address.to_string(),
            ha_address: row.ha_address.as_deref().map(str::to_owned),
            zone: row.zone.as_deref().map(str::to_owned),
            acting_master: row.acting_master,
            registered_at_ms: wall_at(row.registered_at).0,
            last_heartbeat_at_ms,
            last_heartbeat_age_ms,
            timeout_ms: row.timeout.as_millis() as u64,
            removed_in_ms: row.suspected_until.map(|until| until.saturating_sub(now).as_millis() as u64),
            data_version: DataVersionView {
                state_version: version.state_version,
                timestamp: version.timestamp,
                counter: version.counter,
            },
            connection: row.connection.0,
            peer: self.state.sessions.get(row.connection.0).map(|session| session.peer().to_string()),
            topics: row.topics,
        }
    }

    /// Everything that is counted and measured, in the Prometheus text format.
    pub fn metrics_text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = self.state.metrics.encode(&mut text);
        let counts = self.state.owner.read(|table| table.counts());
        let accepted = self.accepted.counts();
        let kv = self.state.kv.statistics();
        let uptime = self.state.clock.now().since(self.state.started_at);
        let gauges: [(&str, &str, u64); 11] = [
            ("brokers", "Registered broker addresses", counts.brokers as u64),
            ("broker_groups", "Registered broker names", counts.groups as u64),
            ("topics", "Topics with a route", counts.topics as u64),
            ("suspected_brokers", "Brokers whose connection broke by time-out", counts.suspects as u64),
            ("connections", "Open connections", accepted.open),
            ("unfinished_frame_bytes", "Memory promised to unfinished frames", self.budget.promised()),
            ("queued_answer_bytes", "Answers that wait for their readers", self.queues.waiting() as u64),
            ("waiting_frames", "Frames that wait for memory", self.budget.waiting() as u64),
            ("kv_entries", "Entries of the KV configuration", self.state.kv.snapshot().keys() as u64),
            ("uptime_seconds", "Time since the start", uptime.as_secs()),
            ("resident_memory_bytes", "Resident memory of the process", resident_bytes()),
        ];
        for (name, help, value) in gauges {
            sample(&mut text, "gauge", name, "", help, value);
        }
        let counters: [(&str, &str, u64); 7] = [
            ("connections_accepted", "Connections accepted", accepted.accepted),
            ("connections_over_limit", "Connections closed at once: connectionsMax", accepted.over_limit),
            (
                "connections_over_address_limit",
                "Connections closed at once: connectionsPerAddressMax",
                accepted.over_address_limit,
            ),
            (
                "accepts_out_of_files",
                "Accepts that failed for want of file descriptors",
                accepted.out_of_files,
            ),
            ("standstills", "Times that the whole process stood still", self.state.pulse.freeze_epoch()),
            ("kv_writes", "Files written for the KV configuration", kv.writes),
            ("kv_write_failures", "Writes of the KV configuration that failed", kv.failures),
        ];
        for (name, help, value) in counters {
            sample(&mut text, "counter", name, "_total", help, value);
        }
        let stood_still = self.state.pulse.frozen_for();
        let help = "Time that the whole process stood still";
        sample(&mut text, "counter", "standstill_seconds", "_total", help, stood_still.as_secs_f64());
        if let Some(tls) = self.tls.as_ref().map(ServerTls::counts) {
            sample(&mut text, "counter", "tls_handshakes", "_total", "TLS handshakes", tls.handshakes);
            let help = "TLS handshakes that failed";
            sample(&mut text, "counter", "tls_failed_handshakes", "_total", help, tls.failed_handshakes);
            sample(&mut text, "counter", "tls_reloads", "_total", "Certificates reloaded", tls.reloads);
        }
        text.push_str("# EOF\n");
        text
    }
}

fn sample(text: &mut String, kind: &str, name: &str, suffix: &str, help: &str, value: impl fmt::Display) {
    let name = format!("waypost_nameserver_{name}");
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name}{suffix} {value}");
}

fn counts_view(counts: TableCounts) -> CountsView {
    CountsView {
        brokers: counts.brokers,
        groups: counts.groups,
        topics: counts.topics,
        suspects: counts.suspects,
    }
}

fn deleted_view(row: DeletedRow, wall_at: impl Fn(std::time::Duration) -> (u64, u64)) -> DeletedView {
    let (deleted_at_ms, deleted_age_ms) = wall_at(row.deleted_at);
    DeletedView {
        topic: row.topic.to_string(),
        brokers: row.brokers.iter().map(ToString::to_string).collect(),
        deleted_at_ms,
        deleted_age_ms,
    }
}

fn topic(row: TopicRow) -> TopicView {
    let queues = row.queues.into_iter().map(|queues| QueueView {
        broker: queues.broker.to_string(),
        read_queues: queues.read_queues,
        write_queues: queues.write_queues,
        perm: queues.perm,
        announced_perm: queues.announced_perm,
        sys_flag: queues.sys_flag,
    });
    TopicView { topic: row.topic.to_string(), queues: queues.collect() }
}

/// Resident memory by the kernel's account; 0 where it cannot be read.
fn resident_bytes() -> u64 {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
