//! A connection on which many calls wait at once.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::buf::Chain;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use waypost_net::dialer::Dialer;
use waypost_net::stream::Stream;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Request;
use waypost_rocketmq_wire::renumber::{Renumbered, renumber};

use crate::answer::Answer;
use crate::endpoint::Endpoint;
use crate::error::{CallError, Fault};

/// Bytes that may wait to be written, but for a single larger frame: more means that the peer does not read.
const OUTGOING_MAX: usize = 32 * 1024 * 1024;

/// The largest answer: a list of two million topics fits. A server that announces more is left at once.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// A buffer above this is given back once it is empty, so that one big answer is not paid for ever.
const BUFFER_KEPT: usize = 64 * 1024;

/// A connection to a server. Clones share it; when the last one is dropped, the socket closes.
///
/// Answers are paired with calls by their opaque and may come in any order. Requests of the server are ignored.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    // Dropped with the last clone: ends the tasks that own the halves of the socket.
    _open: Arc<CloseOnDrop>,
}

/// A frame in two parts, of which the second is often shared.
type Outgoing = Chain<Bytes, Bytes>;

#[derive(Debug)]
struct CloseOnDrop(Stop);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.request();
    }
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    local: SocketAddr,
    opaque: AtomicI32,
    waiting_bytes: AtomicUsize,
    /// Wakes who waits until there are none.
    drained: Notify,
    pending: Mutex<Pending>,
    close: Stop,
}

#[derive(Debug, Default)]
struct Pending {
    calls: HashMap<i32, oneshot::Sender<Answer>>,
    /// Why the connection ended, once it did.
    ended: Option<End>,
}

#[derive(Clone, Debug)]
enum End {
    Closed,
    Broken(io::ErrorKind, String),
    Malformed(Fault),
}

impl Connection {
    /// Connects within `limit`; two tasks of `tasks` carry the bytes. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`CallError::Connect`], or [`CallError::Broken`] for a connection that is dead at once.
    pub async fn open(
        dialer: &Dialer,
        endpoint: &Endpoint,
        limit: Duration,
        tasks: &Tasks,
    ) -> Result<Self, CallError> {
        let dialled = dialer.dial_at(endpoint.address, &endpoint.name, limit).await;
        Self::over(dialled.map_err(CallError::Connect)?, endpoint, tasks)
    }

