//! What goes into the core and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::TopicRouteData;

use crate::error::LookupError;
use crate::fleet::ServerId;
use crate::health::Fault;
use crate::route::TopicRoute;

/// Pairs an answer with its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Pairs a reply with the question that was put to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TryId(pub(super) u64);

/// What one server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The route of a topic.
    Route(Arc<str>),
    /// The read that came in with this ticket.
    Read(Ticket),
    /// Anything cheap, to see whether it answers.
    Probe,
}

/// What became of a question to one server.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A route.
    Route(TopicRouteData),
    /// It says that there is no such topic.
    NotExist,
    /// The answer to a read or a probe.
    Answer(Answer),
    /// It did something wrong; the text is for people.
    Failed(Fault, String),
}

/// What is known of a topic.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last content that was believed; `None` if there is no such topic, or nobody answered yet.
    pub route: Option<Arc<TopicRoute>>,
    /// When a server last confirmed it.
    pub checked: Option<Millis>,
    /// Whether the last attempt to confirm it failed, or no server answers at present.
    pub stale: bool,
}

impl Known {
    /// Whether it was confirmed within `max_age`, or may be of any age. No age at all is never reached, not even within
    /// the millisecond of the last answer: it asks the servers.
    pub(crate) fn is_young(&self, max_age: Option<Duration>, now: Millis) -> bool {
        let within =
            |age: Duration| !age.is_zero() && self.checked.is_some_and(|checked| now.since(checked) <= age);
        max_age.is_none_or(within)
    }
}

/// What the shell has to do.
#[derive(Debug)]
pub enum Action {
    /// Ask this server, and report what becomes of it with [`Core::replied`](super::Core::replied) in any case.
    Ask {
        /// The name of this try.
        id: TryId,
        /// Whom.
        server: ServerId,
        /// Where it is.
        endpoint: Endpoint,
        /// What.
        question: Question,
        /// How long to wait; when it is over, the connection is closed.
        limit: Duration,
    },
    /// The server left the list: close its connection.
    Leave(ServerId),
    /// News of a topic. Subscribers hear of it only if the content changed.
    Publish {
        /// The topic.
        topic: Arc<str>,
        /// What is known now.
        known: Known,
        /// Whether the content is another.
        changed: bool,
    },
    /// No server answers any more, or one does again.
    Outage(bool),
    /// The topic is not in use any more.
    Forget(Arc<str>),
    /// The end of a lookup.
    Found(Ticket, Result<Known, LookupError>),
    /// The end of a read.
    Read(Ticket, Result<Answer, LookupError>),
    /// Something for those who count or log.
    Notice(Notice),
}

/// What happened, for metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A question to a server ended.
    Answered {
        /// Whom.
        server: Endpoint,
        /// Time to the answer.
        latency: Duration,
    },
    /// A server failed.
    Failed {
        /// Whom.
        server: Endpoint,
        /// How.
        fault: Fault,
        /// For people.
        what: String,
    },
    /// The content of a topic's route is another.
    RouteChanged {
        /// The topic.
        topic: Arc<str>,
    },
    /// A server contradicts what is known of a topic, and is not believed yet.
    RouteDoubted {
        /// The topic.
        topic: Arc<str>,
    },
}

/// A lookup of a topic.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The topic.
    pub topic: Arc<str>,
    /// How long ago the route may have been confirmed; zero always asks, `None` takes any known route.
    pub max_age: Option<Duration>,
    /// Whether the known route is no answer when it could not be confirmed.
    pub strict: bool,
    /// The caller's end of patience.
    pub deadline: Millis,
}
