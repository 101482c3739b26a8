//! What a server may answer: kept by those who register, asked by those who check.
//!
//! A query that is under way while a topic changes may be answered with the old or with the new content.
//! Each change therefore has two moments: *sent* (from now on it may be seen) and *acknowledged* (from now
//! on it must be seen, by queries that start later).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::broker::{first_changes, queues_after};
use crate::names;
use crate::route::Route;

/// Brokers are bits in a word, and a query remembers a number for each.
pub(crate) const MOST_BROKERS: usize = 16;

/// The state of all simulated brokers.
pub(crate) struct Truth {
    brokers: Vec<Announced>,
    /// A bit for each broker that every answer must list.
    must: AtomicU64,
    /// A bit for each broker that an answer may list.
    may: AtomicU64,
}

struct Announced {
    name: String,
    address: String,
    /// How many changes each topic has behind it by a registration that was sent.
    sent: Vec<AtomicU32>,
    /// The same by one that was acknowledged.
    acknowledged: Vec<AtomicU32>,
}

/// What was true when a query left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    must: u64,
    may: u64,
    acknowledged: [u32; MOST_BROKERS],
}

impl Truth {
    /// No broker is there yet.
    ///
    /// # Panics
    /// With more than 16 brokers.
    pub(crate) fn new(brokers: usize, topics: usize) -> Self {
        assert!(brokers <= MOST_BROKERS, "at most {MOST_BROKERS} brokers can be followed");
        let counters =
            |broker| (0..topics).map(|topic| AtomicU32::new(first_changes(broker, topic))).collect();
        let announced = |index| Announced {
            name: names::broker(index),
            address: names::broker_address(index),
            sent: counters(index),
            acknowledged: counters(index),
        };
        Self {
            brokers: (0..brokers).map(announced).collect(),
            must: AtomicU64::new(0),
            may: AtomicU64::new(0),
        }
    }

    /// The broker starts to register.
    pub(crate) fn arrives(&self, broker: usize) {
        self.may.fetch_or(1 << broker, Ordering::SeqCst);
    }

    /// Its registration was acknowledged.
    pub(crate) fn is_there(&self, broker: usize) {
        self.must.fetch_or(1 << broker, Ordering::SeqCst);
    }

    /// Its connection is about to close.
    pub(crate) fn leaves(&self, broker: usize) {
        self.must.fetch_and(!(1 << broker), Ordering::SeqCst);
    }

    /// The time that a server has to notice is over.
    pub(crate) fn is_gone(&self, broker: usize) {
        self.may.fetch_and(!(1 << broker), Ordering::SeqCst);
    }

    /// A changed topic is about to be sent: how often it was changed now.
    pub(crate) fn changes(&self, broker: usize, topic: usize) -> u32 {
        self.brokers[broker].sent[topic].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// That change was acknowledged.
    pub(crate) fn changed(&self, broker: usize, topic: usize, changes: u32) {
        self.brokers[broker].acknowledged[topic].store(changes, Ordering::SeqCst);
    }

    /// To be taken right before a query leaves.
    pub(crate) fn before(&self, topic: usize) -> Before {
        let mut acknowledged = [0; MOST_BROKERS];
        for (seen, broker) in acknowledged.iter_mut().zip(&self.brokers) {
            *seen = broker.acknowledged[topic].load(Ordering::SeqCst);
        }
        Before { acknowledged, must: self.must.load(Ordering::SeqCst), may: self.may.load(Ordering::SeqCst) }
    }

    /// Judges an answer that has just come.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn check(&self, topic: usize, before: &Before, route: &Route<'_>) -> Result<(), String> {
        // What could be seen at any time between the two moments.
        let may = before.may | self.may.load(Ordering::SeqCst);
        let must = before.must & self.must.load(Ordering::SeqCst);
        let mut listed = 0_u64;
        for broker in &route.brokers {
            let index =
                self.index_of(&broker.name).ok_or_else(|| format!("unknown broker {}", broker.name))?;
            if listed & (1 << index) != 0 {
                return Err(format!("{} is listed twice", broker.name));
            }
            listed |= 1 << index;
            let address = broker.addresses.get("0").map(|address| &**address);
            if broker.addresses.len() != 1 || address != Some(self.brokers[index].address.as_str()) {
                return Err(format!("{} has the addresses {:?}", broker.name, broker.addresses));
            }
        }
        if listed & !may != 0 {
            return Err(format!("lists brokers that are gone: {listed:#b}, allowed {may:#b}"));
        }
        if must & !listed != 0 {
            return Err(format!("lacks brokers: {listed:#b}, needed {must:#b}"));
        }
        let mut with_queues = 0_u64;
        for queue in &route.queues {
            let index = self.index_of(&queue.broker).ok_or_else(|| format!("queues of {}", queue.broker))?;
            with_queues |= 1 << index;
            let newest = self.brokers[index].sent[topic].load(Ordering::SeqCst);
            let mut possible = before.acknowledged[index]..=newest;
            if queue.read != queue.write || !possible.any(|changes| queues_after(changes) == queue.read) {
                return Err(format!(
                    "{} has {} read and {} write queues after {} to {newest} changes",
                    queue.broker, queue.read, queue.write, before.acknowledged[index]
                ));
            }
        }
        if with_queues != listed || route.queues.len() != route.brokers.len() {
            return Err(format!("brokers {listed:#b}, but queues of {with_queues:#b}"));
        }
        Ok(())
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.brokers.iter().position(|broker| broker.name == name)
    }

