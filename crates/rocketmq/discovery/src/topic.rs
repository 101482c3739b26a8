//! What is known of one topic, and which answers are believed.

use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;

use crate::fleet::ServerId;
use crate::query::Heard;
use crate::route::TopicRoute;

/// A content that another server contradicts, or that nobody can confirm, is believed after this: one period of
/// registration. Who gives old content for longer does not hear the brokers at all, and drops them soon.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same for a route that lost most of its brokers: as long as a silent broker stays on other servers
/// (65 s of silence and a scan).
const PATIENCE_AFTER_LOSS: Duration = Duration::from_secs(70);

/// A known route is dropped when all servers that answer say twice, so far apart, that there is none
/// (decision 23): two registration periods and a scan.
const GONE_AFTER: Duration = Duration::from_secs(65);

/// What is known of one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topic {
    /// The last content that was believed.
    pub(crate) route: Option<Arc<TopicRoute>>,
    /// Servers that gave this content. One of them giving another content has moved on: a server's answers never
    /// go back to older content.
    affirmed_by: Vec<ServerId>,
    /// When a server last gave this content, or all agreed that there is none.
    pub(crate) checked: Option<Millis>,
    /// Whether the last attempt to check it failed.
    pub(crate) stale: bool,
    /// Since when all servers that answer say that there is no such topic.
    missing_since: Option<Millis>,
    doubted: Option<Doubt>,
}

/// A content that is not believed yet.
#[derive(Clone, Debug)]
struct Doubt {
    content: Arc<TopicRoute>,
    since: Millis,
}

/// What to make of what was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The others have to be heard as well.
    Confirm,
    /// The known route stands.
    Same,
    /// Another content is believed from now on.
    Changed(Arc<TopicRoute>),
    /// The known route is kept although somebody says something else; ask again soon.
    Doubted,
    /// There is no such topic, and there was none.
    NotExist,
    /// The known route is dropped: the topic is gone.
    Gone,
    /// The known route is kept although all who answer say that there is none.
    Missing,
}

impl Topic {
    /// Judges what was heard. `complete` says that nobody else can be heard in time, `alone` that there is only
    /// one server. To be called with at least one answer; the state follows the judgement.
    pub(crate) fn judge(&mut self, heard: &Heard, complete: bool, alone: bool, now: Millis) -> Judgement {
        let judgement = match (&self.route, heard.routes.first()) {
            (None, Some((_, route))) => Judgement::Changed(Arc::clone(route)),
            (None, None) if complete => Judgement::NotExist,
            (None | Some(_), None) if !complete => Judgement::Confirm,
            (_, None) => self.judge_absence(now),
            (Some(known), Some(_)) => {
                let known = Arc::clone(known);
                self.judge_routes(&known, heard, complete, alone, now)
            }
        };
        self.follow(&judgement, heard, now);
        judgement
    }

    fn judge_absence(&mut self, now: Millis) -> Judgement {
        let since = *self.missing_since.get_or_insert(now);
        if now.since(since) >= GONE_AFTER { Judgement::Gone } else { Judgement::Missing }
    }

    fn judge_routes(
        &mut self,
        known: &TopicRoute,
        heard: &Heard,
        complete: bool,
        alone: bool,
        now: Millis,
    ) -> Judgement {
        let other = heard.routes.iter().find(|(_, route)| !route.content_equals(known));
        let Some((server, other)) = other else { return Judgement::Same };
        let other = Arc::clone(other);
        let agree = heard.routes.iter().filter(|(_, route)| route.content_equals(&other)).count();
        let contradicted = heard.routes.iter().any(|(_, route)| route.content_equals(known));
        let moved_on = self.affirmed_by.contains(server);
        let loses_most = known.loses_most_brokers(&other);
        if moved_on && !known.loses_brokers(&other) || agree > 1 {
            return Judgement::Changed(other);
        }
        if !complete {
            return Judgement::Confirm;
        }
        let unopposed = !contradicted && moved_on && !loses_most;
        if unopposed || alone {
            return Judgement::Changed(other);
        }
        let since = match &self.doubted {
            Some(doubt) if doubt.content.content_equals(&other) => doubt.since,
            _ => now,
        };
        let patience = if loses_most { PATIENCE_AFTER_LOSS } else { PATIENCE };
        if now.since(since) >= patience {
            return Judgement::Changed(other);
        }
        self.doubted = Some(Doubt { content: other, since });
        Judgement::Doubted
    }

    fn follow(&mut self, judgement: &Judgement, heard: &Heard, now: Millis) {
        match judgement {
            Judgement::Confirm => return,
            Judgement::Changed(route) => {
                self.affirmed_by.clear();
                self.route = Some(Arc::clone(route));
            }
            Judgement::Gone => {
                self.affirmed_by.clear();
                self.route = None;
            }
            Judgement::Same => {
                // Equal to subscribers, but cluster or zone may be others: who passes routes on wants the newest.
                let differs =
                    |route: &Arc<TopicRoute>| self.route.as_deref().is_some_and(|known| **route != *known);
                let newest = heard.routes.last().map(|(_, route)| route).filter(|route| differs(route));
                if let Some(newest) = newest.cloned() {
                    self.route = Some(newest);
                }
            }
            Judgement::Doubted | Judgement::NotExist | Judgement::Missing => {}
        }
        if let Some(known) = &self.route {
            for (server, route) in &heard.routes {
                let same = route.content_equals(known);
                self.affirmed_by.retain(|affirming| affirming != server);
                if same {
                    self.affirmed_by.push(*server);
                }
            }
        }
        if !heard.routes.is_empty() || self.route.is_none() {
            self.missing_since = None;
        }
        if !matches!(judgement, Judgement::Doubted) {
            self.doubted = None;
        }
        self.checked = Some(now);
        self.stale = false;
    }

