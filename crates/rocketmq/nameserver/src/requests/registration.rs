//! 103 REGISTER_BROKER: everything that costs time happens on the lane of registrations.

use waypost_net::watchdog::Watch;
use waypost_rocketmq_registry::{Announcement, BodyDigest, BrokerIdentity, Command, Outcome, Registration};
use waypost_rocketmq_wire::body::{BodyError, BodyForm, RegisterBrokerBody, inflate};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::response;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{Request, kv};
use crate::metrics::RegistrationOutcome;
use crate::reply::Reply;
use crate::state::State;

const NAME: &str = "REGISTER_BROKER";

/// Steps: 1. the checksum. 2. The header. 3. A body that is known renews the lease (decision 3).
/// 4. Otherwise it is inflated, parsed and applied.
pub(crate) fn register(state: &State, request: &Request<'_, '_>, watch: &mut Watch) -> Reply {
    let outcome = announce(state, request, watch);
    let (counted, reply) = match outcome {
        Ok((counted, outcome)) => (counted, answer(state, outcome)),
        Err(reply) => (RegistrationOutcome::Malformed, reply),
    };
    state.metrics.registrations.of(counted).inc();
    reply
}

fn announce(
    state: &State,
    request: &Request<'_, '_>,
    watch: &mut Watch,
) -> Result<(RegistrationOutcome, Outcome), Reply> {
    let code = request.header.code;
    let body = request.body;
    if request.header.version < 0 {
        let remark = format!("{NAME}: the version {} of the header is negative", request.header.version);
        return Err(Reply::error(response::SYSTEM_ERROR, remark));
    }
    let expected = request.header.ext.get_i32("bodyCrc32").unwrap_or(0);
    if expected != 0 && expected != body_crc32(body) {
        tracing::warn!(peer = %request.peer, bytes = body.len(), "receive registerBroker request,crc32 not match");
        return Err(Reply::error(response::SYSTEM_ERROR, "crc32 not match").with_typed_header());
    }
    let identity = identity(request)?;
    let form = BodyForm::of(request.header, body);
    let digest = BodyDigest(xxh3_128_with_seed(body, form.seed()));
    let register = |body: Announcement<'_>| {
        state.owner.apply(Command::Register(Registration { identity, body, connection: request.connection }))
    };

    match register(Announcement::Digest(digest)) {
        Outcome::BodyNeeded => {}
        renewed => return Ok((RegistrationOutcome::Renewed, renewed)),
    }
    watch.progress(code);
    let inflated = match form {
        BodyForm::Binary { .. } => inflate(body, state.body_limits.inflated_max).map_err(undecodable)?,
        BodyForm::Legacy | BodyForm::Json => Vec::new(),
    };
    watch.progress(code);
    let plain = if matches!(form, BodyForm::Binary { .. }) { &inflated[..] } else { body };
    let decoded = RegisterBrokerBody::decode(plain, form, &state.body_limits).map_err(undecodable)?;
    watch.progress(code);
    let outcome = register(Announcement::Full(&decoded, Some(digest)));
    let counted = match &outcome {
        Outcome::Superseded => RegistrationOutcome::Superseded,
        Outcome::Refused(refusal) => {
            tracing::warn!(
                peer = %request.peer, cluster = identity.cluster, broker = identity.broker,
                address = identity.address, error = %refusal, kind = refusal.kind(), "registration refused"
            );
            RegistrationOutcome::Refused
        }
        _ => RegistrationOutcome::Applied,
    };
    Ok((counted, outcome))
}

/// The fields of the header. Those without which a broker cannot be told apart are refused by name
/// (decision 9).
fn identity<'a>(request: &'a Request<'_, '_>) -> Result<BrokerIdentity<'a>, Reply> {
    BrokerIdentity::of(request.header).map_err(|field| Reply::missing(NAME, field).with_typed_header())
}

fn undecodable(error: BodyError) -> Reply {
    let setting = match error {
        BodyError::TooManyEntries { .. } => " (registrationTopicsMax)",
        BodyError::InflatedTooLong { .. } => " (inflatedBodyMax)",
        _ => "",
    };
    let remark = format!("Failed to decode RegisterBrokerBody: {error}{setting}");
    Reply::error(response::SYSTEM_ERROR, remark).with_typed_header()
}

fn answer(state: &State, outcome: Outcome) -> Reply {
    let mut reply = match outcome {
        Outcome::Refused(refusal) => {
            return Reply::error(response::SYSTEM_ERROR, refusal.to_string()).with_typed_header();
        }
        Outcome::Registered { master_address, ha_address } => {
            let mut reply = Reply::success().with_typed_header();
            if let Some(ha_address) = ha_address {
                reply = reply.with("haServerAddr", ha_address);
            }
            if let Some(master_address) = master_address {
                reply = reply.with("masterAddr", master_address);
            }
            reply
        }
        _ => Reply::success().with_typed_header(),
    };
    if state.settings().routes.order_to_broker {
        reply.body = kv::order_configuration(state).unwrap_or_default();
    }
    reply
}
