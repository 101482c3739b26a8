//! How many bytes of answers may wait for peers that do not read: for one, and for all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limits, and what waits. Clones share it.
#[derive(Clone, Debug)]
pub struct Queues {
    /// For one peer.
    each: usize,
    /// For all.
    all: usize,
    waiting: Arc<AtomicUsize>,
}

/// What waits for one peer; no longer counted when it is dropped.
#[derive(Debug)]
pub struct Queued {
    queues: Queues,
    bytes: usize,
}

impl Queues {
    /// Limits in bytes, for one peer and for all.
    pub fn new(each: usize, all: usize) -> Self {
        Self { each, all, waiting: Arc::default() }
    }

    /// The count of one more peer, for which nothing waits yet.
    pub fn queued(&self) -> Queued {
        Queued { queues: self.clone(), bytes: 0 }
    }

    /// Bytes that wait for all peers.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Queued {
    /// Says that `bytes` wait for the peer now; whether that is within the limits. It is counted either way.
    pub fn set(&mut self, bytes: usize) -> bool {
        let Queues { each, all, waiting } = &self.queues;
        let grows = bytes > self.bytes;
        let before = if grows {
            let more = bytes.saturating_sub(self.bytes);
            waiting.fetch_add(more, Ordering::Relaxed).saturating_add(more)
        } else {
            waiting.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed)
        };
        self.bytes = bytes;
        !grows || (bytes <= *each && before <= *all)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_and_all_peers_are_bounded() {
        let queues = Queues::new(100, 150);
        let (mut first, mut second) = (queues.queued(), queues.queued());
        assert!(first.set(100));
        assert!(!first.set(101), "more than one peer may have");
        assert!(first.set(90), "less is always right");
        assert!(second.set(60));
        assert!(!second.set(61), "more than all may have");
        drop(first);
        assert!(second.set(62));
        drop(second);
        assert_eq!(queues.waiting(), 0);
    }
}
