//! What the agent counts.

use std::fmt::Write as _;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use waypost_net::clock::Pulse;

use crate::status::Status;

/// Counters, with handles that cost an addition.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) route_queries: Counter,
    pub(crate) route_queries_waited: Counter,
    pub(crate) other_requests: Counter,
    pub(crate) bad_frames: Counter,
    pub(crate) refusals: Counter,
    registry: Registry,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self::default();
        let registry = &mut metrics.registry;
        registry.register(
            "waypost_agent_route_queries",
            "Route queries (105)",
            metrics.route_queries.clone(),
        );
        registry.register(
            "waypost_agent_route_queries_waited",
            "Route queries that were not answered from fresh knowledge",
            metrics.route_queries_waited.clone(),
        );
        registry.register(
            "waypost_agent_other_requests",
            "Requests that are no route queries",
            metrics.other_requests.clone(),
        );
        registry.register(
            "waypost_agent_bad_frames",
            "Connections closed because their bytes were no request",
            metrics.bad_frames.clone(),
        );
        registry.register(
            "waypost_agent_refused_requests",
            "Requests that their callers may not send (--access-read, --access-broker, --access-admin)",
            metrics.refusals.clone(),
        );
        metrics
    }

    /// Everything in the text format of Prometheus.
    pub(crate) fn text(&self, status: &Status, pulse: &Pulse) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = encode(&mut text, &self.registry);
        let end = text.rfind("# EOF").unwrap_or(text.len());
        text.truncate(end);
        status.write_metrics(&mut text);
        let standstills = [
            ("standstills", "Times that the whole process stood still", pulse.freeze_epoch() as f64),
            (
                "standstill_seconds",
                "Time that the whole process stood still",
                pulse.frozen_for().as_secs_f64(),
            ),
        ];
        for (name, help, value) in standstills {
            let name = format!("waypost_agent_{name}");
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} counter\n{name}_total {value}");
        }
        text.push_str("# EOF\n");
        text
    }
}
