//! One connection of a program of this machine.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use waypost_net::clock::Pulse;
use waypost_net::session::{Answer, FrameBytes, Protocol, Step};
use waypost_rocketmq_access::access::{AccessPolicy, Permits};
use waypost_rocketmq_access::audit::Audit;
use waypost_rocketmq_discovery::read::Read;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{Frame, FrameLimits, HeaderEncoding, decode_frame, frame_length};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Response;
use waypost_rocketmq_wire::route_query::RouteQuery;

use crate::asker::Asker;
use crate::changes;
use crate::metrics::Metrics;
use crate::reads::{Reads, is_read};
use crate::relay::{Relay, Relayed, SessionId};
use crate::remark;
use crate::reply;
use crate::routes::{Routes, Waiting};
use crate::standings;
use crate::writes::{Writes, is_write};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) routes: Routes,
    pub(crate) reads: Reads,
    pub(crate) writes: Writes,
    pub(crate) relay: Relay,
    pub(crate) asker: Asker,
    pub(crate) metrics: Metrics,
    pub(crate) pulse: Pulse,
    pub(crate) limits: FrameLimits,
    pub(crate) access: AccessPolicy,
    pub(crate) audit: Audit,
}

impl Shared {
    /// Puts a write of an operator to every server; the frame of the answer.
    async fn put(&self, peer: SocketAddr, frame: &Bytes, write: Write) -> Vec<u8> {
        let Write { opaque, encoding, oneway, deletes } = write;
        let accepted = || {
            if let Some((topic, cluster)) = &deletes {
                self.relay.topic_deleted(topic, cluster.as_deref());
            }
        };
        let answer = self.writes.put(frame.clone(), opaque, accepted).await;
        changes::log(&self.audit, peer, frame, &self.limits, &answer);
        let mut bytes = Vec::new();
        if !oneway {
            answer.write(opaque, encoding, &mut bytes);
        }
        bytes
    }
}

/// The protocol side of one connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    id: SessionId,
    peer: SocketAddr,
    permits: Permits,
    /// It carried a request of a broker, so its end matters to the relay.
    carries_broker: bool,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, number: u64, peer: SocketAddr) -> Self {
        let permits = shared.access.permits(peer.ip());
        Self { shared, id: SessionId(number), peer, permits, carries_broker: false }
    }

    /// To be called when the connection has ended.
    pub(crate) fn ended(&self) {
        if self.carries_broker {
            self.shared.relay.session_ended(self.id);
        }
    }

    fn complain(&self, reason: &'static str, detail: &dyn std::fmt::Display) {
        self.shared.metrics.bad_frames.inc();
        tracing::debug!(peer = %self.peer, reason, error = %detail, "connection closed: its bytes are no request");
    }

    fn for_relay(&mut self, code: i32) -> bool {
        match code {
            request::REGISTER_BROKER | request::QUERY_DATA_VERSION | request::BROKER_HEARTBEAT => {
                self.carries_broker = true;
                true
            }
            request::UNREGISTER_BROKER => true,
            // Brokers announce single topics with the code that operators use.
            request::REGISTER_TOPIC_IN_NAMESRV => self.carries_broker,
            _ => false,
        }
    }

    /// `is_change`: what the audit log tells, other than the registrations that come every 30 s.
    fn relay(&self, bytes: FrameBytes<'_>, write: Write, is_change: bool) -> Step {
        let (shared, id, peer) = (Arc::clone(&self.shared), self.id, self.peer);
        let frame = bytes.keep();
        Step::Wait(Box::pin(async move {
            let bytes = match shared.relay.request(id, peer, frame.bytes.clone()).await {
                Relayed::Answered(bytes) => {
                    if is_change {
                        changes::log_framed(&shared.audit, peer, &frame.bytes, &shared.limits, &bytes);
                    }
                    bytes
                }
                Relayed::Ignored(bytes) => bytes,
                Relayed::NotOfBroker => shared.put(peer, &frame.bytes, write).await,
            };
            drop(frame);
            Answer { bytes, close: None }
        }))
    }

    fn put(&self, bytes: FrameBytes<'_>, write: Write) -> Step {
        let (shared, peer) = (Arc::clone(&self.shared), self.peer);
        let frame = bytes.keep();
        Step::Wait(Box::pin(async move {
            let bytes = shared.put(peer, &frame.bytes, write).await;
            Answer { bytes, close: None }
        }))
    }

    fn read(&self, header: &Header<'_>, frame: &Frame<'_>) -> Step {
        let read = Read {
            code: header.code,
            language: header.language,
            version: header.version,
            ext: header.ext.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            body: frame.body.to_vec().into(),
        };
        let shared = Arc::clone(&self.shared);
        let (opaque, encoding, oneway) = (header.opaque, frame.encoding, header.is_oneway());
        Step::Wait(Box::pin(async move {
            let answered = shared.reads.answer(read).await;
            let answer = answered.unwrap_or_else(|error| reply::error(remark::of_lookup(&error)));
            let mut bytes = Vec::new();
            if !oneway {
                answer.write(opaque, encoding, &mut bytes);
            }
            Answer { bytes, close: None }
        }))
    }

    /// Route queries: the only ones that have to be quick.
    fn route(&self, header: &Header<'_>, encoding: HeaderEncoding, output: &mut Vec<u8>) -> Step {
        let shared = &self.shared;
        shared.metrics.route_queries.inc();
        if header.is_oneway() {
            return Step::Next;
        }
        let query = RouteQuery::of(header);
        if shared.routes.answer_at_once(&query, header.opaque, encoding, shared.pulse.now(), output) {
            return Step::Next;
        }
        shared.metrics.route_queries_waited.inc();
        let waiting = Waiting::new(&query, header.opaque, encoding);
        let shared = Arc::clone(shared);
        Step::Wait(Box::pin(async move { shared.routes.answer(waiting).await }))
    }
}

