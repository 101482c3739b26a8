//! One question, carried from server to server until it has an answer or its time is over.

use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;

use crate::error::Said;
use crate::fleet::ServerId;
use crate::route::TopicRoute;

/// After this without an answer the next server is asked as well (decision 22).
pub(crate) const STAGGER: Duration = Duration::from_millis(200);

/// After this without an answer a server counts as failing (decision 22); its answer is still welcome.
pub(crate) const FIRST_TRY: Duration = Duration::from_millis(300);

/// The longest that one server is waited for; then its connection is closed. The time of the original (B3).
pub(crate) const TRY_MAX: Duration = Duration::from_secs(3);

/// How long other servers are asked to confirm an answer that is doubted (decision 23).
pub(crate) const CONFIRM_MAX: Duration = Duration::from_secs(2);

/// Pause before all servers are asked again for a caller whose time is not over.
const ROUND_PAUSE: Duration = Duration::from_millis(250);

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// The route of a topic.
    Route(Arc<str>),
    /// Any other read, by the number of its ticket, with its request code.
    Read { ticket: u64, code: i32 },
}

/// What was heard so far of a topic's route.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Servers that gave a route.
    pub(crate) routes: Vec<(ServerId, Arc<TopicRoute>)>,
    /// Servers that said that there is none.
    pub(crate) absent: Vec<ServerId>,
}

impl Heard {
    /// Notes what `server` says; what it said in an earlier round does not count any more.
    pub(crate) fn hear(&mut self, server: ServerId, route: Option<Arc<TopicRoute>>) {
        self.routes.retain(|(earlier, _)| *earlier != server);
        self.absent.retain(|earlier| *earlier != server);
        match route {
            Some(route) => self.routes.push((server, route)),
            None => self.absent.push(server),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.absent.is_empty()
    }
}

/// A question on its way.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) subject: Subject,
    pub(crate) began: Millis,
    pub(crate) deadline: Millis,
    /// Ask all servers again and again until the deadline: somebody waits.
    pub(crate) persistent: bool,
    /// Whether a poll began it.
    pub(crate) polled: bool,
    pub(crate) heard: Heard,
    /// The last word of each server.
    pub(crate) said: Vec<Said>,
    /// Servers asked in this round, in order.
    asked: Vec<ServerId>,
    /// Those of them that have not answered.
    pub(crate) outstanding: Vec<ServerId>,
    /// When the next server is asked, whatever the others do.
    next_at: Millis,
    /// When all servers are asked again, once all were.
    again_at: Option<Millis>,
    /// Until when the answer is to be confirmed, once it is doubted.
    confirm_until: Option<Millis>,
    /// From when on suspects are not waited for.
    healthy_only_from: Option<Millis>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask this server.
    Ask(ServerId),
    /// Wait until the time given, or for an answer.
    Wait(Millis),
    /// Everybody who can be asked was asked and has answered or failed, or the time is over.
    Complete,
}

impl Query {
    pub(crate) fn new(subject: Subject, now: Millis, deadline: Millis, persistent: bool) -> Self {
        Self {
            subject,
            began: now,
            deadline,
            persistent,
            polled: !persistent,
            heard: Heard::default(),
            said: Vec::new(),
            asked: Vec::new(),
            outstanding: Vec::new(),
            next_at: now,
            again_at: None,
            confirm_until: None,
            healthy_only_from: None,
        }
    }

    /// Somebody else waits as well, until `deadline`.
    pub(crate) fn extend(&mut self, deadline: Millis) {
        self.deadline = self.deadline.max(deadline);
        self.persistent = true;
    }

    /// Notes what became of a question to one server; only its last word stays, however often it is asked.
    pub(crate) fn note(&mut self, said: Said) {
        self.said.retain(|earlier| earlier.server != said.server);
        self.said.push(said);
    }

    /// The answer is doubted: all others are asked at once and have 2 s.
    pub(crate) fn confirm(&mut self, now: Millis) {
        if self.confirm_until.is_none() {
            self.confirm_until = Some(now.after(CONFIRM_MAX).min(self.deadline));
            self.healthy_only_from = Some(now.after(FIRST_TRY));
        }
    }

    /// An answer or a failure came from `server`; a failure lets the next one be asked at once.
    pub(crate) fn ended(&mut self, server: ServerId, failed: bool, now: Millis) {
        self.outstanding.retain(|asked| *asked != server);
        if failed {
            self.next_at = now;
        }
    }

    /// When the question ends at the latest. To confirm an answer takes 2 s at most, and no longer than the
    /// first-try budget when only suspects, which have not answered lately, are left to hear.
    fn end(&self, ranked: &[ServerId], healthy: usize) -> Millis {
        let Some(until) = self.confirm_until else { return self.deadline };
        let only_suspects = !ranked.iter().take(healthy).any(|server| self.outstanding.contains(server));
        let healthy_only = self.healthy_only_from.filter(|_| only_suspects);
        healthy_only.map_or(until, |from| from.min(until))
    }

    /// When [`Query::step`] has something to do, if nothing else happens.
    pub(crate) fn wakes_at(&self, ranked: &[ServerId], healthy: usize) -> Millis {
        let end = self.end(ranked, healthy);
        match self.again_at {
            Some(again) => again.min(end),
            None if ranked.iter().any(|server| !self.asked.contains(server)) => self.next_at.min(end),
            None => end,
        }
    }

