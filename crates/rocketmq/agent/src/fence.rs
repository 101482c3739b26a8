//! Which connections may say goodbye for a broker.
//!
//! A broker that starts again may register before the goodbye of its predecessor is read, which comes over an older
//! connection: it must not end the new one. The rules are those of the NameServer's table.

use std::collections::BTreeSet;

/// A broker that reconnects all the time must not grow without bound: the oldest connections are forgotten.
const OLDER_MAX: usize = 16;

/// The connections that carried a broker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fence {
    bound: Option<u64>,
    older: BTreeSet<u64>,
}

impl Fence {
    /// The broker is carried by this connection from now on.
    pub(crate) fn bind(&mut self, connection: u64) {
        if self.bound == Some(connection) {
            return;
        }
        if let Some(before) = self.bound.replace(connection) {
            if self.older.len() >= OLDER_MAX {
                self.older.pop_first();
            }
            self.older.insert(before);
        }
        self.older.remove(&connection);
    }

    /// Whether a newer connection than this one carries the broker.
    #[must_use]
    pub(crate) fn is_older(&self, connection: u64) -> bool {
        self.older.contains(&connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(connections: impl IntoIterator<Item = u64>) -> Fence {
        let mut fence = Fence::default();
        connections.into_iter().for_each(|connection| fence.bind(connection));
        fence
    }

    #[test]
    fn only_connections_that_carried_the_broker_before_are_older() {
        let fence = fence([1, 2, 2]);
        assert_eq!([1, 2, 3].map(|connection| fence.is_older(connection)), [true, false, false]);
    }

    #[test]
    fn a_connection_that_carries_the_broker_again_is_no_older_one() {
        let fence = fence([1, 2, 1]);
        assert_eq!([1, 2].map(|connection| fence.is_older(connection)), [false, true]);
    }

    #[test]
    fn only_the_last_connections_are_remembered() {
        let fence = fence(0..=100);
        let older: Vec<u64> = (0..=100).filter(|connection| fence.is_older(*connection)).collect();
        assert_eq!(older, (84..100).collect::<Vec<_>>());
    }
}
