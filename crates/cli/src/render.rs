//! Results as text: tables for people, JSON for programs. No IO.
//!
//! Tables have a line of titles and columns that two blanks separate, so that they can be read, cut and
//! pasted. The JSON is the data itself, as the modules document it.

mod table;

use std::time::Duration;

use serde::Serialize;
use waypost_net::plain::{plain, plain_json};

use crate::brokers::{Broker, Brokers, Clusters, Details};
use crate::configuration::ConfigurationRow;
use crate::doctor::Findings;
use crate::everywhere::OutcomeRow;
use crate::kv::KvNamespace;
use crate::route::{Route, RouteBroker};
use crate::topics::Topics;

pub use self::table::Table;

/// The data as JSON, with a line end.
#[must_use]
pub fn json<T: Serialize>(data: &T) -> String {
    let mut text = serde_json::to_string_pretty(data).expect("invariant: the data has no map with odd keys");
    text.push('\n');
    plain_json(&text)
}

/// The route of a topic.
#[must_use]
pub fn route(route: &Route) -> String {
    let overlaid = |group: &RouteBroker| group.announced_perm.is_some_and(|perm| perm != group.perm);
    let overlay = route.brokers.iter().any(overlaid);
    let zones = route.brokers.iter().any(|group| group.zone.is_some());
    let mut titles = vec!["BROKER", "CLUSTER", "READ", "WRITE", "PERM"];
    titles.extend(overlay.then_some("ANNOUNCED"));
    titles.extend(zones.then_some("ZONE"));
    titles.push("ADDRESSES");
    let mut table = Table::new(&titles);
    for group in &route.brokers {
        let addresses: Vec<String> =
            group.addresses.iter().map(|member| format!("{}={}", member.id, member.address)).collect();
        let mut row = vec![
            group.broker.clone(),
            group.cluster.clone().unwrap_or_else(|| "?".into()),
            group.read_queues.to_string(),
            group.write_queues.to_string(),
            group.permission.clone(),
        ];
        row.extend(
            overlay.then(|| group.announced_perm.map_or_else(String::new, crate::permission::letters)),
        );
        row.extend(zones.then(|| group.zone.clone().unwrap_or_default()));
        row.push(addresses.join(" "));
        table.row(row);
    }
    let mut text = table.text();
    if let Some(order) = &route.order_configuration {
        text.push_str(&format!("\norder: {}\n", plain(order)));
    }
    if !route.static_queues.is_empty() {
        text.push('\n');
        text.push_str(&static_queues(route));
    }
    let members: Vec<(String, i64, &str, &Details)> = route
        .brokers
        .iter()
        .flat_map(|group| group.addresses.iter().map(move |member| (group, member)))
        .filter_map(|(group, member)| {
            let details = member.details.as_ref()?;
            Some((group.broker.clone(), member.id, member.address.as_str(), details))
        })
        .collect();
    if !members.is_empty() {
        text.push('\n');
        text.push_str(&details(&members));
    }
    text
}

fn static_queues(route: &Route) -> String {
    let mut table = Table::new(&["STATIC QUEUES ON", "EPOCH", "TOTAL", "LOGICAL=PHYSICAL"]);
    for mapping in &route.static_queues {
        let queues: Vec<String> =
            mapping.queues.iter().map(|(logical, physical)| format!("{logical}={physical}")).collect();
        table.row([
            mapping.broker.clone(),
            mapping.epoch.to_string(),
            mapping.total_queues.to_string(),
            queues.join(" "),
        ]);
    }
    table.text()
}

const DETAIL_TITLES: [&str; 7] =
    ["REGISTERED", "HEARD", "TIMEOUT", "DATA VERSION", "HA ADDRESS", "CONNECTION", "STATE"];

fn details(members: &[(String, i64, &str, &Details)]) -> String {
    let mut titles = vec!["BROKER", "ID", "ADDRESS"];
    titles.extend(DETAIL_TITLES);
    let mut table = Table::new(&titles);
    for (broker, id, address, details) in members {
        let mut row = vec![broker.clone(), id.to_string(), (*address).to_owned()];
        row.extend(detail_cells(details));
        table.row(row);
    }
    table.text()
}

fn detail_cells(details: &Details) -> [String; 7] {
    let version = details.data_version;
    [
        span(details.registered_for_ms),
        format!("{} ago", span(details.last_heartbeat_age_ms)),
        span(details.timeout_ms),
        format!("{}/{}/{}", version.state_version, version.timestamp, version.counter),
        details.ha_address.clone().unwrap_or_default(),
        details.peer.clone().unwrap_or_else(|| "gone".into()),
        details
            .removed_in_ms
            .map_or_else(|| "live".into(), |left| format!("suspect, leaves in {}", span(left))),
    ]
}

