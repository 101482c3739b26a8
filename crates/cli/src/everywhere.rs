//! Changes, which every server of a list must be told: they do not tell each other.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use serde::Serialize;
use waypost_net::address::HostPort;

use crate::call::CallError;
use crate::exit::Exit;
use crate::sentences::sentences;
use crate::servers::Servers;

/// What became of a change, by server in the order of the list.
#[derive(Debug)]
pub struct Outcomes<T> {
    /// At least one.
    pub by_server: Vec<(HostPort, Result<T, CallError>)>,
}

/// What became of a change on one server, for programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OutcomeRow {
    /// `host:port`.
    pub server: String,
    /// Whether it is done there.
    pub done: bool,
    /// How many topics changed, where the server counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<u64>,
    /// What the server warns of although it is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The kind of the error ([`CallError::kind`]), if it is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// What went wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a server said beside its success.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// How many topics changed, where the server counts them.
    pub topics: Option<u64>,
    /// Its warnings.
    pub warnings: Vec<String>,
}

impl<T> Outcomes<T> {
    /// How the command ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let failures: Vec<&CallError> =
            self.by_server.iter().filter_map(|(_, result)| result.as_ref().err()).collect();
        if failures.is_empty() {
            Exit::Done
        } else if failures.len() < self.by_server.len() {
            Exit::Partial
        } else if failures.iter().all(|failure| failure.is_unanswered()) {
            Exit::Unreachable
        } else {
            Exit::No
        }
    }

    /// The servers where it is done.
    pub fn done(&self) -> impl Iterator<Item = &HostPort> {
        self.by_server.iter().filter(|(_, result)| result.is_ok()).map(|(server, _)| server)
    }

    /// What went wrong, what is equal once.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        sentences(self.by_server.iter().filter_map(|(_, result)| result.as_ref().err()))
    }

    /// One row a server; `detail` says what came with a success.
    pub fn rows(&self, detail: impl Fn(&T) -> Detail) -> Vec<OutcomeRow> {
        let row = |(server, result): &(HostPort, Result<T, CallError>)| {
            let Detail { topics, warnings } = result.as_ref().map_or_else(|_| Detail::default(), &detail);
            OutcomeRow {
                server: server.to_string(),
                done: result.is_ok(),
                topics,
                warnings,
                error: result.as_ref().err().map(CallError::kind),
                message: result.as_ref().err().map(ToString::to_string),
            }
        };
        self.by_server.iter().map(row).collect()
    }
}

/// The warnings of all `rows`: once where every server gave it, else with the servers that did.
#[must_use]
pub fn warnings(rows: &[OutcomeRow]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (row, warning) in rows.iter().flat_map(|row| row.warnings.iter().map(move |warning| (row, warning))) {
        match groups.iter_mut().find(|(text, _)| *text == warning) {
            Some((_, servers)) => servers.push(&row.server),
            None => groups.push((warning, vec![&row.server])),
        }
    }
    let sentence = |(text, servers): (&str, Vec<&str>)| {
        if servers.len() == rows.len() { text.to_owned() } else { format!("{}: {text}", servers.join(", ")) }
    };
    groups.into_iter().map(sentence).collect()
}

/// Tells all servers at once and waits for every one. Each `tell` has its own limit of time.
pub async fn tell_all<T, F, A>(servers: &Servers, tell: F) -> Outcomes<T>
where
    F: Fn(HostPort) -> A,
    A: Future<Output = Result<T, CallError>>,
{
    let mut running: Vec<Option<Pin<Box<A>>>> =
        servers.addresses().iter().map(|server| Some(Box::pin(tell(server.clone())))).collect();
    let mut results: Vec<Option<Result<T, CallError>>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (slot, result) in running.iter_mut().zip(&mut results) {
            let Some(future) = slot else { continue };
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                (*slot, *result) = (None, Some(value));
            }
        }
        if running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let results = results.into_iter().map(|result| result.expect("invariant: all have ended"));
    Outcomes { by_server: servers.addresses().iter().cloned().zip(results).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Missing, Reason};

    fn topics(count: &u64) -> Detail {
        Detail { topics: Some(*count), ..Detail::default() }
    }

    #[test]
    fn a_warning_of_every_server_is_told_once() {
        let row = |server: &str, warnings: &[&str]| OutcomeRow {
            server: server.into(),
            done: true,
            topics: None,
            warnings: warnings.iter().map(|&warning| warning.to_owned()).collect(),
            error: None,
            message: None,
        };
        let rows = [row("a:1", &["slow", "odd"]), row("b:1", &["slow"])];
        assert_eq!(warnings(&rows), ["slow", "a:1: odd"]);
        assert_eq!(warnings(&rows[..1]), ["slow", "odd"]);
    }

    async fn told(failing: &[(&str, bool)]) -> Outcomes<u64> {
        let list: Vec<&str> = failing.iter().map(|(server, _)| *server).collect();
        let servers: Servers = list.join(";").parse().expect("a list");
        tell_all(&servers, |server| async move {
            let name = server.to_string();
            if name.starts_with("down") {
                return Err(CallError::Unanswered {
                    server: server.clone(),
                    reason: Reason::Closed { server },
                });
            }
            if name.starts_with("no") {
                return Err(CallError::not_found(&server, Missing::Broker("b".into())));
            }
            Ok(3)
        })
        .await
    }

    #[tokio::test]
    async fn the_exit_tells_all_some_and_none_apart() {
        let table: [(&[(&str, bool)], Exit); 5] = [
            (&[("a", true), ("b", true)], Exit::Done),
            (&[("a", true), ("down", false)], Exit::Partial),
            (&[("a", true), ("no", false)], Exit::Partial),
            (&[("down", false), ("down2", false)], Exit::Unreachable),
            (&[("down", false), ("no", false)], Exit::No),
        ];
        for (servers, exit) in table {
            assert_eq!(told(servers).await.exit(), exit, "{servers:?}");
        }
    }

    #[tokio::test]
    async fn rows_keep_the_order_of_the_list() {
        let rows = told(&[("b", true), ("down", false), ("a", true)]).await.rows(topics);
        let servers: Vec<&str> = rows.iter().map(|row| row.server.as_str()).collect();
        assert_eq!(servers, ["b:9876", "down:9876", "a:9876"]);
        assert_eq!((rows[0].topics, rows[1].error), (Some(3), Some("closed")));
    }
}
