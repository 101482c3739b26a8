//! 105 GET_ROUTEINFO_BY_TOPIC: the one request that has to be fast.

use waypost_net::session::Step;
use waypost_rocketmq_wire::body::Dialect;
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;
use waypost_rocketmq_wire::version::V4_9_4;

use super::Request;
use crate::state::State;

/// The dialect that a caller gets (spec 2.9 step 7).
pub(crate) fn dialect(header: &Header<'_>) -> Dialect {
    if header.version >= V4_9_4 || header.ext.get_bool("acceptStandardJsonOnly") == Some(true) {
        Dialect::Standard
    } else {
        Dialect::Legacy
    }
}

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
    let topic = header.ext.get("topic").unwrap_or("null");
    let dialect = dialect(header);
    let found = state.index.with_route(topic, |route| {
        let success = Response { opaque: header.opaque, ..Response::new(response::SUCCESS) };
        match zone(header) {
            None => Response { body: route.body(dialect), ..success }.write(request.encoding, output),
            Some(zone) => {
                let body = route.body_in_zone(zone, dialect);
                Response { body: &body, ..success }.write(request.encoding, output);
            }
        }
    });
    if found.is_none() {
        let remark = format!(
            "No topic route info in name server for the topic: {topic}\n\
             See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
        );
        Response { opaque: header.opaque, remark: Some(&remark), ..Response::new(response::TOPIC_NOT_EXIST) }
            .write(request.encoding, output);
    }
    Step::Next
}

/// The zone that the caller wants to be kept in (spec 3.5).
fn zone<'a>(header: &'a Header<'_>) -> Option<&'a str> {
    if header.ext.get_bool("__ZONE_MODE") != Some(true) {
        return None;
    }
    header.ext.get("__ZONE_NAME").filter(|zone| !zone.trim().is_empty())
}
