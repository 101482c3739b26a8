//! `waypost agent status`: how a running agent does.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arguments::{Output, OutputArguments};
use crate::exit::Exit;
use crate::live_table::{AdminUrl, get};
use crate::render::{Table, json};
use crate::run::Report;

/// How long the agent may take to say.
const LIMIT: Duration = Duration::from_secs(3);

/// What an agent says of itself at `/v1/agent`. Times are milliseconds before it said so.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// Addresses that programs connect to.
    pub listening: Vec<String>,
    /// Connections of programs.
    pub connections: u64,
    /// Routes that are known.
    pub routes: u64,
    /// Of these, how many could not be confirmed in time.
    pub stale_routes: u64,
    /// Age of the route that was confirmed longest ago.
    pub oldest_route_ms: Option<u64>,
    /// Name servers.
    pub servers: Vec<Server>,
    /// Servers of its list that it leaves out: agents that lead back to it.
    pub left_out: Vec<String>,
    /// Brokers of the agent's machine.
    pub brokers: Vec<Broker>,
}

/// A name server as the agent sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Which.
    pub server: String,
    /// How it stands: `unknown`, `healthy`, `silent` or `refusing`.
    pub state: String,
    /// Since when.
    pub since_ms: Option<u64>,
    /// Whether it is healthy.
    pub healthy: bool,
    /// Average time to an answer.
    pub latency_us: Option<u64>,
    /// Failures since the last answer.
    pub failures: u32,
    /// When it last answered.
    pub answered_ms: Option<u64>,
    /// What it last did wrong.
    pub last_fault: Option<String>,
    /// When that was.
    pub last_fault_ms: Option<u64>,
}

/// A broker of the agent's machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Broker {
    /// Its name.
    pub broker: String,
    /// Its advertised address.
    pub address: String,
    /// Its cluster.
    pub cluster: String,
    /// Its id.
    pub id: i64,
    /// When it last said something.
    pub heard_ms: u64,
    /// How each name server stands.
    pub servers: Vec<Upstream>,
}

/// What a name server has of a broker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// Which.
    pub server: String,
    /// Whether the broker's connection to it is up.
    pub connected: bool,
    /// When it last accepted a registration.
    pub accepted_ms: Option<u64>,
    /// Frames that wait for it.
    pub queue: u64,
    /// What went wrong last.
    pub error: Option<String>,
}

/// Asks an agent and tells what it says.
pub async fn status(admin: &AdminUrl, output: OutputArguments) -> Report {
    let answered = match get(admin, "/v1/agent", LIMIT).await {
        Ok(answered) => answered,
        Err(error) => {
            let next = "is an agent running here? `waypost agent` starts one; --admin names another";
            return Report::failed(Exit::Unreachable, format!("{error}; {next}"));
        }
    };
    let status: AgentStatus = match answered {
        (200, body) => match serde_json::from_slice(&body) {
            Ok(status) => status,
            Err(error) => return Report::failed(Exit::No, format!("{admin} sent no status: {error}")),
        },
        (code, _) => {
            let error = format!("{admin} is no agent: HTTP status {code}; a NameServer's side is on 9880");
            return Report::failed(Exit::No, error);
        }
    };
    let data = match output.output {
        Output::Json => json(&status),
        Output::Table => text(&status),
    };
    Report { data, ..Report::done() }
}

fn text(status: &AgentStatus) -> String {
    let ago = |age: Option<u64>| age.map_or_else(|| "never".to_owned(), |age| format!("{} ago", span(age)));
    let mut text = format!(
        "listening {}; {} connections; {} routes, {} stale, the oldest confirmed {}\n\n",
        status.listening.join(", "),
        status.connections,
        status.routes,
        status.stale_routes,
        ago(status.oldest_route_ms),
    );
    let titles = ["NAME SERVER", "STATE", "SINCE", "LATENCY", "ANSWERED", "FAILURES", "LAST FAULT"];
    let mut servers = Table::new(&titles);
    for server in &status.servers {
        let fault = |fault: &String| match server.last_fault_ms {
            Some(at) => format!("{fault}, {} ago", span(at)),
            None => fault.clone(),
        };
        servers.row([
            server.server.clone(),
            server.state.clone(),
            server.since_ms.map(span).unwrap_or_default(),
            server.latency_us.map(|micros| format!("{:.1} ms", micros as f64 / 1_000.0)).unwrap_or_default(),
            ago(server.answered_ms),
            server.failures.to_string(),
            server.last_fault.as_ref().map(fault).unwrap_or_default(),
        ]);
    }
    text.push_str(&servers.text());
    for server in &status.left_out {
        text.push_str(&format!("{server} is left out: it is an agent that leads back to this one\n"));
    }
    text.push('\n');
    if status.brokers.is_empty() {
        text.push_str("no broker has registered here\n");
        return text;
    }
    let titles = ["BROKER", "ID", "ADDRESS", "HEARD", "NAME SERVER", "ACCEPTED", "WAITING", "LAST ERROR"];
    let mut brokers = Table::new(&titles);
    for broker in &status.brokers {
        for server in &broker.servers {
            brokers.row([
                broker.broker.clone(),
                broker.id.to_string(),
                broker.address.clone(),
                ago(Some(broker.heard_ms)),
                server.server.clone(),
                ago(server.accepted_ms),
                server.queue.to_string(),
                server.error.clone().unwrap_or_default(),
            ]);
        }
    }
    text.push_str(&brokers.text());
    text
}

fn span(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..120_000 => format!("{} s", milliseconds / 1_000),
        120_000..7_200_000 => format!("{} min", milliseconds / 60_000),
        _ => format!("{} h", milliseconds / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broker_has_a_line_for_each_server() {
        let upstream = |server: &str, accepted_ms| Upstream {
            server: server.to_owned(),
            connected: true,
            accepted_ms,
            queue: 0,
            error: None,
        };
        let broker = Broker {
            broker: "broker-a".to_owned(),
            address: "10.0.0.7:10911".to_owned(),
            heard_ms: 4_200,
            servers: vec![upstream("a:9876", Some(500)), upstream("b:9876", None)],
            ..Broker::default()
        };
        let left_out = vec!["c:9876".to_owned()];
        let healthy = Server {
            server: "a:9876".to_owned(),
            state: "healthy".to_owned(),
            since_ms: Some(7_300_000),
            healthy: true,
            latency_us: Some(350),
            ..Server::default()
        };
        let silent = Server {
            server: "b:9876".to_owned(),
            state: "silent".to_owned(),
            since_ms: Some(61_000),
            last_fault: Some("silent".to_owned()),
            last_fault_ms: Some(59_000),
            ..Server::default()
        };
        let status = AgentStatus {
            servers: vec![healthy, silent],
            left_out,
            brokers: vec![broker],
            ..AgentStatus::default()
        };
        let text = text(&status);
        assert!(text.contains("a:9876       healthy  2 h    0.3 ms"), "{text}");
        assert!(text.contains("b:9876       silent   61 s"), "{text}");
        assert!(text.contains("silent, 59 s ago"), "{text}");
        assert!(text.contains("b:9876       never"), "{text}");
        assert!(text.contains("500 ms ago"), "{text}");
        assert!(text.contains("c:9876 is left out: it is an agent that leads back"), "{text}");
    }
}
