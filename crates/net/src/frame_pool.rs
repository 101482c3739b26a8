//! Memory for large frames: mappings of their own, the last few of which are kept warm.
//!
//! The pages of a fresh mapping are allocated one by one as a frame arrives, which bounds what a slow sender
//! costs; but clearing them costs more than everything else that is done with the bytes of an unchanged
//! registration. Brokers register again and again, so a mapping that was given back is used for the next frame.
//! A mapping that nobody wanted for a while goes back to the system.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use memmap2::MmapMut;

use crate::clock::Millis;

/// Mappings that are kept.
const KEPT_MAX: usize = 2;

/// Bytes that are kept in all.
const KEPT_BYTES: usize = 20 * 1024 * 1024;

/// Lengths are rounded up to this, so that a frame that grew a little still fits.
const GRAIN: usize = 1024 * 1024;

/// How long a mapping is kept: brokers register every 30 s.
const KEPT_FOR: Duration = Duration::from_secs(65);

/// Mappings that are not in use. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FramePool {
    kept: Arc<Mutex<Vec<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    map: MmapMut,
    /// `None` until the next sweep, which is less than a sweep's period too late.
    since: Option<Millis>,
}

/// Room for one frame. Goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct FrameBuffer {
    /// Empty only while it is dropped.
    map: Option<MmapMut>,
    length: usize,
    filled: usize,
    pool: FramePool,
}

impl FramePool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for a frame of `length` bytes that begins with `start`.
    ///
    /// # Errors
    ///
    /// When the system has no memory for it.
    pub fn buffer(&self, start: &[u8], length: usize) -> io::Result<FrameBuffer> {
        let map = match self.take(length) {
            Some(map) => map,
            None => MmapMut::map_anon(length.max(1).checked_next_multiple_of(GRAIN).unwrap_or(length))?,
        };
        let mut buffer = FrameBuffer { map: Some(map), length, filled: 0, pool: self.clone() };
        let count = start.len().min(length);
        if let (Some(to), Some(from)) = (buffer.rest().get_mut(..count), start.get(..count)) {
            to.copy_from_slice(from);
        }
        buffer.filled = count;
        Ok(buffer)
    }

    /// Gives mappings back to the system that were not used for a minute. To be called about once a
    /// second.
    pub fn sweep(&self, now: Millis) {
        self.lock().retain_mut(|kept| now.since(*kept.since.get_or_insert(now)) < KEPT_FOR);
    }

    /// The smallest mapping that is large enough.
    fn take(&self, length: usize) -> Option<MmapMut> {
        let mut kept = self.lock();
        let fitting = kept.iter().enumerate().filter(|(_, kept)| {
            // A permit counts the frame, not the mapping: a much larger one would be memory that nobody counts.
            (length..=length.saturating_mul(2).max(GRAIN)).contains(&kept.map.len())
        });
        let (index, _) = fitting.min_by_key(|(_, kept)| kept.map.len())?;
        Some(kept.swap_remove(index).map)
    }

    fn give_back(&self, map: MmapMut) {
        let mut kept = self.lock();
        let bytes: usize = kept.iter().map(|kept| kept.map.len()).sum();
        if kept.len() < KEPT_MAX && bytes.saturating_add(map.len()) <= KEPT_BYTES {
            kept.push(Kept { map, since: None });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        // No code under this lock can leave the list half changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameBuffer {
    /// What is still to be filled.
    pub fn rest(&mut self) -> &mut [u8] {
        let range = self.filled..self.length;
        self.map.as_mut().and_then(|map| map.get_mut(range)).unwrap_or_default()
    }

    /// Notes that `count` more bytes are there.
    pub fn advance(&mut self, count: usize) {
        self.filled = self.filled.saturating_add(count).min(self.length);
    }

    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.filled == self.length
    }

    /// The bytes that are there; the buffer goes back to its pool with the last clone of them.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for FrameBuffer {
    fn as_ref(&self) -> &[u8] {
        self.map.as_ref().and_then(|map| map.get(..self.filled)).unwrap_or_default()
    }
}

impl Drop for FrameBuffer {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.pool.give_back(map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut FrameBuffer, byte: u8) {
        let rest = buffer.rest();
        rest.fill(byte);
        let count = rest.len();
        buffer.advance(count);
    }

    #[test]
    fn a_frame_shows_its_own_bytes_alone() {
        let pool = FramePool::new();
        let mut first = pool.buffer(b"ab", 300_000).unwrap();
        assert!(!first.is_complete());
        fill(&mut first, b'x');
        assert!(first.is_complete());
        let first = first.freeze();
        assert_eq!((first.len(), first.get(..3)), (300_000, Some(&b"abx"[..])));
        drop(first);
        // The same memory again, and nothing of the frame before it.
        let mut second = pool.buffer(b"c", 5).unwrap();
        fill(&mut second, b'd');
        assert_eq!(&second.freeze()[..], b"cdddd");
    }

    #[test]
    fn a_small_frame_gets_no_mapping_of_a_much_larger_one() {
        let pool = FramePool::new();
        drop(pool.buffer(b"", 16 * GRAIN).unwrap());
        let small = pool.buffer(b"", 2 * GRAIN).unwrap();
        assert_eq!(pool.lock().len(), 1, "the large one stays in the pool");
        drop(small);
        assert_eq!(pool.lock().len(), 2);
    }

    #[test]
    fn a_few_mappings_are_kept_for_a_while() {
        let pool = FramePool::new();
        let buffers: Vec<_> = (0..4).map(|_| pool.buffer(b"", 8 * GRAIN).unwrap()).collect();
        drop(buffers);
        assert_eq!(pool.lock().len(), KEPT_MAX);
        pool.sweep(Millis::new(1_000));
        pool.sweep(Millis::new(1_000).after(KEPT_FOR - Duration::from_millis(1)));
        assert_eq!(pool.lock().len(), KEPT_MAX);
        let used = pool.buffer(b"", 7 * GRAIN).unwrap();
        pool.sweep(Millis::new(1_000).after(KEPT_FOR));
        assert_eq!(pool.lock().len(), 0);
        drop(used);
        assert_eq!(pool.lock().len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let pool = FramePool::new();
        drop(pool.buffer(b"", KEPT_BYTES + 1).unwrap());
        assert_eq!(pool.lock().len(), 0);
    }
}
