//! 105 GET_ROUTEINFO_BY_TOPIC: the one request that has to be fast.

use waypost_net::session::Step;
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::message::Response;
use waypost_rocketmq_wire::route_query::RouteQuery;

use super::Request;
use crate::state::State;

/// Answers into `output`, or closes the connection where an answer would do harm: before the server
/// knows its brokers (decision 14), and when the caller has given up already (decision 15).
pub(crate) fn answer(
    state: &State,
    request: &Request<'_, '_>,
    carries_brokers: bool,
    stale: bool,
    output: &mut Vec<u8>,
) -> Step {
    let header = request.header;
    // Closing the connection of a broker would remove the broker, so brokers are answered even then.
    if !carries_brokers {
        if stale {
            state.metrics.stale_queries.inc();
            return Step::Close("stale_query");
        }
        if !state.serves_routes() {
            return Step::Close("not_ready");
        }
    }
    if header.is_oneway() {
        return Step::Next;
    }
    let query = RouteQuery::of(header);
    let found = state.index.with_route(query.topic, |route| {
        let success = Response { opaque: header.opaque, ..Response::new(response::SUCCESS) };
        match query.zone {
            None => Response { body: route.body(query.dialect), ..success }.write(request.encoding, output),
            Some(zone) => {
                let body = route.body_in_zone(zone, query.dialect);
                Response { body: &body, ..success }.write(request.encoding, output);
            }
        }
    });
    if found.is_none() {
        let remark = query.no_route_remark();
        Response { opaque: header.opaque, remark: Some(&remark), ..Response::new(response::TOPIC_NOT_EXIST) }
            .write(request.encoding, output);
    }
    Step::Next
}
