//! Choosing the queue for a message, and how long to wait for it (B12.2, B13).

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use waypost_net::clock::Millis;
use waypost_rocketmq_wire::code::response;

use crate::faults::{Charge, Faults};
use crate::queue::{Queue, QueueList, QueueRange};

/// The least time for a try, as long as there is that much: a connection across a continent and an answer.
const LEAST_TRY: Duration = Duration::from_millis(200);

/// Goes round the queues of one topic for one caller, from a random start, past brokers that fail.
///
/// Each thread or task that sends has its own, so that nobody waits for another.
#[derive(Clone, Debug)]
pub struct QueuePicker {
    next: u64,
}

impl QueuePicker {
    /// Starts anywhere.
    pub fn new(rng: &mut impl Rng) -> Self {
        Self { next: rng.next_u64() }
    }

    /// The queue for the next message; `None` only if there are no queues.
    ///
    /// `last_broker` is the [`Queue::broker`] of the attempt that just failed; then the round goes on from a random
    /// place (B12.2). The first step that finds a queue ends the search:
    ///
    /// 1. brokers that are well, or due for a trial, but not the last;
    /// 2. brokers that answer, however badly, but not the last;
    /// 3. any but the last, 4. the last: never to send is worse than to try.
    ///
    /// Within each step queues come in turn, and a broker without an address in the route comes only after all.
    pub fn pick(
        &mut self,
        queues: &QueueList,
        faults: &mut Faults,
        now: Millis,
        last_broker: Option<&str>,
        rng: &mut impl Rng,
    ) -> Option<Queue> {
        if last_broker.is_some() {
            self.next = rng.next_u64();
        }
        let other = |range: &QueueRange| range.addressed && last_broker != Some(&*range.broker);
        self.step(queues, |range| other(range) && faults.admit(&range.broker, now))
            .or_else(|| self.pick_bad(queues, last_broker, |broker| faults.is_reachable(broker)))
    }

    /// [`QueuePicker::pick`] by what was held against brokers a moment ago, for a time at which none of them is due for
    /// a trial: nothing is noted, so nobody has to be locked out.
    pub(crate) fn pick_by(
        &mut self,
        queues: &QueueList,
        charges: &Charges,
        last_broker: Option<&str>,
        rng: &mut impl Rng,
    ) -> Option<Queue> {
        if last_broker.is_some() {
            self.next = rng.next_u64();
        }
        let other = |range: &QueueRange| range.addressed && last_broker != Some(&*range.broker);
        self.step(queues, |range| other(range) && charges.get(&range.broker).is_none()).or_else(|| {
            let reachable = |broker: &str| charges.get(broker).is_none_or(|charge| charge.reachable);
            self.pick_bad(queues, last_broker, reachable)
        })
    }

    /// The steps after the first, when no broker is well.
    fn pick_bad(
        &mut self,
        queues: &QueueList,
        last_broker: Option<&str>,
        reachable: impl Fn(&str) -> bool,
    ) -> Option<Queue> {
        let other = |range: &QueueRange| range.addressed && last_broker != Some(&*range.broker);
        self.step(queues, |range| other(range) && reachable(&range.broker))
            .or_else(|| self.step(queues, other))
            .or_else(|| self.step(queues, |range| range.addressed))
            .or_else(|| self.step(queues, |_| true))
    }

    /// The next queue in turn, whatever is known of its broker: for callers without fault tolerance.
    pub fn next(&mut self, queues: &QueueList) -> Option<Queue> {
        self.step(queues, |_| true)
    }

    /// The first queue in turn whose range is accepted. A range that is not is left as a whole, which is the same as
    /// refusing its queues one by one.
    fn step(&mut self, queues: &QueueList, mut accept: impl FnMut(&QueueRange) -> bool) -> Option<Queue> {
        let mut index = self.next.checked_rem(queues.len())?;
        // The range that the search begins in may have been entered in its middle: it is seen again at the end.
        for _ in 0..=queues.ranges().len() {
            let (range, start) = queues.range_at(index)?;
            if accept(range) {
                self.next = index.saturating_add(1);
                return queues.get(index);
            }
            index = start.saturating_add(u64::from(range.count)).checked_rem(queues.len())?;
        }
        None
    }
}

