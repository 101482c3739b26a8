//! The memory that unfinished frames may take together, and who waits when it is short.
//!
//! A connection that holds part of a frame asks for a permit of the whole frame's size before it lets its
//! buffer grow beyond what one read gives. The permit is a promise, not an allocation: the bytes are still
//! allocated as they arrive. Since only whole frames are promised, a frame that was let in never waits
//! again, and two half-read frames can never block each other.
//!
//! A frame of `d` bytes is let in if, with it, no more is promised than
//!
//! ```text
//! d <= 1 MiB:  total
//! d >  1 MiB:  3/4 total - 1/4 total * d / largest
//! ```
//!
//! or if nothing else is promised. So frames up to 1 MiB find at least a quarter of the total free,
//! whatever the others do, and the bigger a frame, the earlier it waits: a thousand connections that send
//! frames of 16 MiB share half of the total, and a registration of 5 MiB still gets in beside them. Who
//! waits is let in smallest first, equals in their order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Frames up to this size may use the whole budget, in bytes.
pub const SMALL_FRAME: u64 = 1024 * 1024;

/// The memory of unfinished frames by default, in bytes.
pub const DEFAULT_TOTAL: u64 = 1024 * 1024 * 1024;

/// A budget that connections share. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    delayed: AtomicU64,
}

/// The right to hold one unfinished frame; given back when it is dropped.
#[derive(Debug)]
pub struct FramePermit {
    shared: Arc<Shared>,
    bytes: u64,
}

/// The arithmetic, without locks or waking.
#[derive(Debug)]
struct Ledger {
    total: u64,
    largest: u64,
    promised: u64,
    /// By size, then by arrival.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<FramePermit>>,
    arrivals: u64,
}

impl Ledger {
    /// How much may be promised in all, with a frame of `frame` bytes among it.
    fn ceiling(&self, frame: u64) -> u64 {
        if frame <= SMALL_FRAME {
            return self.total;
        }
        let quarter = self.total / 4;
        let share = u128::from(quarter).saturating_mul(u128::from(frame.min(self.largest)));
        let share = share.checked_div(u128::from(self.largest)).unwrap_or(0);
        let share = u64::try_from(share).unwrap_or(quarter);
        self.total.saturating_sub(quarter).saturating_sub(share)
    }

    fn fits(&self, frame: u64) -> bool {
        self.promised == 0 || self.promised.saturating_add(frame) <= self.ceiling(frame)
    }

    /// Promises `frame` bytes unless they do not fit or somebody with as small a frame waits already.
    fn promise(&mut self, frame: u64) -> bool {
        let first = self.waiting.first_key_value().is_none_or(|((smallest, _), _)| frame < *smallest);
        let granted = first && self.fits(frame);
        if granted {
            self.promised = self.promised.saturating_add(frame);
        }
        granted
    }

    /// Takes the next waiter that fits out of the queue and promises it its bytes. If the smallest does
    /// not fit, none does: a bigger one needs more and may have less.
    fn next_granted(&mut self) -> Option<(u64, oneshot::Sender<FramePermit>)> {
        let ((frame, _), _) = self.waiting.first_key_value()?;
        let frame = *frame;
        if !self.fits(frame) {
            return None;
        }
        let (_, sender) = self.waiting.pop_first()?;
        self.promised = self.promised.saturating_add(frame);
        Some((frame, sender))
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // No code under this lock can panic half-way through a change.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(self: &Arc<Self>, bytes: u64) {
        let mut ledger = self.ledger();
        ledger.promised = ledger.promised.saturating_sub(bytes);
        drop(ledger);
        self.wake_waiters();
    }

    fn wake_waiters(self: &Arc<Self>) {
        loop {
            let granted = self.ledger().next_granted();
            let Some((bytes, sender)) = granted else { return };
            // Not under the lock: a waiter that has gone gives the permit back here, and that locks.
            drop(sender.send(FramePermit { shared: Arc::clone(self), bytes }));
        }
    }
}

