//! Who the master is, by what several servers say of it.

use std::collections::BTreeMap;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::endpoint::Endpoint;

/// How long the word of a server that does not answer any more counts: as long as servers keep a silent
/// broker.
const WORD_KEPT: Duration = Duration::from_secs(120);

/// The master of a slave's group, as a name server told it (part C 8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    /// The master's address (`masterAddr`).
    pub address: String,
    /// Where to fetch from (`haServerAddr`), if the server said it.
    pub ha_address: Option<String>,
}

/// What each server said last.
///
/// Brokers take the word of whichever server answers first, and stop syncing when that one has just been
/// restarted and does not know the master yet. Here, in this order:
///
/// 1. a server that holds the lease and names a master: of several, the one whose word changed last;
/// 2. a server that is silent or away now and named one less than 120 s ago, likewise;
/// 3. nobody.
///
/// A server that does not know the master therefore never overrides one that does.
#[derive(Debug, Default)]
pub(crate) struct Opinions {
    words: BTreeMap<Endpoint, Word>,
}

#[derive(Debug)]
struct Word {
    master: Option<Master>,
    since: Millis,
    heard: Millis,
    live: bool,
}

impl Opinions {
    /// `server` answered a registration.
    pub(crate) fn say(&mut self, server: &Endpoint, master: Option<Master>, now: Millis) {
        match self.words.get_mut(server) {
            Some(word) => {
                if word.master != master {
                    word.since = now;
                }
                (word.master, word.heard, word.live) = (master, now, true);
            }
            None => {
                self.words.insert(server.clone(), Word { master, since: now, heard: now, live: true });
            }
        }
    }

    /// `server` is silent or away.
    pub(crate) fn fall_silent(&mut self, server: &Endpoint) {
        if let Some(word) = self.words.get_mut(server) {
            word.live = false;
        }
    }

    /// `server` is no longer on the list.
    pub(crate) fn forget(&mut self, server: &Endpoint) {
        self.words.remove(server);
    }

    /// What was said does not count any more: this broker has another role.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// Who the master is.
    pub(crate) fn master(&self, now: Millis) -> Option<Master> {
        let counts = |word: &&Word| word.live || now.since(word.heard) < WORD_KEPT;
        let naming = self.words.values().filter(counts).filter(|word| word.master.is_some());
        naming.max_by_key(|word| (word.live, word.since)).and_then(|word| word.master.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> Endpoint {
        Endpoint::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn master(name: &str) -> Option<Master> {
        Some(Master { address: name.to_owned(), ha_address: None })
    }

    fn at(seconds: u64) -> Millis {
        Millis::new(seconds * 1_000)
    }

    #[test]
    fn a_server_that_does_not_know_the_master_never_overrides_one_that_does() {
        let mut opinions = Opinions::default();
        opinions.say(&server(1), master("m"), at(0));
        opinions.say(&server(2), None, at(1));
        assert_eq!(opinions.master(at(1)), master("m"));
        opinions.fall_silent(&server(1));
        opinions.say(&server(2), None, at(30));
        assert_eq!(opinions.master(at(30)), master("m"), "the one that knows is only silent");
        assert_eq!(opinions.master(at(121)), None, "for too long");
    }

    #[test]
    fn the_newest_change_among_servers_that_answer_wins() {
        let mut opinions = Opinions::default();
        opinions.say(&server(1), master("old"), at(0));
        opinions.say(&server(2), master("old"), at(0));
        opinions.say(&server(1), master("new"), at(10));
        opinions.say(&server(2), master("old"), at(11));
        assert_eq!(opinions.master(at(11)), master("new"), "repeating the old one is no news");
        opinions.say(&server(2), master("new"), at(40));
        opinions.fall_silent(&server(1));
        assert_eq!(opinions.master(at(41)), master("new"));
    }

    #[test]
    fn nobody_is_the_master_once_all_that_knew_say_so() {
        let mut opinions = Opinions::default();
        opinions.say(&server(1), master("m"), at(0));
        opinions.say(&server(1), None, at(30));
        assert_eq!(opinions.master(at(30)), None);
        opinions.say(&server(1), master("m"), at(60));
        opinions.forget(&server(1));
        assert_eq!(opinions.master(at(60)), None);
    }
}
