//! How the agent does, for people and for metrics.

use std::fmt::Write as _;

use serde::Serialize;
use waypost_net::clock::Millis;
use waypost_rocketmq_discovery::health::Health;
use waypost_rocketmq_remoting::endpoint::Endpoint;

use crate::relay::BrokerStatus;
use crate::standing::Standing;
pub use crate::standing::State;

/// How the agent does at one moment. Times are milliseconds before it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Addresses that programs of this machine connect to.
    pub listening: Vec<String>,
    /// Connections of programs.
    pub connections: usize,
    /// Routes that are known.
    pub routes: usize,
    /// Of these, how many could not be confirmed when they should have been.
    pub stale_routes: usize,
    /// The age of the route that was confirmed longest ago; `None` without routes.
    pub oldest_route_ms: Option<u64>,
    /// The name servers.
    pub servers: Vec<ServerStatus>,
    /// Servers of the list that are left out: they are agents that lead back to this one.
    pub left_out: Vec<String>,
    /// The brokers of this machine.
    pub brokers: Vec<BrokerStatus>,
}

/// How a name server does, by all that is said to it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Which.
    pub server: String,
    /// How it stands.
    pub state: State,
    /// Since when.
    pub since_ms: u64,
    /// Whether it is [`State::Healthy`].
    pub healthy: bool,
    /// Average time to an answer, in microseconds.
    pub latency_us: Option<u64>,
    /// Failures since the last answer.
    pub failures: u32,
    /// When it last answered.
    pub answered_ms: Option<u64>,
    /// What it last did wrong: `connect`, `silent`, `closed`, `refused` or `nonsense`.
    pub last_fault: Option<&'static str>,
    /// When that was.
    pub last_fault_ms: Option<u64>,
}

impl ServerStatus {
    /// What the agent knows of it, and what clients' questions met.
    pub(crate) fn new(server: &Endpoint, standing: &Standing, health: &Health, now: Millis) -> Self {
        let age = |at: Millis| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let last_fault = standing.last_fault().into_iter().chain(health.last_fault).max_by_key(|(_, at)| *at);
        let is_healthy = standing.state() == State::Healthy;
        let latency = health.latency.or_else(|| standing.latency());
        Self {
            server: server.to_string(),
            state: standing.state(),
            since_ms: age(standing.since()),
            healthy: is_healthy,
            latency_us: latency.map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
            // What clients met before it was well again is no matter any more.
            failures: if is_healthy { 0 } else { standing.failures().max(health.failures) },
            answered_ms: standing.answered_at().max(health.last_answer).map(age),
            last_fault: last_fault.map(|(fault, _)| fault.name()),
            last_fault_ms: last_fault.map(|(_, at)| age(at)),
        }
    }
}

impl Status {
    /// Appends gauges in the text format of Prometheus.
    pub(crate) fn write_metrics(&self, text: &mut String) {
        let seconds = |milliseconds: u64| milliseconds as f64 / 1_000.0;
        let mut gauge = |name: &str, help: &str, rows: &[(String, f64)]| {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge");
            for (labels, value) in rows {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let single = |value: f64| vec![(String::new(), value)];
        gauge("waypost_agent_connections", "Connections of programs", &single(self.connections as f64));
        gauge("waypost_agent_routes", "Routes that are known", &single(self.routes as f64));
        gauge(
            "waypost_agent_stale_routes",
            "Routes not confirmed in time",
            &single(self.stale_routes as f64),
        );
        let oldest = self.oldest_route_ms.map(seconds).unwrap_or_default();
        gauge(
            "waypost_agent_oldest_route_seconds",
            "Age of the route confirmed longest ago",
            &single(oldest),
        );
        gauge(
            "waypost_agent_servers_left_out",
            "Name servers of the list that are agents which lead back to this one",
            &single(self.left_out.len() as f64),
        );
        let labels = |server: &ServerStatus| format!("{{server=\"{}\"}}", escaped(&server.server));
        let rows = |value: &dyn Fn(&ServerStatus) -> f64| {
            self.servers.iter().map(|server| (labels(server), value(server))).collect::<Vec<_>>()
        };
        // One of which nothing is known yet is neither.
        let known = self.servers.iter().filter(|server| server.state != State::Unknown);
        let up: Vec<_> = known.map(|server| (labels(server), f64::from(u8::from(server.healthy)))).collect();
        gauge("waypost_agent_server_healthy", "Whether the name server answers, once that is known", &up);
        let mut states = Vec::new();
        for server in &self.servers {
            for state in State::ALL {
                let labels = format!("{{server=\"{}\",state=\"{}\"}}", escaped(&server.server), state.name());
                states.push((labels, f64::from(u8::from(server.state == state))));
            }
        }
        gauge("waypost_agent_server_state", "1 for the state that the name server is in", &states);
        let since = rows(&|server| seconds(server.since_ms));
        gauge("waypost_agent_server_state_seconds", "How long it has been in that state", &since);
        let failures = rows(&|server| f64::from(server.failures));
        gauge("waypost_agent_server_failures", "Failures since the last answer", &failures);
        let latency = rows(&|server| server.latency_us.map_or(0.0, |micros| micros as f64 / 1_000_000.0));
        gauge("waypost_agent_server_latency_seconds", "Average time to an answer", &latency);
        let by_broker = |value: &dyn Fn(&crate::relay::UpstreamStatus) -> Option<f64>| {
            let mut rows = Vec::new();
            for broker in &self.brokers {
                for server in &broker.servers {
                    let labels = format!(
                        "{{broker=\"{}\",address=\"{}\",server=\"{}\"}}",
                        escaped(&broker.broker),
                        escaped(&broker.address),
                        escaped(&server.server)
                    );
                    rows.extend(value(server).map(|value| (labels, value)));
                }
            }
            rows
        };
        let ages = by_broker(&|server| server.accepted_ms.map(seconds));
        gauge("waypost_agent_registration_age_seconds", "Since the last accepted registration", &ages);
        let queues = by_broker(&|server| Some(server.queue as f64));
        gauge("waypost_agent_registration_queue", "Frames that wait for the name server", &queues);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
