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
            Judgement::Same | Judgement::Doubted | Judgement::NotExist | Judgement::Missing => {}
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
