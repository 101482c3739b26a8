//! How much the agent keeps of the brokers of its machine. All of it comes from peers.

use thiserror::Error;

/// Brokers of one machine. Each costs a connection to every name server.
pub(crate) const BROKERS_MAX: usize = 1_000;

/// Bytes that are kept of all brokers together: one full registration of a million topics has 100 MB.
pub(crate) const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of a sign of life or a goodbye. Real ones have a few hundred.
pub(crate) const SIGN_MAX: usize = 8 * 1024;

/// What is left for tables: every broker may have a goodbye and a sign of life besides.
pub(crate) const TABLES_MAX: usize = BYTES_MAX - 2 * BROKERS_MAX * SIGN_MAX;

/// What an entry takes besides its frame.
const ENTRY_COST: usize = 256;

/// What a topic takes besides its name in a frame: its hash, and its place among the owners.
const TOPIC_COST: usize = 64;

/// What a frame with so many topics takes.
pub(crate) fn cost(frame: usize, topics: usize) -> usize {
    frame.saturating_add(ENTRY_COST).saturating_add(topics.saturating_mul(TOPIC_COST))
}

/// Why something is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum NoRoom {
    /// One broker more than there may be.
    #[error("the agent speaks for {BROKERS_MAX} brokers already, no more at once")]
    Brokers,
    /// It does not fit beside what other brokers said.
    #[error("{needed} bytes more do not fit: the agent keeps {} MiB of all brokers together at most", BYTES_MAX >> 20)]
    Bytes {
        /// What it takes.
        needed: usize,
    },
    /// It fits since the oldest that the broker said is forgotten; the broker is made to say it again.
    #[error(
        "{frames} older frames of the broker were forgotten: the agent keeps {} MiB of all brokers together at most",
        BYTES_MAX >> 20
    )]
    Older {
        /// How many.
        frames: usize,
    },
}
