//! One connection: reads what the socket has, hands whole frames to a protocol, writes the answers.
//!
//! The loop is built for a server that answers most frames at once:
//!
//! 1. While nothing is left over, bytes are read into a buffer that belongs to the thread, and frames
//!    are handled where they lie. An idle connection owns no buffer.
//! 2. What is left over (part of a frame, or frames behind one that has to wait) moves into the
//!    session's own buffer. A large frame gets a mapping of its length instead: its pages are
//!    allocated as the bytes arrive, nothing is copied when it grows, and it is handed on as a whole.
//! 3. The answers of one read are written with one call. While the peer does not take them, nothing
//!    more is read from it.
//! 4. A frame that cannot be answered at once is answered by a future; later frames wait for it, so
//!    every connection is served in order.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::budget::{FramePermit, MemoryBudget};
use crate::clock::{Clock, FREEZE_THRESHOLD, Millis, Pulse};
use crate::frame_pool::{FrameBuffer, FramePool};
use crate::queues::{Queued, Queues};
use crate::sessions::{Command, SessionHandle};
use crate::socket::is_timeout_error;

/// Bytes that one read takes at most while nothing is left over.
const SCRATCH_LENGTH: usize = 64 * 1024;

/// A thread keeps an output buffer up to this size; a larger one was for one huge answer.
const OUTPUT_KEPT: usize = 1024 * 1024;

/// Frames of this length and more are large. Smaller ones are cheaper to copy than to map.
const LARGE_FRAME: usize = 256 * 1024;

/// The first room that an unfinished frame gets; then it doubles up to the frame's length.
const FIRST_ROOM: usize = 4 * 1024;

/// Queries that waited longer than this are not worth an answer (their callers have given up).
const STALE_AFTER: Duration = FREEZE_THRESHOLD;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; SCRATCH_LENGTH].into_boxed_slice(),
        output: Vec::with_capacity(SCRATCH_LENGTH),
    });
}

struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

/// What a protocol makes of frames.
pub trait Protocol {
    /// The length of the frame that starts here, in bytes from its first one, once enough of it is
    /// known; at least 1.
    ///
    /// # Errors
    ///
    /// A short fixed name of what is wrong. The connection is closed without an answer.
    fn frame_length(&self, start: &[u8]) -> Result<Option<usize>, &'static str>;

    /// Handles one whole frame, appending the answer to `output` if it can be given at once. `stale`
    /// says that the frame waited for longer than three seconds on this side.
    fn frame(&mut self, frame: FrameBytes<'_>, stale: bool, output: &mut Vec<u8>) -> Step;

    /// Called after the frames of one read, before their answers are written, with the time of the
    /// read and of now in nanoseconds of the session's clock.
    fn batch_done(&mut self, read_at: u64, now: u64);
}

/// The bytes of one frame.
#[derive(Debug)]
pub enum FrameBytes<'a> {
    /// In a buffer that is used again.
    Borrowed(&'a [u8]),
    /// A large frame in an allocation of its own.
    Owned(KeptFrame),
}

/// The bytes of one frame, for as long as they are needed.
#[derive(Debug)]
pub struct KeptFrame {
    /// The bytes.
    pub bytes: Bytes,
    /// Counts a large frame against the memory budget until it is dropped.
    pub permit: Option<FramePermit>,
}

impl FrameBytes<'_> {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(frame) => &frame.bytes,
        }
    }

    /// The bytes for keeping; copies them if they are borrowed.
    pub fn keep(self) -> KeptFrame {
        match self {
            Self::Borrowed(bytes) => KeptFrame { bytes: Bytes::copy_from_slice(bytes), permit: None },
            Self::Owned(frame) => frame,
        }
    }
}

/// What follows from a frame.
pub enum Step {
    /// Go on with the next frame.
    Next,
    /// The answer comes from this future; later frames wait.
    Wait(Pin<Box<dyn Future<Output = Answer> + Send>>),
    /// Close without a further answer, for this reason.
    Close(&'static str),
}

/// An answer that took its time.
#[derive(Debug, Default)]
pub struct Answer {
    /// Bytes to send; empty for none.
    pub bytes: Vec<u8>,
    /// Close afterwards, for this reason.
    pub close: Option<&'static str>,
}

/// Why a session ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The peer closed the connection.
    PeerClosed,
    /// The connection broke: the peer reset it, or another error of the socket.
    Broken(io::Error),
    /// The peer fell silent and the kernel gave up.
    TimedOut(io::Error),
    /// No complete frame and no write for the idle time.
    Idle,
    /// The server wanted it closed.
    Closed(&'static str),
    /// The peer broke the protocol.
    Protocol(&'static str),
    /// More answers wait for the peer than it may have.
    SlowReader {
        /// Bytes that wait.
        queued: usize,
    },
    /// The server is stopping and everything that was read has been answered.
    Drained,
}

impl End {
    /// A short fixed name for counters and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::Broken(_) => "broken",
            Self::TimedOut(_) => "timed_out",
            Self::Idle => "idle",
            Self::Closed(reason) | Self::Protocol(reason) => reason,
            Self::SlowReader { .. } => "slow_reader",
            Self::Drained => "drained",
        }
    }
}