    /// Whether the content is in doubt, so that it should be asked for again soon.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests_support::ids;
    use waypost_rocketmq_wire::body::{BrokerData, TopicRouteData};

    fn route(brokers: &[&str]) -> Arc<TopicRoute> {
        let groups = brokers.iter().map(|name| BrokerData {
            broker_name: (*name).to_owned(),
            broker_addrs: [(0, format!("{name}:10911"))].into(),
            ..BrokerData::default()
        });
        Arc::new(TopicRoute::from(TopicRouteData {
            broker_datas: groups.collect(),
            ..TopicRouteData::default()
        }))
    }

    fn at(seconds: u64) -> Millis {
        Millis::new(seconds * 1_000)
    }

    /// What servers 0, 1 and 2 said: brokers, or `None` for "no such topic".
    fn heard(said: &[(u64, Option<&[&str]>)]) -> Heard {
        let servers = ids(3);
        let mut heard = Heard::default();
        for (server, brokers) in said {
            heard.hear(servers[usize::try_from(*server).unwrap()], brokers.map(route));
        }
        heard
    }

    /// A topic of three brokers as server 0 gave it.
    fn known() -> Topic {
        let mut topic = Topic::default();
        let first = topic.judge(&heard(&[(0, Some(&["a", "b", "c"]))]), false, false, at(0));
        assert_eq!(first, Judgement::Changed(route(&["a", "b", "c"])));
        topic
    }

    #[test]
    fn the_server_that_gave_the_content_is_believed_when_it_gives_more() {
        let news = heard(&[(0, Some(&["a", "b", "c", "d"]))]);
        assert!(matches!(known().judge(&news, false, false, at(1)), Judgement::Changed(_)));
    }

    #[test]
    fn lost_brokers_are_confirmed_by_another_server() {
        let mut topic = known();
        assert_eq!(topic.judge(&heard(&[(0, Some(&["a"]))]), false, false, at(1)), Judgement::Confirm);
        let both = heard(&[(0, Some(&["a"])), (1, Some(&["a"]))]);
        assert_eq!(topic.judge(&both, false, false, at(1)), Judgement::Changed(route(&["a"])));
    }

    #[test]
    fn lost_brokers_that_another_server_still_has_are_doubted() {
        let mut topic = known();
        let contradicted = heard(&[(0, Some(&["a"])), (1, Some(&["a", "b", "c"]))]);
        for second in 1..=70 {
            assert_eq!(topic.judge(&contradicted, true, false, at(second)), Judgement::Doubted, "{second}");
        }
        assert_eq!(topic.judge(&contradicted, true, false, at(71)), Judgement::Changed(route(&["a"])));
    }

    #[test]
    fn one_lost_broker_is_believed_when_nobody_else_answers() {
        let alone = heard(&[(0, Some(&["a", "b"]))]);
        assert_eq!(known().judge(&alone, true, false, at(1)), Judgement::Changed(route(&["a", "b"])));
    }

    #[test]
    fn another_server_with_other_content_is_confirmed_and_then_waited_for() {
        let mut topic = known();
        let other = heard(&[(1, Some(&["a", "b", "c", "d"]))]);
        assert_eq!(topic.judge(&other, false, false, at(1)), Judgement::Confirm);
        assert_eq!(topic.judge(&other, true, false, at(1)), Judgement::Doubted);
        assert_eq!(topic.judge(&other, true, false, at(30)), Judgement::Doubted);
        assert!(matches!(topic.judge(&other, true, false, at(31)), Judgement::Changed(_)));
    }

    #[test]
    fn a_single_server_is_believed_at_once() {
        let news = heard(&[(0, Some(&["x"]))]);
        assert!(matches!(known().judge(&news, true, true, at(1)), Judgement::Changed(_)));
    }

    #[test]
    fn a_known_topic_is_gone_only_when_all_say_so_twice_65_s_apart() {
        let mut topic = known();
        let nothing = heard(&[(0, None), (1, None)]);
        assert_eq!(topic.judge(&nothing, false, false, at(1)), Judgement::Confirm);
        assert_eq!(topic.judge(&nothing, true, false, at(1)), Judgement::Missing);
        assert_eq!(topic.judge(&nothing, true, false, at(65)), Judgement::Missing);
        assert_eq!(topic.judge(&nothing, true, false, at(66)), Judgement::Gone);
        assert!(topic.route.is_none());
        assert_eq!(topic.judge(&nothing, true, false, at(67)), Judgement::NotExist);
    }

    #[test]
    fn one_server_that_has_the_topic_begins_the_65_s_anew() {
        let mut topic = known();
        let nothing = heard(&[(0, None), (1, None)]);
        topic.judge(&nothing, true, false, at(1));
        topic.judge(&heard(&[(0, None), (1, Some(&["a", "b", "c"]))]), true, false, at(40));
        assert_eq!(topic.judge(&nothing, true, false, at(70)), Judgement::Missing);
        assert_eq!(topic.judge(&nothing, true, false, at(135)), Judgement::Gone);
    }

    #[test]
    fn what_a_server_said_in_an_earlier_round_does_not_count_twice() {
        let mut heard = heard(&[(1, Some(&["a"]))]);
        heard.hear(ids(2)[1], Some(route(&["a"])));
        assert_eq!(known().judge(&heard, false, false, at(1)), Judgement::Confirm);
    }
}