/// What is held against the brokers of one list of queues, as it was when it was collected.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// By broker name; those that are well are not in it.
    brokers: Box<[(Arc<str>, Charge)]>,
    /// When the first of them is due for a trial.
    trial_due: Option<Millis>,
}

impl Charges {
    pub(crate) fn collect(queues: &QueueList, faults: &Faults) -> Self {
        let charged = |range: &QueueRange| Some((Arc::clone(&range.broker), faults.charge(&range.broker)?));
        let mut brokers: Vec<(Arc<str>, Charge)> = queues.ranges().iter().filter_map(charged).collect();
        brokers.sort_by(|(left, _), (right, _)| left.cmp(right));
        brokers.dedup_by(|(left, _), (right, _)| left == right);
        let trial_due = brokers.iter().filter_map(|(_, charge)| charge.trial_due).min();
        Self { brokers: brokers.into_boxed_slice(), trial_due }
    }

    fn get(&self, broker: &str) -> Option<Charge> {
        if self.brokers.is_empty() {
            return None;
        }
        let position = self.brokers.binary_search_by(|(name, _)| (**name).cmp(broker)).ok()?;
        self.brokers.get(position).map(|(_, charge)| *charge)
    }

    /// Whether one of the brokers is due for a trial, so that a choice has to be noted. The time is asked for only if
    /// it matters.
    pub(crate) fn need_a_note(&self, now: impl FnOnce() -> Millis) -> bool {
        self.trial_due.is_some_and(|due| now() >= due)
    }
}

/// The queue for the key whose hash is `hash` (see [`key_hash`]): always the same while the queues are the same. A
/// broker that fails does not move keys elsewhere, which would break their order (B12.2, B13).
#[must_use]
pub fn pick_by_key(queues: &QueueList, hash: i32) -> Option<Queue> {
    let count = i64::try_from(queues.len()).ok()?;
    queues.get(i64::from(hash).checked_rem(count)?.unsigned_abs())
}

