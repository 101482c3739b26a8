//! What has to be looked at again and again: connections on which nothing happens, memory that nobody uses.

use std::time::Duration;

use waypost_net::budget::MemoryBudget;
use waypost_net::clock::{Clock, Pulse};
use waypost_net::frame_pool::FramePool;
use waypost_net::sessions::{FRAME_PATIENCE, Sessions};

use crate::desk::THAW_GRACE;

/// A connection that says nothing for so long is closed, as a NameServer does (`serverChannelMaxIdleTimeSeconds`).
const IDLE_MAX: Duration = Duration::from_secs(120);

/// What programs hold of the agent: their connections and the memory of the frames that they send.
#[derive(Clone, Debug)]
pub(crate) struct Upkeep {
    pub(crate) clock: Clock,
    pub(crate) pulse: Pulse,
    pub(crate) sessions: Sessions,
    pub(crate) budget: MemoryBudget,
    pub(crate) pool: FramePool,
}

impl Upkeep {
    /// Closes who was silent for too long, but for a connection that `is_needed`: one that carries a broker ends
    /// with the broker's lease. Nothing is done while the process stands still or has just gone on: what came
    /// meanwhile waits in the sockets, so everybody looks silent.
    pub(crate) fn sweep(&self, is_needed: impl Fn(u64) -> bool) {
        let now = self.clock.now();
        if self.pulse.is_thawing(now, THAW_GRACE) {
            return;
        }
        for session in self.sessions.idle(now, IDLE_MAX) {
            if !is_needed(session.id()) {
                session.close_idle();
            }
        }
        self.pool.sweep(now);
        if self.budget.waiting() > 0 {
            self.sessions.shed_large_frames(now, FRAME_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use waypost_net::clock::{Hands, Millis};
    use waypost_net::queues::Queues;
    use waypost_net::session::{End, FrameBytes, Protocol, Session, SessionContext, Step};
    use waypost_net::sessions::{Command, Listed};

    use super::*;

    const LARGE: u32 = 1024 * 1024;

    struct World {
        upkeep: Upkeep,
        hands: Hands,
    }

    /// Whose room for unfinished frames is that of one.
    fn world() -> World {
        let (clock, hands) = Clock::set_by_hand(Millis::new(1_000));
        let upkeep = Upkeep {
            pulse: Pulse::new(clock.now()),
            clock,
            sessions: Sessions::new(),
            budget: MemoryBudget::new(u64::from(LARGE), u64::from(LARGE)),
            pool: FramePool::new(),
        };
        World { upkeep, hands }
    }

    impl World {
        /// Time passes while the process runs.
        fn run(&self, time: Duration) {
            let step = Duration::from_secs(1);
            for _ in 0..time.as_secs() {
                self.stop(step);
                self.upkeep.pulse.tick(self.upkeep.clock.now());
            }
        }

        /// Time passes while it stands still.
        fn stop(&self, time: Duration) {
            self.hands.advance(time);
        }

        fn list(&self, number: u64) -> Listed {
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            self.upkeep.sessions.list(number, peer, self.upkeep.clock.now())
        }

        /// A peer that began a large frame.
        #[allow(clippy::disallowed_methods, reason = "the test waits for its end by itself")]
        async fn unfinished(&self, number: u64) -> (DuplexStream, JoinHandle<End>) {
            let (mut peer, ours) = duplex(1024);
            let listed = self.list(number);
            let context = SessionContext {
                clock: self.upkeep.clock.clone(),
                pulse: self.upkeep.pulse.clone(),
                budget: self.upkeep.budget.clone(),
                pool: self.upkeep.pool.clone(),
                flush_at: 1024,
                queues: Queues::new(1024, 1024),
            };
            let session = Session::new(ours, Lengths, Arc::clone(listed.handle()), context);
            let session = tokio::spawn(async move {
                let (end, _) = session.run().await;
                drop(listed);
                end
            });
            peer.write_all(&LARGE.to_be_bytes()).await.expect("room");
            (peer, session)
        }
    }

    /// Frames that begin with their length.
    struct Lengths;

    impl Protocol for Lengths {
        fn frame_length(&self, start: &[u8]) -> Result<Option<usize>, &'static str> {
            let length = start.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            Ok(length.and_then(|length| usize::try_from(length).ok()))
        }

        fn frame(&mut self, _frame: FrameBytes<'_>, _stale: bool, _output: &mut Vec<u8>) -> Step {
            Step::Next
        }

        fn batch_done(&mut self, _read_at: u64, _now: u64) {}
    }

    #[test]
    fn a_standstill_of_the_process_makes_nobody_silent() {
        let world = world();
        let listed = world.list(1);
        world.run(Duration::from_secs(60));
        world.stop(IDLE_MAX);
        world.upkeep.sweep(|_| false);
        assert_eq!(listed.handle().command(), Command::Serve);
        world.run(Duration::from_secs(1));
        world.upkeep.sweep(|_| false);
        assert_eq!(listed.handle().command(), Command::Serve, "what came meanwhile is not read yet");
        listed.handle().active(world.upkeep.clock.now());
        world.run(THAW_GRACE);
        world.upkeep.sweep(|_| false);
        assert_eq!(listed.handle().command(), Command::Serve);
        world.run(IDLE_MAX);
        world.upkeep.sweep(|_| false);
        assert_eq!(listed.handle().command(), Command::CloseIdle);
    }

    #[test]
    fn a_silent_connection_that_is_needed_stays() {
        let world = world();
        let (needed, other) = (world.list(1), world.list(2));
        world.run(IDLE_MAX);
        world.upkeep.sweep(|number| number == 1);
        assert_eq!(needed.handle().command(), Command::Serve);
        assert_eq!(other.handle().command(), Command::CloseIdle);
    }

    #[tokio::test]
    async fn a_large_frame_that_does_not_end_is_shed_while_others_wait_for_its_memory() {
        let world = world();
        let (_first, session) = world.unfinished(1).await;
        while world.upkeep.budget.promised() == 0 {
            tokio::task::yield_now().await;
        }
        world.run(FRAME_PATIENCE);
        world.upkeep.sweep(|_| false);
        let handle = world.upkeep.sessions.get(1).expect("open");
        assert_eq!(handle.command(), Command::Serve, "nobody needs its memory");
        let (_second, other) = world.unfinished(2).await;
        while world.upkeep.budget.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        world.upkeep.sweep(|_| false);
        assert!(matches!(session.await.expect("it ends"), End::Closed("frame_stalled")));
        while world.upkeep.budget.waiting() > 0 {
            tokio::task::yield_now().await;
        }
        other.abort();
    }
}
