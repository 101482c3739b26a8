//! Queues, and lists of them that are kept as ranges.

use std::sync::Arc;

/// The permission bit of topics that may be read.
pub const PERM_READ: i32 = 4;
/// The permission bit of topics that may be written.
pub const PERM_WRITE: i32 = 2;

/// One queue of a topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Queue {
    /// The broker group that serves the queue: whom to send to, and whom to name in reports. For a queue of a
    /// static topic that nobody owns it is [`UNOWNED`](crate::static_topic::UNOWNED), which has no address.
    pub broker: Arc<str>,
    /// The name under which clients know the queue of a static topic (B9); `None` for other topics.
    pub logical: Option<Arc<str>>,
    /// The number of the queue, from 0.
    pub id: i32,
}

impl Queue {
    /// The broker name of the queue as RocketMQ's clients show it: the mock name of a queue of a static topic,
    /// the broker group of any other.
    #[must_use]
    pub fn broker_name(&self) -> &str {
        self.logical.as_ref().unwrap_or(&self.broker)
    }
}

/// Queues with consecutive numbers on one broker group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRange {
    /// The broker group that serves the queues.
    pub broker: Arc<str>,
    /// The mock name of a static topic's queues.
    pub logical: Option<Arc<str>>,
    /// The least number.
    pub first: i32,
    /// How many.
    pub count: u32,
    /// Whether the route has an address that requests can go to: the master's for publishing, anyone's for
    /// subscribing.
    pub addressed: bool,
}

impl QueueRange {
    fn queue(&self, offset: u64) -> Queue {
        let id = i64::from(self.first).saturating_add_unsigned(offset);
        Queue {
            broker: Arc::clone(&self.broker),
            logical: self.logical.clone(),
            id: i32::try_from(id).unwrap_or(i32::MAX),
        }
    }
}

/// A list of queues that is kept as ranges: what a peer claims in a number costs no memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueList {
    ranges: Box<[QueueRange]>,
    /// The position of each range's first queue in the list.
    starts: Box<[u64]>,
    total: u64,
}

impl QueueList {
    /// The queues of `ranges`, one after the other. Empty ranges are left out.
    #[must_use]
    pub fn new(ranges: Vec<QueueRange>) -> Self {
        let ranges: Box<[QueueRange]> = ranges.into_iter().filter(|range| range.count > 0).collect();
        let mut total = 0_u64;
        let mut starts = Vec::with_capacity(ranges.len());
        for range in &ranges {
            starts.push(total);
            total = total.saturating_add(u64::from(range.count));
        }
        Self { ranges, starts: starts.into_boxed_slice(), total }
    }

    /// How many queues there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether there is no queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The queue at `index` of the list.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Queue> {
        let (range, start) = self.range_at(index)?;
        Some(range.queue(index.saturating_sub(start)))
    }

    /// The range that the queue at `index` is in, and the position of that range's first queue.
    #[must_use]
    pub fn range_at(&self, index: u64) -> Option<(&QueueRange, u64)> {
        if index >= self.total {
            return None;
        }
        let position = self.starts.partition_point(|&start| start <= index).checked_sub(1)?;
        Some((self.ranges.get(position)?, *self.starts.get(position)?))
    }

    /// The ranges, none of them empty, in the order of the list.
    #[must_use]
    pub fn ranges(&self) -> &[QueueRange] {
        &self.ranges
    }

    /// All queues in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = Queue> + '_ {
        self.ranges.iter().flat_map(|range| (0..u64::from(range.count)).map(|offset| range.queue(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(broker: &str, first: i32, count: u32) -> QueueRange {
        QueueRange { broker: broker.into(), logical: None, first, count, addressed: true }
    }

    #[test]
    fn an_index_finds_the_queue_that_iteration_has_there() {
        let list = QueueList::new(vec![range("a", 0, 3), range("b", 0, 0), range("c", 5, 2)]);
        let all: Vec<(String, i32)> = list.iter().map(|queue| (queue.broker.to_string(), queue.id)).collect();
        let expected = [("a", 0), ("a", 1), ("a", 2), ("c", 5), ("c", 6)];
        assert_eq!(all, expected.map(|(broker, id)| (broker.to_owned(), id)));
        assert_eq!(list.len(), 5);
        let by_index: Vec<Queue> = (0..5).filter_map(|index| list.get(index)).collect();
        assert_eq!(by_index, list.iter().collect::<Vec<_>>());
        assert_eq!(list.get(5), None);
        assert_eq!(QueueList::default().get(0), None);
    }

    #[test]
    fn claims_of_billions_of_queues_cost_nothing() {
        let list = QueueList::new(vec![range("a", 0, u32::MAX), range("b", 0, i32::MAX as u32)]);
        assert_eq!(list.get(u64::from(u32::MAX)).map(|queue| queue.id), Some(0));
        assert_eq!(list.ranges().len(), 2);
        assert!(list.get(u64::from(u32::MAX) - 1).is_some());
    }
}
