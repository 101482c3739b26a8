//! A session over a stream that the test plays, with a protocol of one-letter requests.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use waypost_net::budget::MemoryBudget;
use waypost_net::clock::{Clock, Millis, Pulse};
use waypost_net::frame_pool::FramePool;
use waypost_net::queues::Queues;
use waypost_net::session::{Answer, End, FrameBytes, Protocol, Session, SessionContext, Step};
use waypost_net::sessions::Sessions;

/// What the peer does, and what it got.
#[derive(Default)]
struct Play {
    /// Bytes to be read; when there are none the peer is silent.
    input: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    writes: usize,
    /// Taken by the stream and not passed on, as TLS does.
    held: Vec<u8>,
    holds_back: bool,
    broken: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Play>>);

impl Wire {
    fn change<R>(&self, change: impl FnOnce(&mut Play) -> R) -> R {
        let mut play = self.0.lock().unwrap();
        let result = change(&mut play);
        if let Some(waker) = play.waker.take() {
            waker.wake();
        }
        result
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut play = self.0.lock().unwrap();
        let Some(mut bytes) = play.input.pop_front() else {
            play.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let count = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..count]);
        bytes.drain(..count);
        if !bytes.is_empty() {
            play.input.push_front(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut play = self.0.lock().unwrap();
        if play.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        play.writes += 1;
        if play.holds_back {
            play.held.extend(bytes)
        } else {
            play.received.extend(bytes)
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut play = self.0.lock().unwrap();
        if play.holds_back && !play.held.is_empty() {
            play.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let held = std::mem::take(&mut play.held);
        play.received.extend(held);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Frames are four bytes of length, a letter and anything: `e` echoes, `w` waits for the test, `c` closes.
struct Letters {
    waits: VecDeque<oneshot::Receiver<Answer>>,
    large: usize,
}

impl Protocol for Letters {
    fn frame_length(&self, start: &[u8]) -> Result<Option<usize>, &'static str> {
        Ok(start.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize))
    }

    fn frame(&mut self, frame: FrameBytes<'_>, _: bool, output: &mut Vec<u8>) -> Step {
        self.large += usize::from(matches!(frame, FrameBytes::Owned(_)));
        let body = &frame.as_slice()[4..];
        match body[0] {
            b'w' => {
                let answer = self.waits.pop_front().expect("the test has an answer");
                Step::Wait(Box::pin(async move { answer.await.expect("the test answers") }))
            }
            b'c' => Step::Close("asked"),
            _ => {
                output.extend_from_slice(&body[..body.len().min(8)]);
                Step::Next
            }
        }
    }

    fn batch_done(&mut self, _: u64, _: u64) {}
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&length.to_be_bytes(), body].concat()
}

/// Starts a session over `wire`; each sender answers one `w`.
fn start(
    wire: &Wire,
    waits: usize,
) -> (tokio::task::JoinHandle<(End, Letters)>, Vec<oneshot::Sender<Answer>>) {
    let (senders, receivers) = (0..waits).map(|_| oneshot::channel()).unzip::<_, _, Vec<_>, VecDeque<_>>();
    let clock = Clock::system();
    let context = SessionContext {
        pulse: Pulse::start(clock.clone()).unwrap(),
        clock,
        budget: MemoryBudget::new(1 << 30, 1 << 24),
        pool: FramePool::new(),
        flush_at: 65_536,
        queues: Queues::new(1 << 20, 1 << 24),
    };
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let wire = wire.clone();
    let session = async move {
        let listed = Sessions::new().list(1, peer, Millis::ZERO);
        let protocol = Letters { waits: receivers, large: 0 };
        Session::new(wire, protocol, Arc::clone(listed.handle()), context).run().await
    };
    #[allow(clippy::disallowed_methods, reason = "the test owns the task")]
    (tokio::spawn(session), senders)
}

async fn until(wire: &Wire, what: impl Fn(&Play) -> bool) {
    for _ in 0..1_000 {
        if what(&wire.0.lock().unwrap()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it did not come to that");
}

#[tokio::test]
async fn frames_of_one_read_are_answered_in_order_with_one_write() {
    let wire = Wire::default();
    wire.change(|play| play.input.push_back([frame(b"e1"), frame(b"e2"), frame(b"e3")].concat()));
    let (session, _) = start(&wire, 0);
    until(&wire, |play| play.received == b"e1e2e3").await;
    assert_eq!(wire.change(|play| play.writes), 1);
    wire.change(|play| play.input.push_back(frame(b"c")));
    assert!(matches!(session.await.unwrap().0, End::Closed("asked")));
}

#[tokio::test]
async fn later_frames_wait_for_an_answer_that_takes_its_time() {
    let wire = Wire::default();
    wire.change(|play| play.input.push_back([frame(b"e1"), frame(b"w"), frame(b"e2")].concat()));
    let (_session, mut answers) = start(&wire, 1);
    until(&wire, |play| play.received == b"e1").await;
    answers.remove(0).send(Answer { bytes: b"late".to_vec(), close: None }).unwrap();
    until(&wire, |play| play.received == b"e1latee2").await;
}

#[tokio::test]
async fn a_large_frame_in_pieces_is_handed_on_as_a_whole() {
    let wire = Wire::default();
    let mut body = vec![b'x'; 300_000];
    body[0] = b'e';
    let bytes = [frame(&body), frame(b"e2"), frame(b"c")].concat();
    wire.change(|play| play.input.extend(bytes.chunks(10_007).map(<[u8]>::to_vec)));
    let (end, protocol) = start(&wire, 0).0.await.unwrap();
    assert!(matches!(end, End::Closed("asked")));
    assert_eq!(protocol.large, 1);
    assert_eq!(wire.change(|play| play.received.clone()), b"exxxxxxxe2");
}

#[tokio::test]
async fn a_broken_session_ends_after_what_it_handed_on_is_done() {
    let wire = Wire::default();
    wire.change(|play| {
        play.broken = true;
        play.input.push_back([frame(b"e1"), frame(b"w")].concat());
    });
    let (session, mut answers) = start(&wire, 1);
    until(&wire, |play| play.input.is_empty()).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!session.is_finished(), "its end must not be reported before the request has taken effect");
    answers.remove(0).send(Answer::default()).unwrap();
    assert!(matches!(session.await.unwrap().0, End::Broken(_)));
}

#[tokio::test]
async fn what_the_stream_holds_back_is_sent_before_the_end() {
    let wire = Wire::default();
    wire.change(|play| {
        play.holds_back = true;
        play.input.push_back([frame(b"e1"), frame(b"c")].concat());
    });
    let (session, _) = start(&wire, 0);
    until(&wire, |play| play.held == b"e1").await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!session.is_finished(), "the peer has not got its answer");
    wire.change(|play| play.holds_back = false);
    assert!(matches!(session.await.unwrap().0, End::Closed("asked")));
    assert_eq!(wire.change(|play| play.received.clone()), b"e1");
}
