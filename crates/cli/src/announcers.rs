//! Who announces a topic that was deleted: what an operator must know, since it comes back.

use std::time::Duration;

use waypost_net::address::HostPort;
use waypost_net::plain::plain;

use crate::live_table::{AdminUrl, LiveTable, details, fetch, query_text};
use crate::render::span;

/// What the admin sides of some servers tell of one deleted topic.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Announcers {
    /// Servers that remember it as deleted.
    pub deletions: Vec<Deletion>,
    /// Servers whose admin side is out of reach.
    pub out_of_reach: Vec<String>,
}

/// A topic that a server had and deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// The topic.
    pub topic: String,
    /// `host:port`.
    pub server: String,
    /// The broker names that had announced it.
    pub brokers: Vec<String>,
    /// How long ago it was deleted, in milliseconds.
    pub age_ms: u64,
}

impl Announcers {
    /// Asks the admin side of each server: the one that was named, or that at the usual place.
    pub async fn ask<'a>(
        url: Option<&AdminUrl>,
        servers: impl IntoIterator<Item = &'a HostPort>,
        topic: &str,
        limit: Duration,
    ) -> Self {
        let servers: Vec<&HostPort> = servers.into_iter().collect();
        let query = format!("topic={}", query_text(topic));
        // The one that was named is the admin side of one server, and may tell which.
        let named = match url {
            Some(url) if !servers.is_empty() => fetch(url, &query, limit).await.ok(),
            _ => None,
        };
        let mut found = Self::default();
        for server in &servers {
            let table = match url {
                Some(_) => named.clone().filter(|table| servers.len() == 1 || table.is_of(server)),
                None => details(None, server, &query, limit).await.0,
            };
            let server = server.to_string();
            match table {
                Some(table) => found.deletions.extend(Deletion::of(&table, &server, topic)),
                None => found.out_of_reach.push(server),
            }
        }
        found
    }

    /// Who had announced the topic and what follows from it; one sentence for servers that say the same.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut told: Vec<(&Deletion, Vec<&str>)> = Vec::new();
        for deletion in &self.deletions {
            match told.iter_mut().find(|(first, _)| first.brokers == deletion.brokers) {
                Some((_, servers)) => servers.push(&deletion.server),
                None => told.push((deletion, vec![&deletion.server])),
            }
        }
        told.into_iter().map(|(deletion, servers)| deletion.told(&servers)).collect()
    }

    /// That it is not known who announces the topic to some servers.
    #[must_use]
    pub fn ignorance(&self) -> Option<String> {
        let servers: Vec<&str> = self.out_of_reach.iter().map(String::as_str).collect();
        (!servers.is_empty()).then(|| {
            format!(
                "whether a broker has it still and brings it back to {} with its next registration, only the admin side \
                 of a Waypost tells, which is out of reach (--admin)",
                listed(&servers)
            )
        })
    }
}

impl Deletion {
    /// What the table of `server` tells of a topic, if it remembers it as deleted.
    #[must_use]
    pub fn of(table: &LiveTable, server: &str, topic: &str) -> Option<Self> {
        let row = table.deleted.iter().find(|row| row.topic == topic)?;
        Some(Self {
            topic: plain(topic),
            server: server.to_owned(),
            brokers: row.brokers.iter().map(|broker| plain(broker)).collect(),
            age_ms: row.deleted_age_ms,
        })
    }

    /// Who had announced the topic and what follows from it.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.told(&[&self.server])
    }

    fn told(&self, servers: &[&str]) -> String {
        let brokers: Vec<&str> = self.brokers.iter().map(String::as_str).collect();
        let next = if brokers.len() == 1 {
            "its next registration brings"
        } else {
            "their next registrations bring"
        };
        format!(
            "{} had announced \"{}\" when it was deleted {} ago: unless it is deleted there, too, {next} it back to {} \
             within 30 s",
            listed(&brokers),
            self.topic,
            span(self.age_ms),
            listed(servers)
        )
    }
}

/// Names that are told at most.
const TOLD_MAX: usize = 5;

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = names.iter().take(TOLD_MAX).map(|name| (*name).to_owned()).collect();
    if more > 0 {
        told.push(format!("{more} more"));
    }
    match told.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => told.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(server: &str, brokers: &[&str]) -> Deletion {
        let brokers = brokers.iter().map(|broker| (*broker).to_owned()).collect();
        Deletion { topic: "T".to_owned(), server: server.to_owned(), brokers, age_ms: 12_000 }
    }

    #[test]
    fn servers_that_remember_the_same_are_told_in_one_sentence() {
        let told = Announcers {
            deletions: vec![
                deletion("a:1", &["ba", "bb"]),
                deletion("b:1", &["ba"]),
                deletion("c:1", &["ba", "bb"]),
            ],
            out_of_reach: Vec::new(),
        };
        assert_eq!(
            told.sentences(),
            [
                "ba and bb had announced \"T\" when it was deleted 12s ago: unless it is deleted there, too, their next \
                 registrations bring it back to a:1 and c:1 within 30 s",
                "ba had announced \"T\" when it was deleted 12s ago: unless it is deleted there, too, its next registration \
                 brings it back to b:1 within 30 s",
            ]
        );
        assert_eq!(told.ignorance(), None);
    }

    #[test]
    fn what_is_out_of_reach_is_said_to_be() {
        let told = Announcers { out_of_reach: vec!["a:1".into(), "b:1".into()], ..Announcers::default() };
        assert!(told.sentences().is_empty());
        let ignorance = told.ignorance().expect("a sentence");
        assert!(ignorance.contains("to a:1 and b:1") && ignorance.contains("out of reach"), "{ignorance}");
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