/// All brokers.
#[must_use]
pub fn brokers(brokers: &Brokers) -> String {
    let detailed = brokers.brokers.iter().any(|broker| broker.details.is_some());
    let zones = brokers.brokers.iter().any(|broker| broker.zone.is_some());
    let mut titles = vec!["CLUSTER", "BROKER", "ID", "ADDRESS"];
    titles.extend(zones.then_some("ZONE"));
    if detailed {
        titles.extend(DETAIL_TITLES);
    }
    let mut table = Table::new(&titles);
    for broker in &brokers.brokers {
        let Broker { cluster, broker: name, id, address, zone, details, .. } = broker;
        let mut row = vec![cluster.clone(), name.clone(), id.to_string(), address.clone()];
        row.extend(zones.then(|| zone.clone().unwrap_or_default()));
        if detailed {
            row.extend(details.as_ref().map_or_else(|| std::array::from_fn(|_| String::new()), detail_cells));
        }
        table.row(row);
    }
    table.text()
}

/// All clusters.
#[must_use]
pub fn clusters(clusters: &Clusters) -> String {
    let lost = clusters.clusters.iter().any(|cluster| !cluster.without_master.is_empty());
    let mut titles = vec!["CLUSTER", "ADDRESSES", "BROKERS"];
    titles.extend(lost.then_some("WITHOUT MASTER"));
    let mut table = Table::new(&titles);
    for cluster in &clusters.clusters {
        let mut row = vec![cluster.cluster.clone(), cluster.addresses.to_string(), cluster.brokers.join(" ")];
        row.extend(lost.then(|| cluster.without_master.join(" ")));
        table.row(row);
    }
    table.text()
}

/// One topic a line.
#[must_use]
pub fn topics(topics: &Topics) -> String {
    topics.topics.iter().fold(String::new(), |text, topic| text + &plain(topic) + "\n")
}

/// The keys of a namespace.
#[must_use]
pub fn kv(namespace: &KvNamespace) -> String {
    let mut table = Table::new(&["KEY", "VALUE"]);
    for (key, value) in &namespace.entries {
        table.row([key.clone(), value.clone()]);
    }
    table.text()
}

/// `key=value` lines.
#[must_use]
pub fn settings(settings: &crate::settings::Settings) -> String {
    let line = |(key, value): (&String, &String)| format!("{}={}\n", plain(key), plain(value));
    settings.settings.iter().map(line).collect()
}

/// Every value of a configuration with its source.
#[must_use]
pub fn configuration(rows: &[ConfigurationRow]) -> String {
    let mut table = Table::new(&["KEY", "VALUE", "SOURCE"]);
    for row in rows {
        let source = if row.acts { row.source.clone() } else { format!("{} (no effect)", row.source) };
        table.row([row.key.clone(), row.value.clone(), source]);
    }
    table.text()
}

/// What became of a change on each server. `done` says it for one where it is done.
#[must_use]
pub fn outcomes(rows: &[OutcomeRow], done: &str) -> String {
    let counted = rows.iter().any(|row| row.topics.is_some());
    let mut titles = vec!["SERVER", "RESULT"];
    titles.extend(counted.then_some("TOPICS"));
    let mut table = Table::new(&titles);
    for row in rows {
        let result = row.error.map_or_else(|| done.to_owned(), |error| error.replace('_', " "));
        let mut cells = vec![row.server.clone(), result];
        cells.extend(counted.then(|| row.topics.map_or_else(String::new, |topics| topics.to_string())));
        table.row(cells);
    }
    table.text()
}

/// What the doctor found; the problems go elsewhere.
#[must_use]
pub fn findings(findings: &Findings) -> String {
    let mut servers = Table::new(&["SERVER", "STATE", "CLUSTERS", "BROKERS"]);
    for server in &findings.servers {
        servers.row([
            server.server.clone(),
            server.state.replace('_', " "),
            server.clusters.to_string(),
            server.brokers.to_string(),
        ]);
    }
    let mut text = servers.text();
    if !findings.brokers.is_empty() {
        let mut brokers = Table::new(&["CLUSTER", "BROKER", "ID", "ADDRESS", "REACHABLE", "KNOWN TO"]);
        for broker in &findings.brokers {
            brokers.row([
                broker.cluster.clone(),
                broker.broker.clone(),
                broker.id.to_string(),
                broker.address.clone(),
                if broker.reachable { "yes" } else { "no" }.to_owned(),
                broker.known_to.join(" "),
            ]);
        }
        text.push('\n');
        text.push_str(&brokers.text());
    }
    text
}

/// A span of milliseconds for people: its two largest units.
#[must_use]
pub fn span(milliseconds: u64) -> String {
    let all = Duration::from_millis(milliseconds);
    let seconds = all.as_secs();
    match seconds {
        0 => format!("{milliseconds}ms"),
        1..10 => format!("{:.1}s", all.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests;