/// The hash of a text that Java computes, over its UTF-16 units; with it keys stay on the queues that Java's
/// selector by hash gives them.
#[must_use]
pub fn key_hash(key: &str) -> i32 {
    key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Whether a message whose attempt got this error code should be sent to another broker (B13).
#[must_use]
pub fn is_retryable(code: i32) -> bool {
    /// The broker cannot serve at present.
    const SERVICE_NOT_AVAILABLE: i32 = 14;
    /// The consumer group has no member that buys.
    const NO_BUYER_ID: i32 = 204;
    /// The queue belongs to another unit.
    const NOT_IN_CURRENT_UNIT: i32 = 205;
    matches!(
        code,
        response::SYSTEM_ERROR
            | response::SYSTEM_BUSY
            | SERVICE_NOT_AVAILABLE
            | response::NO_PERMISSION
            | response::TOPIC_NOT_EXIST
            | NO_BUYER_ID
            | NOT_IN_CURRENT_UNIT
            | response::GO_AWAY
    )
}

/// How long the next attempt may take when `remaining` of the caller's time is left and `attempts_left` attempts
/// (this one included) may be made.
///
/// The last attempt has all that is left; each before it half, so that a broker that hangs leaves time for another
/// (B13: the original gives the first attempt everything, and then never makes a second). A try is not cut
/// below 200 ms unless less is left.
#[must_use]
pub fn per_try_budget(remaining: Duration, attempts_left: u32) -> Duration {
    if attempts_left <= 1 { remaining } else { (remaining / 2).max(LEAST_TRY).min(remaining) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::faults::Outcome;
    use crate::probes::ProbeOutcome;

    const NOW: Millis = Millis::new(1_000_000);

    fn queues(brokers: &[(&str, u32, bool)]) -> QueueList {
        let range = |&(broker, count, addressed): &(&str, u32, bool)| QueueRange {
            broker: broker.into(),
            logical: None,
            first: 0,
            count,
            addressed,
        };
        QueueList::new(brokers.iter().map(range).collect())
    }

    fn three() -> QueueList {
        queues(&[("a", 4, true), ("b", 2, true), ("c", 3, true)])
    }

    fn tally(list: &QueueList, faults: &mut Faults, last: Option<&str>) -> BTreeMap<(String, i32), u32> {
        let mut rng = StdRng::seed_from_u64(1);
        let mut picker = QueuePicker::new(&mut rng);
        let mut tally = BTreeMap::new();
        for _ in 0..900 {
            let queue = picker.pick(list, faults, NOW, last, &mut rng).unwrap();
            *tally.entry((queue.broker.to_string(), queue.id)).or_default() += 1;
        }
        tally
    }

    fn brokers(tally: &BTreeMap<(String, i32), u32>) -> Vec<&str> {
        let mut names: Vec<&str> = tally.keys().map(|(broker, _)| broker.as_str()).collect();
        names.dedup();
        names
    }

    #[test]
    fn well_queues_get_equal_shares() {
        let mut faults = Faults::default();
        let all = tally(&three(), &mut faults, None);
        assert!(all.len() == 9 && all.values().all(|&count| count == 100), "{all:?}");
        // Without one broker the others' queues still do.
        faults.report("b", Outcome::TransportError, NOW);
        let rest = tally(&three(), &mut faults, None);
        assert_eq!(brokers(&rest), ["a", "c"]);
        assert!(rest.values().all(|&count| (128..=129).contains(&count)), "{rest:?}");
    }

    #[test]
    fn pickers_start_at_random_places() {
        let list = three();
        let first = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            QueuePicker::new(&mut rng).next(&list).unwrap()
        };
        let starts: std::collections::BTreeSet<Queue> = (0..200).map(first).collect();
        assert_eq!(starts.len(), 9);
    }

    #[test]
    fn a_retry_avoids_the_broker_that_failed_if_there_is_another() {
        let mut faults = Faults::default();
        assert_eq!(brokers(&tally(&three(), &mut faults, Some("a"))), ["b", "c"]);
        let one = queues(&[("a", 2, true)]);
        assert_eq!(brokers(&tally(&one, &mut faults, Some("a"))), ["a"]);
        // Even if the other is known to be bad.
        let two = queues(&[("a", 2, true), ("b", 2, true)]);
        faults.report("b", Outcome::TransportError, NOW);
        assert_eq!(brokers(&tally(&two, &mut faults, Some("a"))), ["b"]);
    }

    #[test]
    fn one_failure_is_enough_to_be_avoided_at_once() {
        let mut faults = Faults::default();
        faults.report("a", Outcome::TransportError, NOW);
        assert_eq!(brokers(&tally(&three(), &mut faults, None)), ["b", "c"]);
    }

    #[test]
    fn brokers_that_answer_badly_come_before_those_that_do_not_answer() {
        let mut faults = Faults::default();
        faults.report("a", Outcome::TransportError, NOW);
        faults.report("b", Outcome::BrokerError { code: 2 }, NOW);
        faults.report("c", Outcome::TimedOut { limit: Duration::from_secs(3) }, NOW);
        assert_eq!(brokers(&tally(&three(), &mut faults, None)), ["b"]);
        assert_eq!(brokers(&tally(&three(), &mut faults, Some("b"))), ["a", "c"]);
    }

    #[test]
    fn something_is_chosen_even_if_all_are_bad() {
        let mut faults = Faults::default();
        for broker in ["a", "b", "c"] {
            faults.report(broker, Outcome::TransportError, NOW);
        }
        assert_eq!(tally(&three(), &mut faults, None).len(), 9);
        let mut rng = StdRng::seed_from_u64(1);
        let mut picker = QueuePicker::new(&mut rng);
        assert_eq!(picker.pick(&QueueList::default(), &mut faults, NOW, None, &mut rng), None);
    }

    #[test]
    fn choices_by_collected_charges_are_those_that_the_faults_give() {
        let list = queues(&[("a", 4, true), ("b", 2, true), ("c", 3, true), ("d", 2, false)]);
        let outcomes = [
            None,
            Some(Outcome::TransportError),
            Some(Outcome::BrokerError { code: 2 }),
            Some(Outcome::TimedOut { limit: Duration::from_secs(3) }),
        ];
        for (a, b, c) in (0..64).map(|number: usize| (number % 4, number / 4 % 4, number / 16)) {
            let mut faults = Faults::default();
            for (broker, outcome) in [("a", outcomes[a]), ("b", outcomes[b]), ("c", outcomes[c])] {
                if let Some(outcome) = outcome {
                    faults.report(broker, outcome, NOW);
                }
            }
            let charges = Charges::collect(&list, &faults);
            assert!(!charges.need_a_note(|| NOW));
            for last in [None, Some("a"), Some("b"), Some("c"), Some("d")] {
                let (mut left, mut right) = (StdRng::seed_from_u64(1), StdRng::seed_from_u64(1));
                let mut direct = QueuePicker::new(&mut left);
                let mut collected = QueuePicker::new(&mut right);
                for _ in 0..20 {
                    let expected = direct.pick(&list, &mut faults, NOW, last, &mut left);
                    assert_eq!(collected.pick_by(&list, &charges, last, &mut right), expected, "{a} {b} {c}");
                }
            }
        }
    }

    #[test]
    fn a_choice_is_noted_from_the_moment_on_that_a_broker_is_due_for_a_trial() {
        let mut faults = Faults::default();
        faults.report("b", Outcome::TransportError, NOW);
        faults.report("elsewhere", Outcome::BrokerError { code: 2 }, Millis::ZERO);
        let charges = Charges::collect(&three(), &faults);
        let due = NOW.after(faults.policy().avoided_for(faults.policy().failure_latency));
        assert!(!charges.need_a_note(|| Millis::new(due.get() - 1)));
        assert!(charges.need_a_note(|| due));
        assert!(faults.admit("b", due) && !faults.admit("b", due));
        let charges = Charges::collect(&three(), &faults);
        assert!(!charges.need_a_note(|| due), "one choice goes there, and its outcome decides");
    }

    #[test]
    fn every_change_that_choices_must_see_is_counted() {
        use std::sync::atomic::Ordering;
        let mut faults = Faults::default();
        let changes = faults.changes();
        let mut seen = 0;
        let mut counted = |what: &str, expected: bool| {
            let number = changes.load(Ordering::Relaxed);
            assert_eq!(number != seen, expected, "{what}");
            seen = number;
        };
        let well = Outcome::Success { latency: Duration::from_millis(1) };
        faults.report("a", well, NOW);
        counted("a success of a broker that is well", false);
        faults.report("a", Outcome::TransportError, NOW);
        counted("a failure", true);
        assert!(!faults.admit("a", NOW));
        counted("a refused choice", false);
        let answered = ProbeOutcome::Answered { code: 0, latency: Duration::from_millis(1) };
        faults.probe_result("a", answered, NOW);
        counted("a good probe", true);
        assert!(faults.admit("a", NOW));
        counted("a trial", true);
        faults.report("a", well, NOW.after(Duration::from_millis(1)));
        counted("a recovery", true);
    }

    #[test]
    fn queues_without_an_address_come_last() {
        let mut faults = Faults::default();
        faults.report("a", Outcome::TransportError, NOW);
        let list = queues(&[("a", 1, true), ("b", 8, false)]);
        assert_eq!(brokers(&tally(&list, &mut faults, None)), ["a"]);
        assert_eq!(brokers(&tally(&queues(&[("b", 8, false)]), &mut faults, None)), ["b"]);
    }

    #[test]
    fn keys_stay_where_java_puts_them() {
        // "abc".hashCode() is 96354, "polygenelubricants".hashCode() is the least integer.
        assert_eq!(key_hash("abc"), 96_354);
        assert_eq!(key_hash("polygenelubricants"), i32::MIN);
        assert_eq!(key_hash("\u{1f600}"), 1_772_899);
        let list = three();
        assert_eq!(pick_by_key(&list, 96_354), list.get(0));
        assert_eq!(pick_by_key(&list, i32::MIN), list.get(2));
        assert_eq!(pick_by_key(&list, -1), list.get(1));
        assert_eq!(pick_by_key(&QueueList::default(), 1), None);
    }

    #[test]
    fn a_hung_broker_leaves_time_for_another() {
        let ms = Duration::from_millis;
        assert_eq!(per_try_budget(ms(3_000), 3), ms(1_500));
        assert_eq!(per_try_budget(ms(1_500), 2), ms(750));
        assert_eq!(per_try_budget(ms(750), 1), ms(750));
        assert_eq!(per_try_budget(ms(300), 2), ms(200));
        assert_eq!(per_try_budget(ms(100), 2), ms(100));
        assert_eq!(per_try_budget(ms(100), 0), ms(100));
    }

    #[test]
    fn the_retryable_codes_are_the_published_ones() {
        let retryable: Vec<i32> = (-1..2_000).filter(|&code| is_retryable(code)).collect();
        assert_eq!(retryable, [1, 2, 14, 16, 17, 204, 205, 1500]);
    }
}
