//! Route queries (105), answered from what discovery knows.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use waypost_net::clock::{Clock, Millis};
use waypost_net::session::Answer;
use waypost_rocketmq_discovery::client::Discovery;
use waypost_rocketmq_discovery::error::LookupError;
use waypost_rocketmq_registry::MEMBER_GROUP_TOPIC_PREFIX;
use waypost_rocketmq_wire::body::Dialect;
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Response;
use waypost_rocketmq_wire::route_query::RouteQuery;

use crate::relay::Relay;
use crate::remark;
use crate::rendered::{BodyBudget, Rendered};
use crate::under_way::{Crowded, UnderWay};

/// A route that was confirmed within this is given as it is.
const FRESH: Duration = Duration::from_secs(5);

/// The same for topics that stand for the members of a broker group, by which brokers see that their master died.
const FRESH_MEMBERS: Duration = Duration::from_secs(1);

/// How long a caller waits for a known route to be confirmed.
const REFRESH_LIMIT: Duration = Duration::from_millis(200);

/// How long a caller waits for a topic that is not known: the time-out of the original's clients (spec B3).
const UNKNOWN_LIMIT: Duration = Duration::from_millis(2_900);

/// How long a known route is given without another attempt after nobody confirmed it.
const SHORT: Duration = Duration::from_secs(1);

/// How long a question waits for a server to take the topic, if a broker of this machine is announcing it.
const ANNOUNCED_LIMIT: Duration = Duration::from_millis(200);

/// The routes as callers get them.
#[derive(Debug)]
pub(crate) struct Routes {
    discovery: Discovery,
    clock: Clock,
    relay: Relay,
    rendered: papaya::HashMap<Arc<str>, Arc<Rendered>>,
    budget: Arc<BodyBudget>,
    unknown: UnderWay,
}

/// A query that has to wait, without what it borrowed.
#[derive(Debug)]
pub(crate) struct Waiting {
    topic: Arc<str>,
    dialect: Dialect,
    zone: Option<String>,
    opaque: i32,
    encoding: HeaderEncoding,
}

impl Waiting {
    pub(crate) fn new(query: &RouteQuery<'_>, opaque: i32, encoding: HeaderEncoding) -> Self {
        Self {
            topic: query.topic.into(),
            dialect: query.dialect,
            zone: query.zone.map(str::to_owned),
            opaque,
            encoding,
        }
    }

    fn query(&self) -> RouteQuery<'_> {
        RouteQuery { topic: &self.topic, dialect: self.dialect, zone: self.zone.as_deref() }
    }
}

/// Why a query has no route.
#[derive(Debug, Error)]
enum Unanswered {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

impl Routes {
    pub(crate) fn new(discovery: Discovery, relay: Relay) -> Self {
        Self {
            clock: discovery.clock().clone(),
            discovery,
            relay,
            rendered: papaya::HashMap::new(),
            budget: Arc::default(),
            unknown: UnderWay::default(),
        }
    }

    /// Answers at once if what is known is fresh; says whether it did. Takes no lock.
    pub(crate) fn answer_at_once(
        &self,
        query: &RouteQuery<'_>,
        opaque: i32,
        encoding: HeaderEncoding,
        now: Millis,
        output: &mut Vec<u8>,
    ) -> bool {
        let rendered = self.rendered.pin();
        let Some(known) = rendered.get(query.topic) else { return false };
        let fresh = known.is_fresh(now);
        if fresh {
            known.write(query, opaque, encoding, output);
        }
        fresh
    }

    /// Answers after asking: a known route after 200 ms at most, an unknown topic within the caller's patience.
    pub(crate) async fn answer(&self, waiting: Waiting) -> Answer {
        let query = waiting.query();
        let mut bytes = Vec::new();
        let mut failed = |code, remark: &str| {
            let response = Response { opaque: waiting.opaque, remark: Some(remark), ..Response::new(code) };
            response.write(waiting.encoding, &mut bytes);
        };
        match self.look_up(&waiting.topic).await {
            Ok(rendered) => rendered.write(&query, waiting.opaque, waiting.encoding, &mut bytes),
            Err(Unanswered::Lookup(LookupError::NotExist { .. })) => {
                failed(response::TOPIC_NOT_EXIST, &query.no_route_remark());
            }
            Err(Unanswered::Lookup(error)) => failed(response::SYSTEM_ERROR, &remark::of_lookup(&error)),
            Err(Unanswered::Crowded(error)) => failed(response::SYSTEM_BUSY, &error.to_string()),
        }
        Answer { bytes, close: None }
    }

    async fn look_up(&self, topic: &Arc<str>) -> Result<Arc<Rendered>, Unanswered> {
        let age = if topic.starts_with(MEMBER_GROUP_TOPIC_PREFIX) { FRESH_MEMBERS } else { FRESH };
        let is_known = self.discovery.known(topic).is_some_and(|known| known.route.is_some());
        let found = if is_known {
            self.discovery.younger_than(topic, age, REFRESH_LIMIT).await
        } else {
            let _place = self.unknown.enter(topic)?;
            let until = self.clock.now().after(UNKNOWN_LIMIT);
            self.relay.topic_taken(topic, ANNOUNCED_LIMIT).await;
            self.discovery.younger_than(topic, age, until.since(self.clock.now())).await
        };
        let now = self.clock.now();
        if let Err(LookupError::NotExist { .. }) = &found {
            self.rendered.pin().remove(&**topic);
        }
        let known = found?;
        let Some(route) = known.route else {
            return Err(LookupError::NotExist { topic: topic.to_string(), said: Vec::new() }.into());
        };
        let fresh_until = known.checked.map_or(Millis::ZERO, |checked| checked.after(age));
        // Who could not be confirmed is not asked for by every query.
        let fresh_until = fresh_until.max(now.after(SHORT.min(age)));
        let rendered = self.rendered.pin();
        if let Some(same) = rendered.get(&**topic).filter(|old| old.is_of(&route)) {
            same.refresh(fresh_until);
            return Ok(Arc::clone(same));
        }
        let newest = Arc::new(Rendered::new(route, fresh_until, &self.budget));
        rendered.insert(Arc::clone(topic), Arc::clone(&newest));
        Ok(newest)
    }

    /// Drops what nobody asked for lately.
    pub(crate) fn sweep(&self) {
        self.rendered.pin().retain(|topic, _| self.discovery.known(topic).is_some());
    }
}