    /// True when no broker can be listed, so that "no route" is the right answer.
    pub(crate) fn may_be_unknown(&self, before: &Before) -> bool {
        before.must & self.must.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with brokers, and how many more changes than at first each of them shows.
    fn answer(brokers: &[(usize, u32)]) -> String {
        let (mut data, mut queues) = (Vec::new(), Vec::new());
        for &(index, more) in brokers {
            let (name, address) = (names::broker(index), names::broker_address(index));
            let count = queues_after(first_changes(index, 0) + more);
            data.push(format!(r#"{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"{name}"}}"#));
            queues.push(format!(
                r#"{{"brokerName":"{name}","perm":6,"readQueueNums":{count},"writeQueueNums":{count}}}"#
            ));
        }
        format!(r#"{{"brokerDatas":[{}],"queueDatas":[{}]}}"#, data.join(","), queues.join(","))
    }

    fn verdict(truth: &Truth, before: &Before, brokers: &[(usize, u32)]) -> Result<(), String> {
        let text = answer(brokers);
        truth.check(0, before, &Route::parse(text.as_bytes()).unwrap())
    }

    fn two_brokers() -> Truth {
        let truth = Truth::new(2, 1);
        for broker in 0..2 {
            truth.arrives(broker);
            truth.is_there(broker);
        }
        truth
    }

    #[test]
    fn an_answer_must_list_all_brokers_that_are_there() {
        let truth = two_brokers();
        let before = truth.before(0);
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 0)]), Ok(()));
        assert!(verdict(&truth, &before, &[(0, 0)]).is_err());
        assert!(verdict(&truth, &before, &[(0, 0), (0, 0)]).is_err());
    }

    #[test]
    fn a_change_may_be_seen_once_sent_and_must_be_once_acknowledged() {
        let truth = two_brokers();
        let before = truth.before(0);
        assert!(verdict(&truth, &before, &[(0, 0), (1, 1)]).is_err());
        let changes = truth.changes(1, 0);
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 1)]), Ok(()));
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 0)]), Ok(()));
        truth.changed(1, 0, changes);
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 0)]), Ok(()), "the query left before");
        assert!(verdict(&truth, &truth.before(0), &[(0, 0), (1, 0)]).is_err());
    }

    #[test]
    fn a_broker_that_leaves_may_be_listed_until_it_is_gone() {
        let truth = two_brokers();
        truth.leaves(1);
        let before = truth.before(0);
        assert_eq!(verdict(&truth, &before, &[(0, 0)]), Ok(()));
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 0)]), Ok(()));
        truth.is_gone(1);
        assert_eq!(verdict(&truth, &before, &[(0, 0), (1, 0)]), Ok(()), "the query left before");
        assert!(verdict(&truth, &truth.before(0), &[(0, 0), (1, 0)]).is_err());
    }
}