/// What all sessions of a server share.
#[derive(Clone, Debug)]
pub struct SessionContext {
    /// Tells the time.
    pub clock: Clock,
    /// Tells the coarse time and whether the process stood still.
    pub pulse: Pulse,
    /// How much memory unfinished frames may take.
    pub budget: MemoryBudget,
    /// That memory, for large ones.
    pub pool: FramePool,
    /// Answers are written when this many bytes have gathered, even if more frames are there; nothing
    /// more is read until the peer has taken them.
    pub flush_at: usize,
    /// How many bytes of answers may wait for peers; more end the session.
    pub queues: Queues,
}

/// One connection and its protocol.
pub struct Session<S, P> {
    stream: S,
    protocol: P,
    handle: Arc<SessionHandle>,
    context: SessionContext,
    /// What was read and not handled: at most one unfinished frame, behind whole ones.
    input: BytesMut,
    /// An unfinished large frame, or a finished one that has not been handled.
    large: Option<FrameBuffer>,
    input_read_at: Millis,
    /// The right to hold the unfinished frame, once it is larger than what one read gives.
    permit: Option<FramePermit>,
    permit_wanted: Option<Pin<Box<dyn Future<Output = FramePermit> + Send>>>,
    unsent: Vec<u8>,
    sent: usize,
    /// The stream took everything and may hold some of it back.
    unflushed: bool,
    /// Counts what is queued against the limits.
    queued: Queued,
    waiting: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Set when the session ends once its answers are written.
    ending: Option<End>,
    freezes_seen: u64,
    stale: bool,
}

/// How far handling frames got.
enum Progress {
    /// All whole frames are handled; the next one, if its length is known, needs this many bytes.
    Incomplete(Option<usize>),
    /// A frame has to be waited for, the output is full, or the session ends.
    Stopped,
}