    fn over(stream: Stream, endpoint: &Endpoint, tasks: &Tasks) -> Result<Self, CallError> {
        let local = stream.socket().local_addr();
        let local = local.map_err(|source| CallError::Broken { endpoint: endpoint.clone(), source })?;
        let close = tasks.stop().child();
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            local,
            opaque: AtomicI32::new(0),
            waiting_bytes: AtomicUsize::new(0),
            drained: Notify::new(),
            pending: Mutex::default(),
            close: close.clone(),
        });
        let (outgoing, frames) = mpsc::unbounded_channel();
        let (reading, writing) = tokio::io::split(stream);
        tasks.spawn(write(Arc::clone(&shared), writing, frames));
        tasks.spawn(read(Arc::clone(&shared), reading));
        Ok(Self { shared, outgoing, _open: Arc::new(CloseOnDrop(close)) })
    }

    /// Sends `request` under an opaque of its own and waits at most `limit` for the answer. When the time is
    /// over the connection is closed. Cancel safe: an answer to a call that was dropped is thrown away.
    ///
    /// # Errors
    ///
    /// All but [`CallError::Connect`]; an answer of any code is no error.
    pub async fn call(&self, request: &Request<'_>, limit: Duration) -> Result<Answer, CallError> {
        let opaque = self.shared.opaque.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        Request { opaque, oneway: false, ..*request }.write(HeaderEncoding::Json, &mut frame);
        self.exchange(frame.into(), opaque, limit).await
    }

    /// Sends a whole frame as it is and waits at most `limit` for the answer with `opaque`, which no other call
    /// may be waiting for. As [`Connection::call`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Connection::call`].
    pub async fn exchange(&self, frame: Bytes, opaque: i32, limit: Duration) -> Result<Answer, CallError> {
        self.exchange_parts(frame.chain(Bytes::new()), opaque, limit).await
    }

    /// Sends a whole frame of somebody else under an opaque of this connection, so that its answer is never taken
    /// for another's, whatever opaques the frames that are passed on here have. Everything else of it stays. As
    /// [`Connection::call`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Connection::call`].
    pub fn forward(
        &self,
        frame: &Bytes,
        limit: Duration,
    ) -> impl Future<Output = Result<Answer, CallError>> + use<'_> {
        let (parts, opaque) = self.renumbered(frame);
        self.exchange_parts(parts, opaque, limit)
    }

    /// The same without waiting for an answer; one that comes is thrown away.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub fn forward_unawaited(&self, frame: &Bytes) -> Result<(), CallError> {
        let (parts, _) = self.renumbered(frame);
        self.send_parts(parts)
    }

    /// The frame under an opaque of this connection, and that opaque.
    fn renumbered(&self, frame: &Bytes) -> (Outgoing, i32) {
        let limits = FrameLimits::default();
        let opaque = self.shared.opaque.fetch_add(1, Ordering::Relaxed);
        if let Some(Renumbered { head, body_at }) = renumber(frame, opaque, &limits) {
            return (Bytes::from(head).chain(frame.slice(body_at..)), opaque);
        }
        // A frame of the very largest size has no room for more digits, and its peer closes on a longer one.
        let own = decode_frame(frame, &limits).ok().flatten();
        let own = own.and_then(|(frame, _)| Header::decode(&frame, &limits).ok().map(|header| header.opaque));
        (frame.clone().chain(Bytes::new()), own.unwrap_or(opaque))
    }

    async fn exchange_parts(
        &self,
        frame: Outgoing,
        opaque: i32,
        limit: Duration,
    ) -> Result<Answer, CallError> {
        let (answers, answer) = oneshot::channel();
        {
            let mut pending = self.shared.pending();
            if pending.ended.is_some() {
                drop(pending);
                return Err(self.shared.end_error());
            }
            pending.calls.insert(opaque, answers);
        }
        let _forget = Forget { shared: &self.shared, opaque };
        self.send_parts(frame)?;
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.shared.end_error()),
            Err(_) => {
                self.close();
                Err(CallError::TimedOut { endpoint: self.shared.endpoint.clone(), limit })
            }
        }
    }

    /// Queues a request that wants no answer.
    ///
    /// # Errors
    ///
    /// [`CallError::Full`], or why the connection ended.
    pub fn send(&self, request: &Request<'_>) -> Result<(), CallError> {
        let opaque = self.shared.opaque.fetch_add(1, Ordering::Relaxed);
        let mut frame = Vec::new();
        Request { opaque, oneway: true, ..*request }.write(HeaderEncoding::Json, &mut frame);
        self.send_frame(frame.into())
    }

    /// Queues a whole frame as it is.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub fn send_frame(&self, frame: Bytes) -> Result<(), CallError> {
        self.send_parts(frame.chain(Bytes::new()))
    }

    fn send_parts(&self, frame: Outgoing) -> Result<(), CallError> {
        let length = frame.remaining();
        let waiting = self.shared.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        if waiting > 0 && waiting.saturating_add(length) > OUTGOING_MAX {
            self.shared.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
            return Err(CallError::Full { endpoint: self.shared.endpoint.clone(), waiting });
        }
        self.outgoing.send(frame).map_err(|_| self.shared.end_error())
    }

    /// Closes the connection; calls that wait fail at once.
    pub fn close(&self) {
        self.shared.end(End::Closed);
    }

    /// Whether frames can still be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.pending().ended.is_none()
    }

    /// Waits until the connection has ended, by whichever side. Cancel safe.
    pub async fn closed(&self) {
        self.shared.close.requested().await;
    }

    /// Bytes that were not handed to the system yet.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Waits until every byte was handed to the system, or the connection has ended. Who sends without waiting for
    /// answers knows by it whether the other end reads at all. Cancel safe.
    pub async fn drained(&self) {
        loop {
            let drained = self.shared.drained.notified();
            if self.waiting_bytes() == 0 || !self.is_open() {
                return;
            }
            tokio::select! {
                () = drained => {}
                () = self.closed() => {}
            }
        }
    }

    /// The address of this end.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local
    }

    /// The other end.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }
}

