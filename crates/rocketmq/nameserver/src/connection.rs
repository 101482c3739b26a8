//! One connection of a peer: decodes its requests and sends each to where it is handled.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;
use waypost_net::session::{Answer, FrameBytes, KeptFrame, Protocol, Step};
use waypost_net::workers;
use waypost_rocketmq_access::access::Permits;
use waypost_rocketmq_registry::ConnectionId;
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::frame::{Frame, decode_frame, frame_length};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::version;

use crate::metrics::{REQUEST_SLOTS, request_slot};
use crate::reply::Reply;
use crate::requests::{self, Request};
use crate::state::State;

/// The protocol side of one connection.
pub(crate) struct Connection {
    state: Arc<State>,
    peer: SocketAddr,
    id: ConnectionId,
    permits: Permits,
    /// It carried a request of a broker, so its end matters to the table.
    carries_brokers: bool,
    /// Requests answered at once since the last batch was done, by slot.
    answered: [u32; REQUEST_SLOTS],
    received: u64,
    sent: u64,
}

/// A request that is handled on a lane, with everything it borrows from.
pub(crate) struct Errand {
    pub(crate) state: Arc<State>,
    pub(crate) frame: KeptFrame,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: ConnectionId,
}

impl Connection {
    pub(crate) fn new(state: Arc<State>, id: u64, peer: SocketAddr) -> Self {
        let permits = state.access.permits(peer.ip());
        Self {
            state,
            peer,
            id: ConnectionId(id),
            permits,
            carries_brokers: false,
            answered: [0; REQUEST_SLOTS],
            received: 0,
            sent: 0,
        }
    }

    /// Whether the end of the connection can change the table.
    pub(crate) fn carries_brokers(&self) -> bool {
        self.carries_brokers
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Closes the connection for bytes that are no request.
    fn complain(&self, reason: &'static str, detail: &dyn std::fmt::Display) {
        self.state.metrics.bad_frame(reason);
        if let Some(suppressed) = self.state.complaints.pass(self.state.pulse.now()) {
            tracing::warn!(
                peer = %self.peer, reason, error = %detail, suppressed,
                "connection closed: its bytes are no request"
            );
        }
    }

    /// Answers at once what needs no lane.
    fn answer_at_once(
        &mut self,
        request: &Request<'_, '_>,
        stale: bool,
        output: &mut Vec<u8>,
    ) -> Option<Step> {
        let header = request.header;
        let reply = match header.code {
            request::GET_ROUTEINFO_BY_TOPIC => {
                return Some(requests::route::answer(
                    &self.state,
                    request,
                    self.carries_brokers,
                    stale,
                    output,
                ));
            }
            request::GET_KV_CONFIG => requests::kv::get(&self.state, request),
            code if requests::is_known(code) => return None,
            code => Reply::error(
                response::REQUEST_CODE_NOT_SUPPORTED,
                format!(" request type {code} not supported"),
            ),
        };
        if !header.is_oneway() {
            reply.write(header.opaque, request.encoding, output);
        }
        Some(Step::Next)
    }

    /// Hands the request to a lane, or to whoever waits for the disk.
    fn send_on(&mut self, code: i32, frame: FrameBytes<'_>) -> Step {
        self.carries_brokers |= matches!(
            code,
            request::REGISTER_BROKER | request::QUERY_DATA_VERSION | request::BROKER_HEARTBEAT
        );
        let errand = Errand {
            state: Arc::clone(&self.state),
            frame: frame.keep(),
            peer: self.peer,
            connection: self.id,
        };
        let (reply, answer) = oneshot::channel();
        let started = self.state.clock.nanoseconds();
        match code {
            request::REGISTER_BROKER => self.state.registration_lane.give(code, move |watch| {
                errand.settle(reply, |errand, request| {
                    requests::registration::register(&errand.state, request, watch)
                });
            }),
            request::PUT_KV_CONFIG | request::DELETE_KV_CONFIG => {
                let state = Arc::clone(&self.state);
                return Step::Wait(Box::pin(async move {
                    let answer = requests::kv::change(errand).await;
                    measure(&state, code, started, &answer);
                    answer
                }));
            }
            // Who changes a setting holds the configuration until the disk has it; who reads it may have to wait.
            request::UPDATE_NAMESRV_CONFIG => {
                drop(tokio::task::spawn_blocking(move || {
                    errand.settle(reply, |errand, request| requests::config::update(&errand.state, request));
                }));
            }
            request::GET_NAMESRV_CONFIG => {
                drop(tokio::task::spawn_blocking(move || {
                    errand.settle(reply, |errand, _| requests::config::show(&errand.state));
                }));
            }
            _ => {
                let lane = match code {
                    // Its body may be as large as that of a registration.
                    request::REGISTER_TOPIC_IN_NAMESRV => &self.state.registration_lane,
                    code if requests::is_list(code) => &self.state.list_lane,
                    _ => &self.state.table_lane,
                };
                lane.give(code, move |_| {
                    errand.settle(reply, |errand, request| requests::on_table(&errand.state, request));
                });
            }
        }
        let state = Arc::clone(&self.state);
        Step::Wait(Box::pin(async move {
            // A lane that drops the request has stopped, and so has the server.
            let answer = answer.await.unwrap_or(Answer { bytes: Vec::new(), close: Some("server_stopped") });
            measure(&state, code, started, &answer);
            answer
        }))
    }
}

fn measure(state: &State, code: i32, started: u64, answer: &Answer) {
    let shard = state.metrics.shard();
    shard.requests(request_slot(code), state.clock.nanoseconds().saturating_sub(started), 1);
    shard.bytes(0, answer.bytes.len() as u64);
}

impl Errand {
    /// Decodes the request again, where its bytes are owned, lets `handle` answer it, and sends the
    /// answer to the connection. One-way requests are waited for, too, but answered with nothing.
    fn settle(self, reply: oneshot::Sender<Answer>, handle: impl FnOnce(&Self, &Request<'_, '_>) -> Reply) {
        // The connection may be gone; what was asked is done all the same.
        drop(reply.send(self.answer(handle)));
    }

