//! A route as it is sent to callers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use waypost_net::clock::Millis;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_wire::body::Dialect;
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::frame::HeaderEncoding;
use waypost_rocketmq_wire::message::Response;
use waypost_rocketmq_wire::route_query::RouteQuery;

/// What all kept bodies may take; those that find no room are encoded for each caller.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the kept bodies take.
#[derive(Debug, Default)]
pub(crate) struct BodyBudget {
    taken: AtomicUsize,
}

impl BodyBudget {
    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= BYTES_MAX);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A route with its encoded bodies, which the first caller of each dialect makes.
#[derive(Debug)]
pub(crate) struct Rendered {
    route: Arc<TopicRoute>,
    standard: OnceLock<Bytes>,
    legacy: OnceLock<Bytes>,
    fresh_until: AtomicU64,
    budget: Arc<BodyBudget>,
}

impl Drop for Rendered {
    fn drop(&mut self) {
        let kept = [&self.standard, &self.legacy].into_iter().filter_map(OnceLock::get);
        self.budget.give_back(kept.map(Bytes::len).sum());
    }
}

impl Rendered {
    pub(crate) fn new(route: Arc<TopicRoute>, fresh_until: Millis, budget: &Arc<BodyBudget>) -> Self {
        let fresh_until = AtomicU64::new(fresh_until.get());
        let budget = Arc::clone(budget);
        Self { route, standard: OnceLock::new(), legacy: OnceLock::new(), fresh_until, budget }
    }

    /// Whether it may be given without asking.
    pub(crate) fn is_fresh(&self, now: Millis) -> bool {
        now.get() < self.fresh_until.load(Ordering::Relaxed)
    }

    /// It may be given without asking until then.
    pub(crate) fn refresh(&self, until: Millis) {
        self.fresh_until.store(until.get(), Ordering::Relaxed);
    }

    /// Whether it is this very route.
    pub(crate) fn is_of(&self, route: &Arc<TopicRoute>) -> bool {
        Arc::ptr_eq(&self.route, route)
    }

    pub(crate) fn write(
        &self,
        query: &RouteQuery<'_>,
        opaque: i32,
        encoding: HeaderEncoding,
        output: &mut Vec<u8>,
    ) {
        let success = Response { opaque, ..Response::new(response::SUCCESS) };
        let cell = match query.dialect {
            Dialect::Standard => &self.standard,
            Dialect::Legacy => &self.legacy,
        };
        if let (None, Some(body)) = (query.zone, cell.get()) {
            return Response { body, ..success }.write(encoding, output);
        }
        let body = self.encode(query.dialect, query.zone);
        Response { body: &body, ..success }.write(encoding, output);
        if query.zone.is_none() && self.budget.take(body.len()) {
            let length = body.len();
            if cell.set(body).is_err() {
                self.budget.give_back(length);
            }
        }
    }

    fn encode(&self, dialect: Dialect, zone: Option<&str>) -> Bytes {
        let mut data = self.route.to_wire();
        if let Some(zone) = zone {
            data.keep_zone(zone);
        }
        let mut out = Vec::new();
        data.encode(dialect, &mut out);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_rocketmq_wire::body::TopicRouteData;

    /// A route whose body has 10 MiB.
    fn large(budget: &Arc<BodyBudget>) -> Rendered {
        let conf = Some("c".repeat(10 * 1024 * 1024));
        let data = TopicRouteData { order_topic_conf: conf, ..TopicRouteData::default() };
        Rendered::new(Arc::new(TopicRoute::from(data)), Millis::ZERO, budget)
    }

    #[test]
    fn kept_bodies_take_64_mib_at_most_and_every_caller_gets_one() {
        let budget: Arc<BodyBudget> = Arc::default();
        let routes: Vec<Rendered> = (0..8).map(|_| large(&budget)).collect();
        for rendered in routes.iter().chain(&routes) {
            let query = RouteQuery { topic: "T", dialect: Dialect::Standard, zone: None };
            let mut output = Vec::new();
            rendered.write(&query, 1, HeaderEncoding::Json, &mut output);
            assert!(output.len() > 10 * 1024 * 1024);
            assert!(budget.taken.load(Ordering::Relaxed) <= BYTES_MAX);
        }
        let kept = routes.iter().filter(|rendered| rendered.standard.get().is_some()).count();
        assert_eq!(kept, 6);
        drop(routes);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }
}