impl Drop for FramePermit {
    fn drop(&mut self) {
        self.shared.release(self.bytes);
    }
}

impl FramePermit {
    /// The size that was promised, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Takes a waiter out of the queue if its future is dropped.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    key: (u64, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let left = self.shared.ledger().waiting.remove(&self.key);
        if left.is_some() {
            // It may have been the smallest, which kept others from trying.
            self.shared.wake_waiters();
        }
    }
}

impl MemoryBudget {
    /// A budget of `total` bytes for frames of at most `largest_frame` bytes.
    pub fn new(total: u64, largest_frame: u64) -> Self {
        let ledger = Ledger {
            total,
            largest: largest_frame.max(1),
            promised: 0,
            waiting: BTreeMap::new(),
            arrivals: 0,
        };
        Self { shared: Arc::new(Shared { ledger: Mutex::new(ledger), delayed: AtomicU64::new(0) }) }
    }

    /// A permit for a frame of `frame` bytes, if there is room now and nobody with as small a frame waits.
    pub fn try_admit(&self, frame: u64) -> Option<FramePermit> {
        let granted = self.shared.ledger().promise(frame);
        granted.then(|| FramePermit { shared: Arc::clone(&self.shared), bytes: frame })
    }

    /// A permit for a frame of `frame` bytes, as soon as there is room. Cancel safe; the caller decides how
    /// long it waits, and closes the connection if it has waited too long.
    pub async fn admit(&self, frame: u64) -> FramePermit {
        loop {
            let (receiver, place) = {
                let mut ledger = self.shared.ledger();
                if ledger.promise(frame) {
                    drop(ledger);
                    return FramePermit { shared: Arc::clone(&self.shared), bytes: frame };
                }
                let (sender, receiver) = oneshot::channel();
                ledger.arrivals = ledger.arrivals.wrapping_add(1);
                let key = (frame, ledger.arrivals);
                ledger.waiting.insert(key, sender);
                (receiver, Place { shared: &self.shared, key })
            };
            self.shared.delayed.fetch_add(1, Ordering::Relaxed);
            let permit = receiver.await;
            drop(place);
            // The sender is only dropped with the queue, which this budget keeps; then it asks anew.
            if let Ok(permit) = permit {
                return permit;
            }
        }
    }

    /// Bytes that are promised now.
    pub fn promised(&self) -> u64 {
        self.shared.ledger().promised
    }

    /// Frames that wait now.
    pub fn waiting(&self) -> usize {
        self.shared.ledger().waiting.len()
    }