impl<S, P> Session<S, P>
where
    S: AsyncRead + AsyncWrite + Unpin,
    P: Protocol,
{
    /// A session over a connection whose preamble has been dealt with.
    pub fn new(stream: S, protocol: P, handle: Arc<SessionHandle>, context: SessionContext) -> Self {
        let freezes_seen = context.pulse.freeze_epoch();
        Self {
            stream,
            protocol,
            handle,
            input: BytesMut::new(),
            large: None,
            input_read_at: Millis::ZERO,
            permit: None,
            permit_wanted: None,
            unsent: Vec::new(),
            sent: 0,
            unflushed: false,
            queued: context.queues.queued(),
            waiting: None,
            ending: None,
            freezes_seen,
            stale: false,
            context,
        }
    }

    /// Serves the connection until it ends; gives the protocol back, so that its owner can clear up.
    pub async fn run(mut self) -> (End, P) {
        let end = poll_fn(|cx| self.poll_run(cx)).await;
        (end, self.protocol)
    }

    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.handle.register(cx.waker());
        loop {
            if let Some(waiting) = &mut self.waiting
                && let Poll::Ready(answer) = waiting.as_mut().poll(cx)
            {
                self.waiting = None;
                if let Err(error) = self.write_now(cx, &answer.bytes) {
                    self.fail(error);
                }
                if let Some(reason) = answer.close {
                    self.ending.get_or_insert(End::Closed(reason));
                }
                self.handle.active(self.context.pulse.now());
            }
            // What was handed on is waited for even then: it must not take effect after the end of its
            // connection was reported.
            match self.handle.command() {
                _ if self.waiting.is_some() => {}
                Command::Close(reason) => return Poll::Ready(End::Closed(reason)),
                Command::CloseIdle => return Poll::Ready(End::Idle),
                Command::Serve | Command::Drain => {}
            }
            if (self.sent < self.unsent.len() || self.unflushed)
                && let Err(error) = ready!(self.poll_send(cx))
            {
                self.fail(error);
                continue;
            }
            if self.waiting.is_some() {
                return Poll::Pending;
            }
            if let Some(end) = self.ending.take() {
                return Poll::Ready(end);
            }
            match self.handle_input() {
                Progress::Stopped => continue,
                Progress::Incomplete(length) => {
                    if self.handle.command() == Command::Drain {
                        return Poll::Ready(End::Drained);
                    }
                    let read = if self.large.is_some() {
                        self.poll_read_large(cx)
                    } else if self.input.is_empty() {
                        self.poll_read_scratch(cx)
                    } else {
                        self.poll_read_rest(cx, length)
                    };
                    match ready!(read) {
                        Ok(0) => return Poll::Ready(End::PeerClosed),
                        Ok(_) => {}
                        Err(error) => self.fail(error),
                    }
                }
            }
        }
    }

    /// The connection is broken: nothing more is sent, and the session ends when what it waits for is done.
    fn fail(&mut self, error: io::Error) {
        self.forget_unsent();
        self.ending = Some(broken(error));
    }

    fn forget_unsent(&mut self) {
        self.unsent = Vec::new();
        self.sent = 0;
        self.unflushed = false;
        self.queued.set(0);
    }

    /// Handles the frames in the session's own buffer.
    fn handle_input(&mut self) -> Progress {
        match &self.large {
            Some(large) if !large.is_complete() => return Progress::Incomplete(None),
            None if self.input.is_empty() => return Progress::Incomplete(None),
            _ => {}
        }
        let now = self.context.clock.now();
        self.stale |= now.since(self.input_read_at) > STALE_AFTER;
        let read_at = self.context.clock.nanoseconds();
        let mut output = std::mem::take(&mut self.unsent);
        output.clear();
        self.sent = 0;
        let progress = match self.large.take() {
            Some(large) => self.handle_large(large, &mut output),
            None => self.handle_owned(&mut output),
        };
        self.protocol.batch_done(read_at, self.context.clock.nanoseconds());
        self.queue(output);
        if self.input.is_empty() {
            // An idle connection owns no buffer.
            self.input = BytesMut::new();
        }
        if self.sent < self.unsent.len() { Progress::Stopped } else { progress }
    }

    fn handle_owned(&mut self, output: &mut Vec<u8>) -> Progress {
        loop {
            if self.input.is_empty() {
                return Progress::Incomplete(None);
            }
            let length = match self.protocol.frame_length(&self.input) {
                Err(reason) => return self.stop(End::Protocol(reason)),
                Ok(length) => length.filter(|length| *length > 0),
            };
            let Some(length) = length.filter(|length| *length <= self.input.len()) else {
                return Progress::Incomplete(length);
            };
            self.handle.active(self.context.pulse.now());
            let frame = self.input.get(..length).unwrap_or_default();
            let step = self.protocol.frame(FrameBytes::Borrowed(frame), self.stale, output);
            self.input.advance(length);
            if self.permit.take().is_some() {
                self.handle.end_large_frame();
            }
            if !self.take_step(step) || output.len() >= self.context.flush_at {
                return Progress::Stopped;
            }
        }
    }

    /// Handles a large frame that is complete; nothing was read behind it.
    fn handle_large(&mut self, large: FrameBuffer, output: &mut Vec<u8>) -> Progress {
        self.handle.end_large_frame();
        self.handle.active(self.context.pulse.now());
        let frame = KeptFrame { bytes: large.freeze(), permit: self.permit.take() };
        let step = self.protocol.frame(FrameBytes::Owned(frame), self.stale, output);
        if self.take_step(step) { Progress::Incomplete(None) } else { Progress::Stopped }
    }

    /// Reads into the thread's buffer, handles the frames where they lie, writes the answers.
    fn poll_read_scratch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(&mut scratch.input);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            let length = read.len();
            if length == 0 {
                return Poll::Ready(Ok(0));
            }
            let read_at = self.note_read();
            scratch.output.clear();
            let handled = self.handle_slice(read, &mut scratch.output);
            if let Some(rest) = read.get(handled..).filter(|rest| !rest.is_empty()) {
                self.input.extend_from_slice(rest);
            }
            self.protocol.batch_done(read_at, self.context.clock.nanoseconds());
            self.write_now(cx, &scratch.output)?;
            if scratch.output.capacity() > OUTPUT_KEPT {
                scratch.output = Vec::with_capacity(SCRATCH_LENGTH);
            }
            Poll::Ready(Ok(length))
        })
    }

    /// Handles whole frames; returns how many bytes they had.
    fn handle_slice(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> usize {
        let mut handled = 0_usize;
        while let Some(rest) = bytes.get(handled..).filter(|rest| !rest.is_empty()) {
            let length = match self.protocol.frame_length(rest) {
                Err(reason) => {
                    self.stop(End::Protocol(reason));
                    return bytes.len();
                }
                Ok(length) => length.filter(|length| *length > 0),
            };
            let Some(frame) = length.and_then(|length| rest.get(..length)) else { break };
            if handled == 0 {
                self.handle.active(self.context.pulse.now());
            }
            handled = handled.saturating_add(frame.len());
            let step = self.protocol.frame(FrameBytes::Borrowed(frame), self.stale, output);
            if !self.take_step(step) || output.len() >= self.context.flush_at {
                break;
            }
        }
        handled
    }

    /// Whether the next frame may be handled.
    fn take_step(&mut self, step: Step) -> bool {
        match step {
            Step::Next => true,
            Step::Wait(answer) => {
                self.waiting = Some(answer);
                false
            }
            Step::Close(reason) => {
                self.stop(End::Closed(reason));
                false
            }
        }
    }

    fn stop(&mut self, end: End) -> Progress {
        self.ending = Some(end);
        Progress::Stopped
    }

    /// Reads more of an unfinished frame behind what is there of it, up to its end.
    fn poll_read_rest(&mut self, cx: &mut Context<'_>, length: Option<usize>) -> Poll<io::Result<usize>> {
        let have = self.input.len();
        let missing = length.map_or(FIRST_ROOM, |length| length.saturating_sub(have));
        let length = length.filter(|length| *length > SCRATCH_LENGTH);
        if let Some(length) = length.filter(|_| self.permit.is_none()) {
            self.handle.begin_large_frame(self.context.pulse.now());
            self.permit = Some(ready!(self.poll_permit(cx, length)));
        }
        if let Some(length) = length.filter(|length| *length >= LARGE_FRAME) {
            self.large = Some(self.context.pool.buffer(&self.input, length)?);
            self.input = BytesMut::new();
            return self.poll_read_large(cx);
        }
        if have == self.input.capacity() {
            self.input.reserve(missing.min(have.max(FIRST_ROOM)));
        }
        let mut rest = (&mut self.input).limit(missing);
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut rest))?;
        if read > 0 {
            self.note_read();
        }
        Poll::Ready(Ok(read))
    }

    /// Reads more of a large frame, up to its end.
    fn poll_read_large(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(large) = &mut self.large else { return Poll::Ready(Ok(0)) };
        let mut rest = ReadBuf::new(large.rest());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut rest))?;
        let read = rest.filled().len();
        large.advance(read);
        if read > 0 {
            self.note_read();
        }
        Poll::Ready(Ok(read))
    }

    fn poll_permit(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<FramePermit> {
        let budget = &self.context.budget;
        let length = length as u64;
        if self.permit_wanted.is_none()
            && let Some(permit) = budget.try_admit(length)
        {
            return Poll::Ready(permit);
        }
        let wanted = self.permit_wanted.get_or_insert_with(|| {
            let budget = budget.clone();
            Box::pin(async move { budget.admit(length).await })
        });
        let permit = ready!(wanted.as_mut().poll(cx));
        self.permit_wanted = None;
        Poll::Ready(permit)
    }

    /// Notes when bytes came, and whether they may have waited while the process stood still.
    fn note_read(&mut self) -> u64 {
        let SessionContext { clock, pulse, .. } = &self.context;
        let nanoseconds = clock.nanoseconds();
        let now = Millis::new(nanoseconds / 1_000_000);
        let freezes = pulse.freeze_epoch();
        self.stale = pulse.stalled_for(now) > STALE_AFTER
            || (freezes != self.freezes_seen && now.since(pulse.thawed_at()) < STALE_AFTER);
        self.freezes_seen = freezes;
        self.input_read_at = now;
        nanoseconds
    }

    /// Writes answers at once as far as the socket takes them, and queues the rest.
    fn write_now(&mut self, cx: &mut Context<'_>, output: &[u8]) -> io::Result<()> {
        if self.sent < self.unsent.len() {
            self.queue(output.to_vec());
            return Ok(());
        }
        let mut written = 0_usize;
        while let Some(rest) = output.get(written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => written = written.saturating_add(count),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.queue(rest.to_vec());
                    return Ok(());
                }
            }
        }
        if written > 0 {
            // A TLS stream may hold back what it took.
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending => self.unflushed = true,
            }
        }
        Ok(())
    }

    fn queue(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if self.sent >= self.unsent.len() {
            self.unsent = bytes;
            self.sent = 0;
        } else {
            self.unsent.extend_from_slice(&bytes);
        }
        let queued = self.unsent.len().saturating_sub(self.sent);
        if !self.queued.set(queued) {
            self.forget_unsent();
            self.ending = Some(End::SlowReader { queued });
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent = self.sent.saturating_add(count);
            self.handle.active(self.context.pulse.now());
        }
        self.forget_unsent();
        self.unflushed = true;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

fn broken(error: io::Error) -> End {
    if is_timeout_error(&error) { End::TimedOut(error) } else { End::Broken(error) }
}