    /// What to do at `now`, given the servers in the order in which to ask them, the first `healthy` of which are
    /// no suspects. To be called until it does not say [`Step::Ask`].
    pub(crate) fn step(&mut self, ranked: &[ServerId], healthy: usize, now: Millis) -> Step {
        let end = self.end(ranked, healthy);
        if now >= end {
            return Step::Complete;
        }
        if let Some(again) = self.again_at {
            if now < again {
                return Step::Wait(again.min(end));
            }
            self.asked.clone_from(&self.outstanding);
            self.again_at = None;
            self.next_at = now;
        }
        let next = ranked.iter().copied().find(|server| !self.asked.contains(server));
        let confirming = self.confirm_until.is_some();
        match next {
            Some(server) if confirming || now >= self.next_at => {
                self.asked.push(server);
                self.outstanding.push(server);
                self.next_at = now.after(STAGGER);
                Step::Ask(server)
            }
            Some(_) => Step::Wait(self.next_at.min(end)),
            None if confirming || !self.persistent => {
                if self.outstanding.is_empty() {
                    Step::Complete
                } else {
                    Step::Wait(end)
                }
            }
            None => {
                let again = now.after(ROUND_PAUSE);
                self.again_at = Some(again);
                Step::Wait(again.min(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests_support::ids;

    fn at(milliseconds: u64) -> Millis {
        Millis::new(milliseconds)
    }

    fn query(persistent: bool) -> Query {
        Query::new(Subject::Read { ticket: 1, code: 106 }, at(0), at(3_000), persistent)
    }

    #[test]
    fn the_next_server_is_asked_after_200_ms_of_silence() {
        let servers = ids(3);
        let mut query = query(true);
        assert_eq!(query.step(&servers, servers.len(), at(0)), Step::Ask(servers[0]));
        assert_eq!(query.step(&servers, servers.len(), at(0)), Step::Wait(at(200)));
        assert_eq!(query.step(&servers, servers.len(), at(200)), Step::Ask(servers[1]));
        assert_eq!(query.step(&servers, servers.len(), at(399)), Step::Wait(at(400)));
        assert_eq!(query.step(&servers, servers.len(), at(400)), Step::Ask(servers[2]));
    }

    #[test]
    fn a_failure_asks_the_next_server_at_once() {
        let servers = ids(2);
        let mut query = query(false);
        query.step(&servers, servers.len(), at(0));
        query.ended(servers[0], true, at(1));
        assert_eq!(query.step(&servers, servers.len(), at(1)), Step::Ask(servers[1]));
        query.ended(servers[1], true, at(2));
        assert_eq!(query.step(&servers, servers.len(), at(2)), Step::Complete);
    }

    #[test]
    fn a_waiting_caller_has_all_servers_asked_again_until_the_deadline() {
        let servers = ids(1);
        let mut query = query(true);
        let mut asked = 0;
        let mut now = 0;
        while now < 3_000 {
            match query.step(&servers, servers.len(), at(now)) {
                Step::Ask(server) => {
                    asked += 1;
                    query.ended(server, true, at(now));
                }
                Step::Wait(until) => now = until.get(),
                Step::Complete => unreachable!("a caller waits"),
            }
        }
        assert_eq!(asked, 12, "every 250 ms");
        assert_eq!(query.step(&servers, servers.len(), at(3_000)), Step::Complete);
    }

    #[test]
    fn to_confirm_all_others_are_asked_at_once_for_2_s() {
        let servers = ids(3);
        let mut query = query(false);
        query.step(&servers, servers.len(), at(0));
        query.ended(servers[0], false, at(10));
        query.confirm(at(10));
        assert_eq!(query.step(&servers, servers.len(), at(10)), Step::Ask(servers[1]));
        assert_eq!(query.step(&servers, servers.len(), at(10)), Step::Ask(servers[2]));
        assert_eq!(query.step(&servers, servers.len(), at(10)), Step::Wait(at(2_010)));
        query.ended(servers[1], false, at(20));
        query.ended(servers[2], true, at(20));
        assert_eq!(query.step(&servers, servers.len(), at(20)), Step::Complete);
    }

    #[test]
    fn suspects_have_300_ms_to_confirm() {
        let servers = ids(3);
        let mut query = query(false);
        query.step(&servers, 2, at(0));
        query.ended(servers[0], false, at(10));
        query.confirm(at(10));
        assert_eq!(query.step(&servers, 2, at(10)), Step::Ask(servers[1]));
        assert_eq!(query.step(&servers, 2, at(10)), Step::Ask(servers[2]));
        assert_eq!(query.step(&servers, 2, at(10)), Step::Wait(at(2_010)));
        query.ended(servers[1], false, at(20));
        assert_eq!(query.step(&servers, 2, at(20)), Step::Wait(at(310)));
        assert_eq!(query.step(&servers, 2, at(310)), Step::Complete);
    }

    #[test]
    fn a_list_that_is_empty_yet_is_waited_for_by_callers_only() {
        assert_eq!(query(false).step(&[], 0, at(0)), Step::Complete);
        let servers = ids(1);
        let mut query = query(true);
        assert_eq!(query.step(&[], 0, at(0)), Step::Wait(at(250)));
        assert_eq!(query.step(&servers, servers.len(), at(250)), Step::Ask(servers[0]));
    }
}