    /// Frames that have had to wait so far.
    pub fn delayed(&self) -> u64 {
        self.shared.delayed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    const MIB: u64 = 1024 * 1024;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn take_all(budget: &MemoryBudget, frame: u64) -> Vec<FramePermit> {
        std::iter::from_fn(|| budget.try_admit(frame)).collect()
    }

    #[test]
    fn the_biggest_frames_share_half_and_smaller_ones_still_get_in() {
        let budget = MemoryBudget::new(1024 * MIB, 16 * MIB);
        let biggest = take_all(&budget, 16 * MIB);
        assert_eq!(biggest.len(), 32);
        let registrations = take_all(&budget, 5 * MIB);
        assert!(registrations.len() >= 30, "{}", registrations.len());
        let rest = 1024 * MIB - budget.promised();
        assert!(rest >= 256 * MIB, "a quarter stays for small frames: {rest}");
        let small = take_all(&budget, MIB);
        assert_eq!(small.len() as u64, rest / MIB);
        drop((biggest, registrations, small));
        assert_eq!(budget.promised(), 0);
    }

    #[test]
    fn a_single_frame_is_let_in_even_if_the_budget_is_smaller() {
        let budget = MemoryBudget::new(MIB, 16 * MIB);
        let permit = budget.try_admit(16 * MIB).expect("nothing else is promised");
        assert!(budget.try_admit(1).is_none());
        drop(permit);
        assert!(budget.try_admit(1).is_some());
    }

    #[test]
    fn waiters_get_in_smallest_first_and_equals_in_order() {
        let budget = MemoryBudget::new(8 * MIB, 8 * MIB);
        let first = budget.try_admit(8 * MIB).unwrap();
        let mut big = pin!(budget.admit(3 * MIB));
        let mut small = pin!(budget.admit(2 * MIB));
        let mut later = pin!(budget.admit(2 * MIB));
        assert!(poll(big.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending());
        assert!(poll(later.as_mut()).is_pending());
        assert_eq!((budget.waiting(), budget.delayed()), (3, 3));
        drop(first);
        let Poll::Ready(permit) = poll(small.as_mut()) else { panic!("the smallest gets in") };
        let Poll::Ready(second) = poll(later.as_mut()) else { panic!("its equal gets in next") };
        assert!(poll(big.as_mut()).is_pending(), "4 of 8 are promised and 3 more exceed its ceiling");
        drop((permit, second));
        assert!(poll(big.as_mut()).is_ready());
    }

    #[test]
    fn nobody_overtakes_a_waiter_with_as_small_a_frame() {
        let budget = MemoryBudget::new(MIB, MIB);
        let half = budget.try_admit(MIB / 2).unwrap();
        let mut waiter = pin!(budget.admit(MIB * 3 / 4));
        assert!(poll(waiter.as_mut()).is_pending());
        assert!(budget.try_admit(MIB * 3 / 4).is_none());
        assert!(budget.try_admit(MIB / 4).is_some(), "a smaller one may");
        drop(half);
        assert!(poll(waiter.as_mut()).is_ready());
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_no_trace() {
        let budget = MemoryBudget::new(MIB, MIB);
        let all = budget.try_admit(MIB).unwrap();
        {
            let mut before = pin!(budget.admit(MIB));
            assert!(poll(before.as_mut()).is_pending());
        }
        assert_eq!(budget.waiting(), 0);
        {
            // Granted, but gone before it could look.
            let mut granted = pin!(budget.admit(MIB));
            assert!(poll(granted.as_mut()).is_pending());
            drop(all);
            assert_eq!(budget.promised(), MIB);
        }
        assert_eq!(budget.promised(), 0);
    }

    #[test]
    fn a_small_waiter_that_gives_up_lets_those_behind_it_try() {
        let budget = MemoryBudget::new(8 * MIB, 8 * MIB);
        let seven = budget.try_admit(7 * MIB).unwrap();
        let mut behind = pin!(budget.admit(MIB + 1));
        assert!(poll(behind.as_mut()).is_pending());
        drop(seven);
        assert!(poll(behind.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn waiting_tasks_are_woken_when_a_permit_is_dropped() {
        let budget = MemoryBudget::new(MIB, MIB);
        let held = budget.try_admit(MIB).unwrap();
        let tasks = crate::tasks::Tasks::new();
        let admitted: Vec<_> = (0..50)
            .map(|_| {
                let budget = budget.clone();
                tasks.spawn(async move { budget.admit(MIB / 2).await.bytes() })
            })
            .collect();
        while budget.waiting() < 50 {
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in admitted {
            assert_eq!(task.await.unwrap(), MIB / 2);
        }
        assert_eq!((budget.promised(), budget.waiting()), (0, 0));
    }

    proptest! {
        #[test]
        fn promises_stay_within_the_total_and_come_back(
            steps in proptest::collection::vec((any::<bool>(), 1u64..16 * MIB), 1..200),
        ) {
            let budget = MemoryBudget::new(64 * MIB, 16 * MIB);
            let mut held = Vec::new();
            for (ask, size) in steps {
                if ask {
                    held.extend(budget.try_admit(size));
                } else if !held.is_empty() {
                    let at = usize::try_from(size).unwrap() % held.len();
                    held.swap_remove(at);
                }
                let sum: u64 = held.iter().map(FramePermit::bytes).sum();
                prop_assert_eq!(budget.promised(), sum);
                prop_assert!(sum <= 64 * MIB);
            }
            drop(held);
            prop_assert_eq!(budget.promised(), 0);
        }
    }
}
