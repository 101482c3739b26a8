use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Millis {
    Millis::new(1_000_000 + seconds * 1_000)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn success(milliseconds: u64) -> Outcome {
    Outcome::Success { latency: ms(milliseconds) }
}

#[test]
fn thresholds_are_the_published_ones() {
    let policy = FaultPolicy::default();
    let table = [
        (0, 0),
        (49, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (10_000, 10_000),
        (15_000, 30_000),
        (900_000, 30_000),
    ];
    for (latency, avoided) in table {
        assert_eq!(policy.avoided_for(ms(latency)), ms(avoided), "{latency} ms");
    }
    let old = FaultPolicy { thresholds: OLD_THRESHOLDS.to_vec(), failure_latency: 30 * SECOND, ..policy };
    assert_eq!(old.avoided_for(old.failure_latency), 600 * SECOND);
    assert_eq!(old.slow_from(), ms(550));
}

#[test]
fn unknown_brokers_are_well() {
    let mut faults = Faults::default();
    assert_eq!(faults.standing("a", at(0)), Standing::Well);
    assert!(faults.admit("a", at(0)) && faults.is_reachable("a"));
}

#[test]
fn each_outcome_counts_as_published_or_better() {
    let table = [
        (success(5), Standing::Well, true),
        (success(600), Standing::Avoided, true),
        (Outcome::ClientError, Standing::Well, true),
        (Outcome::TransportError, Standing::Avoided, false),
        (Outcome::TimedOut { limit: SECOND }, Standing::Avoided, false),
        (Outcome::BrokerError { code: 1 }, Standing::Avoided, true),
        (Outcome::BrokerError { code: 2 }, Standing::Avoided, true),
        (Outcome::BrokerError { code: 14 }, Standing::Avoided, true),
        (Outcome::BrokerError { code: 1500 }, Standing::Avoided, true),
        (Outcome::BrokerError { code: 16 }, Standing::Well, true),
        (Outcome::BrokerError { code: 17 }, Standing::Well, true),
        (Outcome::BrokerError { code: 204 }, Standing::Well, true),
    ];
    for (outcome, standing, reachable) in table {
        let mut faults = Faults::default();
        faults.report("a", outcome, at(0));
        assert_eq!(
            (faults.standing("a", at(0)), faults.is_reachable("a")),
            (standing, reachable),
            "{outcome:?}"
        );
    }
}

#[test]
fn while_nobody_probes_the_time_gives_one_trial() {
    let mut faults = Faults::default();
    faults.report("a", success(600), at(0));
    assert!(!faults.admit("a", at(1)));
    assert_eq!(faults.standing("a", at(2)), Standing::OnTrial);
    assert!(faults.admit("a", at(2)));
    assert!(!faults.admit("a", at(2)), "a second choice before the first one's outcome");
    faults.report("a", success(5), at(3));
    assert_eq!(faults.standing("a", at(3)), Standing::Well);
}

#[test]
fn an_avoidance_is_never_shortened_by_another() {
    let mut faults = Faults::default();
    faults.report("a", Outcome::TransportError, at(0));
    faults.report("a", success(600), at(1));
    assert_eq!(faults.standing("a", at(9)), Standing::Avoided);
    assert_eq!(faults.standing("a", at(10)), Standing::OnTrial);
}

#[test]
fn failed_trials_and_relapses_wait_longer_each_time() {
    let mut faults = Faults::default();
    let mut now = 0;
    faults.report("a", Outcome::TransportError, at(now));
    let mut waits = Vec::new();
    for _ in 0..6 {
        let begun = now;
        while !faults.admit("a", at(now)) {
            now += 1;
        }
        waits.push(now - begun);
        faults.report("a", Outcome::TimedOut { limit: Duration::ZERO }, at(now));
    }
    // Without probes the avoidance itself, 10 s, comes first.
    assert_eq!(waits, [10, 10, 10, 10, 16, 30]);
    faults.report("a", success(0), at(now));
    faults.report("a", Outcome::TransportError, at(now + 31));
    assert_eq!(faults.standing("a", at(now + 41)), Standing::OnTrial, "an illness after 30 s is a new one");
}

#[test]
fn outcomes_of_attempts_from_before_change_nothing() {
    let mut faults = Faults::default();
    faults.report("a", Outcome::TransportError, at(10));
    // It began at 9.9 s.
    faults.report("a", success(400), Millis::new(at(10).get() + 300));
    assert_eq!(faults.standing("a", at(11)), Standing::Avoided);
    faults.report("a", success(400), at(11));
    assert_eq!(faults.standing("a", at(11)), Standing::Well);
    // It began at 9 s.
    faults.report("a", Outcome::TimedOut { limit: 3 * SECOND }, at(12));
    faults.report("a", success(3_000), at(12));
    assert_eq!(faults.standing("a", at(12)), Standing::Well);
    faults.report("a", Outcome::TimedOut { limit: SECOND }, at(12));
    assert_eq!(faults.standing("a", at(12)), Standing::Avoided);
}

#[test]
fn a_trial_that_nobody_reports_is_over_after_ten_seconds() {
    let mut faults = Faults::default();
    faults.report("a", Outcome::TransportError, at(0));
    assert!(faults.admit("a", at(10)));
    assert!(!faults.admit("a", at(19)));
    assert!(faults.admit("a", at(20)));
}

#[test]
fn health_shows_every_broker() {
    let mut faults = Faults::default();
    faults.report("b", Outcome::TransportError, at(3));
    faults.report("a", success(7), at(4));
    let health: Vec<BrokerHealth> = faults.health(at(5)).collect();
    let expected = [("a", Standing::Well, true, 7, at(4)), ("b", Standing::Avoided, false, 10_000, at(3))];
    let expected = expected.map(|(broker, standing, reachable, latency, since)| BrokerHealth {
        broker: broker.into(),
        standing,
        reachable,
        latency: ms(latency),
        since,
    });
    assert_eq!(health, expected);
}
