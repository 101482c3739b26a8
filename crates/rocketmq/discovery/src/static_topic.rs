//! Static topics: queues that keep their number when they move to another broker (B9).

use std::collections::BTreeMap;
use std::sync::Arc;

use waypost_rocketmq_wire::body::TopicQueueMapping;

use crate::names::Names;
use crate::queue::QueueRange;

/// The broker group of a logical queue that no mapping owns. It never has an address.
pub const UNOWNED: &str = "__syslo__none__";

/// What the broker name of a logical queue begins with.
pub const LOGICAL_PREFIX: &str = "__syslo__";

/// The scope of topics that are not confined to one.
const GLOBAL_SCOPE: &str = "__global__";

/// The broker name that the logical queues of `scope` have (B9 step 5).
#[must_use]
pub fn mock_name(scope: &str) -> String {
    if scope == GLOBAL_SCOPE {
        // Its own leading underscores are not repeated.
        return String::from("__syslo__global__");
    }
    format!("{LOGICAL_PREFIX}{scope}")
}

/// The logical queues of the mappings, by scope and then by number (B9).
///
/// The original orders the queues of several scopes by number alone. Here scopes stay together, so that a total
/// which a peer only claims costs no memory; topics have one scope.
pub(crate) fn logical_queues(
    mappings: &BTreeMap<String, TopicQueueMapping>,
    names: &mut Names,
    has_address: impl Fn(&str) -> bool,
) -> Vec<QueueRange> {
    let mut scopes: BTreeMap<&str, Vec<(&str, &TopicQueueMapping)>> = BTreeMap::new();
    for (broker, mapping) in mappings {
        if let Some(scope) = &mapping.scope {
            scopes.entry(scope).or_default().push((broker, mapping));
        }
    }
    let mut ranges = Vec::new();
    for (scope, mut entries) in scopes {
        entries.sort_by_key(|(_, mapping)| std::cmp::Reverse(mapping.epoch));
        let total = total_queues(&entries);
        let logical = names.share(&mock_name(scope));
        let mut run = Run { logical, ranges: &mut ranges, next: 0 };
        for (id, owner) in owners(&entries).range(0..total) {
            run.unowned_until(*id, names);
            run.push(names.share(owner.0), *id, 1, has_address(owner.0));
        }
        run.unowned_until(total, names);
    }
    ranges
}

/// The largest total of the entries, but for those of an impossible epoch (B9 step 2).
fn total_queues(entries: &[(&str, &TopicQueueMapping)]) -> i32 {
    let valid = entries.iter().filter(|(_, mapping)| mapping.epoch >= -1);
    valid.map(|(_, mapping)| mapping.total_queues).max().unwrap_or_default().max(0)
}

/// Who owns each logical queue: the newest epoch, of equal ones the last (B9 step 3).
fn owners<'a>(entries: &[(&'a str, &'a TopicQueueMapping)]) -> BTreeMap<i32, (&'a str, i64)> {
    let mut owners: BTreeMap<i32, (&str, i64)> = BTreeMap::new();
    for (broker, mapping) in entries {
        let name = mapping.bname.as_deref().unwrap_or(broker);
        for logical in mapping.curr_id_map.keys() {
            let owner = owners.entry(*logical).or_insert((name, mapping.epoch));
            if owner.1 <= mapping.epoch {
                *owner = (name, mapping.epoch);
            }
        }
    }
    owners
}

/// Joins queues of one owner with consecutive numbers.
struct Run<'a> {
    logical: Arc<str>,
    ranges: &'a mut Vec<QueueRange>,
    /// The number that follows what was pushed.
    next: i32,
}

impl Run<'_> {
    fn unowned_until(&mut self, id: i32, names: &mut Names) {
        let missing = u32::try_from(id.saturating_sub(self.next)).unwrap_or_default();
        if missing > 0 {
            self.push(names.share(UNOWNED), self.next, missing, false);
        }
    }

    fn push(&mut self, broker: Arc<str>, first: i32, count: u32, addressed: bool) {
        self.next = first.saturating_add_unsigned(count);
        if let Some(last) = self.ranges.last_mut() {
            let follows = last.first.checked_add_unsigned(last.count) == Some(first);
            if follows && last.broker == broker && last.logical.as_ref() == Some(&self.logical) {
                last.count = last.count.saturating_add(count);
                return;
            }
        }
        let logical = Some(Arc::clone(&self.logical));
        self.ranges.push(QueueRange { broker, logical, first, count, addressed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(
        broker: &str,
        scope: Option<&str>,
        total: i32,
        epoch: i64,
        ids: &[i32],
    ) -> (String, TopicQueueMapping) {
        let mapping = TopicQueueMapping {
            bname: Some(broker.to_owned()),
            scope: scope.map(str::to_owned),
            total_queues: total,
            epoch,
            curr_id_map: ids.iter().map(|&id| (id, id ^ 7)).collect(),
            ..TopicQueueMapping::default()
        };
        (broker.to_owned(), mapping)
    }

    fn queues(
        mappings: impl IntoIterator<Item = (String, TopicQueueMapping)>,
    ) -> Vec<(String, i32, u32, bool)> {
        let mappings = mappings.into_iter().collect();
        logical_queues(&mappings, &mut Names::default(), |broker| broker != "c")
            .into_iter()
            .map(|range| (range.broker.to_string(), range.first, range.count, range.addressed))
            .collect()
    }

    #[test]
    fn the_newest_epoch_owns_a_queue_and_gaps_are_unowned() {
        let all = queues([
            mapping("a", Some(GLOBAL_SCOPE), 8, 1, &[0, 1, 2, 3]),
            mapping("b", Some(GLOBAL_SCOPE), 8, 2, &[2, 3]),
            mapping("c", Some(GLOBAL_SCOPE), 6, 2, &[6]),
            mapping("d", None, 99, 9, &[0]),
        ]);
        let expected = [("a", 0, 2, true), ("b", 2, 2, true), (UNOWNED, 4, 2, false), ("c", 6, 1, false)]
            .into_iter()
            .chain([(UNOWNED, 7, 1, false)]);
        assert_eq!(
            all,
            expected.map(|(b, first, n, addressed)| (b.into(), first, n, addressed)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn of_equal_epochs_the_last_owns() {
        let all = queues([mapping("a", Some("s"), 1, 3, &[0]), mapping("b", Some("s"), 1, 3, &[0])]);
        assert_eq!(all, [("b".to_owned(), 0, 1, true)]);
    }

    #[test]
    fn numbers_outside_the_total_and_a_huge_total_do_no_harm() {
        let all = queues([mapping("a", Some("s"), i32::MAX, 1, &[-4, 0, i32::MAX])]);
        let unowned = u32::try_from(i32::MAX).unwrap() - 1;
        assert_eq!(all, [("a".to_owned(), 0, 1, true), (UNOWNED.to_owned(), 1, unowned, false)]);
        assert!(queues([mapping("a", Some("s"), -5, 1, &[0])]).is_empty());
        assert!(queues([mapping("a", Some("s"), 5, -2, &[0])]).is_empty());
    }

    #[test]
    fn mock_names_are_those_of_the_original() {
        assert_eq!(mock_name("__global__"), "__syslo__global__");
        assert_eq!(mock_name("zone1"), "__syslo__zone1");
    }
}
