//! One log line for each event of the table that operators want to know.

use waypost_rocketmq_registry::Event;

/// Writes the table's events to the log.
#[derive(Debug, Default)]
pub(crate) struct Journal;

impl Journal {
    pub(crate) fn record(&self, event: &Event) {
        match event {
            Event::BrokerRegistered { member, ha_address } => tracing::info!(
                cluster = %member.cluster, broker = %member.broker, id = member.id, address = %member.address,
                ha_address = ha_address.as_deref().unwrap_or(""), "new broker registered"
            ),
            Event::BrokerRemoved { member, cause } => tracing::info!(
                cluster = %member.cluster, broker = %member.broker, id = member.id, address = %member.address,
                cause = cause.name(), "broker removed"
            ),
            Event::BrokerSuspected { member, until } => tracing::warn!(
                cluster = %member.cluster, broker = %member.broker, id = member.id, address = %member.address,
                removed_at_ms = until.as_millis() as u64,
                "connection of broker broke by time-out; it is removed unless it is heard of"
            ),
            Event::BrokerTrusted { member } => tracing::info!(
                cluster = %member.cluster, broker = %member.broker, id = member.id, address = %member.address,
                "broker is heard of again"
            ),
            Event::TopicsChanged { broker, added, altered, removed, example } => tracing::info!(
                broker = %broker, added, altered, removed, example = %example, "topics changed"
            ),
            Event::Conflict { kind, member, other, first: true } => tracing::warn!(
                kind = kind.name(), cluster = %member.cluster, broker = %member.broker, id = member.id,
                address = %member.address, other = %other,
                "registrations contradict each other (logged once for this broker, then counted)"
            ),
            // Repeated conflicts are counted in the metrics, and new kinds of events have no line yet.
            _ => {}
        }
    }
}