    pub(crate) fn answer(&self, handle: impl FnOnce(&Self, &Request<'_, '_>) -> Reply) -> Answer {
        let state = &self.state;
        let mut bytes = Vec::new();
        // It was decoded before it was handed on.
        let Ok(Some((frame, _))) = decode_frame(&self.frame.bytes, &state.frame_limits) else {
            return Answer { bytes, close: Some("bad_frame") };
        };
        let Ok(header) = Header::decode(&frame, &state.frame_limits) else {
            return Answer { bytes, close: Some("bad_header") };
        };
        let request = Request {
            header: &header,
            encoding: frame.encoding,
            body: frame.body,
            peer: self.peer,
            connection: self.connection,
        };
        let reply = handle(self, &request);
        if !header.is_oneway() {
            reply.write(header.opaque, frame.encoding, &mut bytes);
        }
        Answer { bytes, close: None }
    }
}

impl Protocol for Connection {
    fn frame_length(&self, start: &[u8]) -> Result<Option<usize>, &'static str> {
        frame_length(start, &self.state.frame_limits).map_err(|error| {
            let reason = error.kind();
            self.complain(reason, &error);
            reason
        })
    }

    fn frame(&mut self, bytes: FrameBytes<'_>, stale: bool, output: &mut Vec<u8>) -> Step {
        let limits = self.state.frame_limits;
        let slice = bytes.as_slice();
        self.received += slice.len() as u64;
        let frame: Frame<'_> = match decode_frame(slice, &limits) {
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
            // Answers to nothing that this server asked: the original drops them, too.
            self.state.metrics.bad_frame("unexpected_response");
            return Step::Next;
        }
        let code = header.code;
        workers::mark(code);
        let before = output.len();
        if let Some(reply) = self.turn_away(&header) {
            if !header.is_oneway() {
                reply.write(header.opaque, frame.encoding, output);
            }
            self.count(code, output.len() - before);
            return Step::Next;
        }
        let request = Request {
            header: &header,
            encoding: frame.encoding,
            body: frame.body,
            peer: self.peer,
            connection: self.id,
        };
        if let Some(step) = self.answer_at_once(&request, stale, output) {
            self.count(code, output.len() - before);
            return step;
        }
        drop(header);
        self.send_on(code, bytes)
    }

    fn batch_done(&mut self, read_at: u64, now: u64) {
        workers::mark(0);
        let nanoseconds = now.saturating_sub(read_at);
        let shard = self.state.metrics.shard();
        for (slot, answered) in self.answered.iter_mut().enumerate().filter(|(_, answered)| **answered > 0) {
            shard.requests(slot, nanoseconds, u64::from(std::mem::take(answered)));
        }
        shard.bytes(std::mem::take(&mut self.received), std::mem::take(&mut self.sent));
    }
}

impl Connection {
    fn count(&mut self, code: i32, sent: usize) {
        self.answered[request_slot(code)] += 1;
        self.sent += sent as u64;
    }

    /// Answers for a server that is stopping, and for callers that may not ask this.
    fn turn_away(&self, header: &Header<'_>) -> Option<Reply> {
        if self.state.is_going_away() && header.version > version::V5_3_1 {
            return Some(Reply::error(response::GO_AWAY, "please go away"));
        }
        let refusal = self.permits.check(header.code).err()?;
        self.state.metrics.refusals.inc();
        let remark = refusal.to_string();
        self.state.audit.refused(self.peer, header.code, &remark, self.state.pulse.now());
        Some(Reply::error(refusal.response_code(), remark))
    }
}