/// Takes a call off the list when it is over, also when it was dropped.
struct Forget<'a> {
    shared: &'a Shared,
    opaque: i32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.pending().calls.remove(&self.opaque);
    }
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the connection ended, the first reason stays, and fails what waits.
    fn end(&self, end: End) {
        let waiting = {
            let mut pending = self.pending();
            pending.ended.get_or_insert(end);
            std::mem::take(&mut pending.calls)
        };
        self.close.request();
        drop(waiting);
    }

    fn end_error(&self) -> CallError {
        let endpoint = self.endpoint.clone();
        match &self.pending().ended {
            Some(End::Broken(kind, text)) => {
                CallError::Broken { endpoint, source: io::Error::new(*kind, text.clone()) }
            }
            Some(End::Malformed(fault)) => CallError::Malformed { endpoint, fault: fault.clone() },
            Some(End::Closed) | None => CallError::Closed { endpoint },
        }
    }

    fn broken(&self, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        self.end(match error.kind() {
            ConnectionReset | BrokenPipe | UnexpectedEof => End::Closed,
            kind => End::Broken(kind, error.to_string()),
        });
    }

    /// Hands every whole frame at the front of `received` to the call that waits for it.
    fn deliver(&self, received: &mut BytesMut, limits: &FrameLimits) -> Result<(), Fault> {
        while let Some((frame, length)) = decode_frame(received, limits)? {
            let header = Header::decode(&frame, limits)?;
            let call = if header.is_response() { self.pending().calls.remove(&header.opaque) } else { None };
            if let Some(call) = call {
                let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
                // Fails only if the caller went away.
                let _ = call.send(Answer {
                    code: header.code,
                    version: header.version,
                    remark: header.remark.as_deref().map(str::to_owned),
                    ext: header.ext.is_present().then(|| header.ext.iter().map(owned).collect()),
                    body: Bytes::copy_from_slice(frame.body),
                });
            }
            drop(header);
            received.advance(length);
        }
        Ok(())
    }
}

async fn read(shared: Arc<Shared>, mut stream: ReadHalf<Stream>) {
    let limits = FrameLimits { frame_max: ANSWER_MAX, ..FrameLimits::default() };
    let mut received = BytesMut::new();
    loop {
        let count = tokio::select! {
            () = shared.close.requested() => return shared.end(End::Closed),
            count = stream.read_buf(&mut received) => count,
        };
        match count {
            Ok(0) => return shared.end(End::Closed),
            Ok(_) => {}
            Err(error) => return shared.broken(&error),
        }
        if let Err(fault) = shared.deliver(&mut received, &limits) {
            return shared.end(End::Malformed(fault));
        }
        if received.is_empty() && received.capacity() > BUFFER_KEPT {
            received = BytesMut::new();
        }
    }
}

async fn write(
    shared: Arc<Shared>,
    mut stream: WriteHalf<Stream>,
    mut frames: mpsc::UnboundedReceiver<Outgoing>,
) {
    loop {
        let frame = tokio::select! {
            () = shared.close.requested() => return shared.end(End::Closed),
            frame = frames.recv() => frame,
        };
        let Some(mut frame) = frame else { return shared.end(End::Closed) };
        let length = frame.remaining();
        let written = async {
            stream.write_all_buf(&mut frame).await?;
            stream.flush().await
        };
        let written = tokio::select! {
            () = shared.close.requested() => return shared.end(End::Closed),
            written = written => written,
        };
        if shared.waiting_bytes.fetch_sub(length, Ordering::Relaxed) == length {
            shared.drained.notify_waiters();
        }
        if let Err(error) = written {
            return shared.broken(&error);
        }
    }
}

#[cfg(test)]
mod tests;
