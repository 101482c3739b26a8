//! Why a cluster cannot be seen: asks every server, then knocks at every address that they advertise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use waypost_net::address::{Host, HostPort};
use waypost_net::dialer::Dialer;

use crate::brokers::cluster_info;
use crate::call::{CallError, Caller};
use crate::everywhere::tell_all;
use crate::exit::Exit;
use crate::servers::Servers;

/// Addresses that are knocked at together: more would look like an attack to the network.
const KNOCKS_AT_ONCE: usize = 64;

/// What was found, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Findings {
    /// What each server said.
    pub servers: Vec<ServerFinding>,
    /// What came of each advertised address.
    pub brokers: Vec<BrokerFinding>,
    /// What is wrong, with the next step; empty if nothing is.
    pub problems: Vec<String>,
}

/// A server of the list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ServerFinding {
    /// `host:port`.
    pub server: String,
    /// Whether it answered as a NameServer does, be it with a refusal.
    pub answers: bool,
    /// `answers`, or why it told nothing: a kind of [`CallError`].
    pub state: &'static str,
    /// Whether anything came back from it.
    #[serde(skip)]
    pub reached: bool,
    /// Clusters that it knows.
    pub clusters: usize,
    /// Broker addresses that it knows.
    pub brokers: usize,
}

/// An advertised address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BrokerFinding {
    /// Cluster of its group.
    pub cluster: String,
    /// Broker name.
    pub broker: String,
    /// Broker id.
    pub id: i64,
    /// As the servers tell it to clients.
    pub address: String,
    /// Whether a connection from here comes to be.
    pub reachable: bool,
    /// Servers that know it.
    pub known_to: Vec<String>,
}

impl Findings {
    /// How the command ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.servers.iter().all(|server| !server.reached) {
            Exit::Unreachable
        } else if self.problems.is_empty() {
            Exit::Done
        } else {
            Exit::No
        }
    }
}

/// Looks. Takes at most twice the caller's limit, plus one limit for every 64 silent addresses.
pub async fn examine(caller: &Caller, servers: &Servers) -> Findings {
    let mut findings = Findings::default();
    let mut brokers: BTreeMap<(String, String, i64, String), BTreeSet<String>> = BTreeMap::new();
    // One that refuses tells nothing of what is registered with it.
    let mut telling: Vec<String> = Vec::new();
    let told = tell_all(servers, |server| async move { cluster_info(caller, &server).await }).await;
    findings.problems = told.errors();
    for (server, result) in &told.by_server {
        let mut finding = ServerFinding { server: server.to_string(), ..ServerFinding::default() };
        match result {
            Err(error) => {
                finding.state = error.kind();
                finding.reached = !error.is_unanswered();
                // Whoever sends nonsense is something else than a NameServer.
                finding.answers = finding.reached && !matches!(error, CallError::Malformed { .. });
            }
            Ok(info) => {
                (finding.answers, finding.reached, finding.state) = (true, true, "answers");
                telling.push(server.to_string());
                finding.clusters = info.cluster_addr_table.len();
                for group in info.broker_addr_table.values() {
                    for (id, address) in &group.broker_addrs {
                        finding.brokers = finding.brokers.saturating_add(1);
                        let key = (group.cluster.clone(), group.broker_name.clone(), *id, address.clone());
                        brokers.entry(key).or_default().insert(server.to_string());
                    }
                }
                if finding.brokers == 0 {
                    findings.problems.push(format!(
                        "{server} answers but no broker is registered with it; start one with namesrvAddr={servers} \
                         and look into its log (broker.log) for \"register broker\""
                    ));
                }
            }
        }
        findings.servers.push(finding);
    }
    let rows: Vec<_> = brokers.into_iter().collect();
    for chunk in rows.chunks(KNOCKS_AT_ONCE) {
        for finding in knock_at(caller, chunk).await {
            judge(&finding, &telling, &mut findings.problems);
            findings.brokers.push(finding);
        }
    }
    findings
}

type Row = ((String, String, i64, String), BTreeSet<String>);

async fn knock_at(caller: &Caller, rows: &[Row]) -> Vec<BrokerFinding> {
    let targets: Vec<Option<HostPort>> = rows.iter().map(|((.., address), _)| address.parse().ok()).collect();
    let dialer = Dialer { tls: None, ..caller.dialer.clone() };
    let mut knocks: Vec<_> =
        targets.iter().map(|target| Box::pin(knock(&dialer, target.as_ref(), caller.limit))).collect();
    let mut reached = vec![None; knocks.len()];
    std::future::poll_fn(|context| {
        for (knock, reached) in knocks.iter_mut().zip(&mut reached) {
            if reached.is_none()
                && let std::task::Poll::Ready(result) = knock.as_mut().poll(context)
            {
                *reached = Some(result);
            }
        }
        if reached.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    let finding =
        |(((cluster, broker, id, address), known_to), reached): (&Row, Option<bool>)| BrokerFinding {
            cluster: cluster.clone(),
            broker: broker.clone(),
            id: *id,
            address: address.clone(),
            reachable: reached.unwrap_or(false),
            known_to: known_to.iter().cloned().collect(),
        };
    rows.iter().zip(reached).map(finding).collect()
}

async fn knock(dialer: &Dialer, target: Option<&HostPort>, limit: Duration) -> bool {
    match target {
        Some(target) => dialer.dial(target, limit).await.is_ok(),
        None => false,
    }
}

fn judge(finding: &BrokerFinding, telling: &[String], problems: &mut Vec<String>) {
    let BrokerFinding { broker, id, address, .. } = finding;
    let name = format!("{broker} (id {id}) at {address}");
    if !finding.reachable {
        let hint = match address.parse::<HostPort>() {
            Err(_) => "clients cannot read that address",
            Ok(HostPort { host: Host::Ip(ip), .. }) if ip.is_loopback() || ip.is_unspecified() => {
                "that address means each machine itself"
            }
            Ok(_) => "if the broker runs, clients cannot reach it there",
        };
        problems.push(format!(
            "{name} cannot be connected to from here; {hint}: set brokerIP1 in the broker's configuration to an \
             address that clients can reach"
        ));
    }
    let missing: Vec<&str> =
        telling.iter().filter(|server| !finding.known_to.contains(server)).map(String::as_str).collect();
    if !missing.is_empty() {
        problems.push(format!(
            "{name} is not registered with {}; put every server into the broker's namesrvAddr, or look whether it \
             can reach that one",
            missing.join(", ")
        ));
    }
}