fn refuse(header: &Header<'_>, encoding: HeaderEncoding, (code, remark): (i32, &str), output: &mut Vec<u8>) {
    if !header.is_oneway() {
        Response { opaque: header.opaque, remark: Some(remark), ..Response::new(code) }
            .write(encoding, output);
    }
}

impl Connection {
    /// Why a request is not taken from this caller, or from nobody.
    fn refusal(&self, code: i32) -> Option<(i32, String)> {
        if code == request::UPDATE_NAMESRV_CONFIG {
            let remark = "the agent has no configuration, and settings are meant for one name server: send 318 to \
                          that server";
            return Some((response::NO_PERMISSION, remark.to_owned()));
        }
        let refusal = self.permits.check(code).err()?;
        Some((refusal.response_code(), refusal.to_string()))
    }

    /// Answers a refused request and logs who sent it.
    fn turn_away(&self, header: &Header<'_>, encoding: HeaderEncoding, output: &mut Vec<u8>) -> bool {
        let Some((code, remark)) = self.refusal(header.code) else { return false };
        self.shared.metrics.refusals.inc();
        self.shared.audit.refused(self.peer, header.code, &remark, self.shared.pulse.now());
        refuse(header, encoding, (code, &remark), output);
        true
    }
}

impl Protocol for Connection {
    fn frame_length(&self, start: &[u8]) -> Result<Option<usize>, &'static str> {
        frame_length(start, &self.shared.limits).map_err(|error| {
            self.complain(error.kind(), &error);
            error.kind()
        })
    }

    fn frame(&mut self, bytes: FrameBytes<'_>, _stale: bool, output: &mut Vec<u8>) -> Step {
        let limits = self.shared.limits;
        let frame = match decode_frame(bytes.as_slice(), &limits) {
            Ok(Some((frame, _))) => frame,
            Ok(None) => return Step::Close("bad_frame"),
            Err(error) => {
                self.complain(error.kind(), &error);
                return Step::Close(error.kind());
            }
        };
        let header = match Header::decode(&frame, &limits) {
            Ok(header) => header,
            Err(error) => {
                self.complain(error.kind(), &error);
                return Step::Close(error.kind());
            }
        };
        if header.is_response() {
            return Step::Next;
        }
        let (code, opaque, oneway, encoding) =
            (header.code, header.opaque, header.is_oneway(), frame.encoding);
        if code == request::IDENTIFY_AGENT {
            // Whoever may not send anything else: who is not told that this is an agent sends in a ring.
            if !oneway {
                self.shared.asker.answer().write(opaque, encoding, output);
            }
            return Step::Next;
        }
        if self.turn_away(&header, encoding, output) {
            return Step::Next;
        }
        if code == request::GET_ROUTEINFO_BY_TOPIC {
            return self.route(&header, encoding, output);
        }
        self.shared.metrics.other_requests.inc();
        if standings::is_question(&header) {
            refuse(&header, encoding, standings::ANSWER, output);
            return Step::Next;
        }
        if is_read(code) {
            return self.read(&header, &frame);
        }
        if !is_write(code) && !is_of_brokers(code) {
            let remark = format!(" request type {code} not supported");
            refuse(&header, encoding, (response::REQUEST_CODE_NOT_SUPPORTED, &remark), output);
            return Step::Next;
        }
        let write = Write { opaque, encoding, oneway, deletes: deleted_topic(&header) };
        drop(header);
        let is_change = is_write(code) || code == request::UNREGISTER_BROKER;
        if self.for_relay(code) { self.relay(bytes, write, is_change) } else { self.put(bytes, write) }
    }

    fn batch_done(&mut self, _read_at: u64, _now: u64) {}
}

/// A write of an operator, without its bytes.
struct Write {
    opaque: i32,
    encoding: HeaderEncoding,
    oneway: bool,
    /// The topic that it deletes, in one cluster or in all.
    deletes: Option<(String, Option<String>)>,
}

fn deleted_topic(header: &Header<'_>) -> Option<(String, Option<String>)> {
    if header.code != request::DELETE_TOPIC_IN_NAMESRV {
        return None;
    }
    // Empty is absent, as in the NameServer.
    let given = |field| header.ext.get(field).filter(|value| !value.is_empty()).map(str::to_owned);
    Some((given("topic")?, given("clusterName")))
}

/// Whether brokers send it.
fn is_of_brokers(code: i32) -> bool {
    matches!(
        code,
        request::REGISTER_BROKER
            | request::UNREGISTER_BROKER
            | request::QUERY_DATA_VERSION
            | request::BROKER_HEARTBEAT
    )
}
