//! Callers, brokers and probes in simulated time: which brokers choices fall on while some of them fail.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use waypost_net::clock::Millis;
use waypost_rocketmq_discovery::brokers::Brokers;
use waypost_rocketmq_discovery::faults::{Faults, Outcome, Standing};
use waypost_rocketmq_discovery::picker::QueuePicker;
use waypost_rocketmq_discovery::probes::{PROBE_TICK, ProbeOutcome};
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_wire::body::{BrokerData, QueueData, TopicRouteData};

const SEEDS: u64 = 20;

/// What a broker does with a request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    /// Answers after so many milliseconds.
    Answer(u64),
    /// The process is stopped or the machine is gone.
    Nothing,
    /// The process is dead.
    Refuse,
}

/// What a broker does with messages and with probes, from a time on.
type Script = BTreeMap<u64, (Does, Does)>;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    Choice { retry_after: Option<String> },
    Report { broker: String, outcome: Told },
    Result { broker: String, outcome: Told },
}

/// An outcome that can be put in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Answered(u64),
    TimedOut(u64),
    Refused,
}

struct Simulation {
    rng: StdRng,
    scripts: BTreeMap<String, Script>,
    route: TopicRoute,
    brokers: Brokers,
    faults: Faults,
    picker: QueuePicker,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    now: u64,
    /// Milliseconds between choices; none are made if `None`.
    choice_period: Option<u64>,
    /// How long a caller waits for one attempt.
    try_limit: u64,
    reports_successes: bool,
    /// Every choice: when, and whom it fell on.
    choices: Vec<(u64, String)>,
    probes: u64,
}

fn route(names: &[&str]) -> TopicRoute {
    let group = |name: &&str| BrokerData {
        broker_name: (*name).into(),
        broker_addrs: [(0, format!("{name}:10911"))].into(),
        ..BrokerData::default()
    };
    let queues = |name: &&str| QueueData {
        broker_name: (*name).into(),
        read_queue_nums: 8,
        write_queue_nums: 8,
        perm: 6,
        topic_sys_flag: 0,
    };
    TopicRoute::from(TopicRouteData {
        broker_datas: names.iter().map(group).collect(),
        queue_datas: names.iter().map(queues).collect(),
        ..TopicRouteData::default()
    })
}

impl Simulation {
    /// Four brokers that answer after 3 ms, 100 choices a second, 3 s for each attempt.
    fn new(seed: u64) -> Self {
        let names = ["a", "b", "c", "d"];
        let route = route(&names);
        let mut brokers = Brokers::default();
        brokers.replace(&"T".into(), None, Some(&route));
        let mut rng = StdRng::seed_from_u64(seed);
        let picker = QueuePicker::new(&mut rng);
        let well = (Does::Answer(3), Does::Answer(2));
        Self {
            rng,
            scripts: names.map(|name| (name.to_owned(), Script::from([(0, well)]))).into(),
            route,
            brokers,
            faults: Faults::default(),
            picker,
            events: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            choice_period: Some(10),
            try_limit: 3_000,
            reports_successes: true,
            choices: Vec::new(),
            probes: 0,
        }
    }

    fn from(&mut self, time: u64, broker: &str, messages: Does, probes: Does) {
        self.scripts.get_mut(broker).unwrap().insert(time, (messages, probes));
    }

    fn push(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// When an attempt that begins now ends, and how. A broker that is well again answers what waited.
    fn attempt(&self, broker: &str, probe: bool, limit: u64) -> (u64, Told) {
        let script = &self.scripts[broker];
        let pick = |does: &(Does, Does)| if probe { does.1 } else { does.0 };
        let now_does = script.range(..=self.now).next_back().map(|(_, does)| pick(does)).unwrap();
        let end = match now_does {
            Does::Refuse => return (self.now + 1, Told::Refused),
            Does::Answer(latency) => self.now + latency,
            Does::Nothing => {
                let mut later = script.range(self.now + 1..);
                later
                    .find_map(|(&time, does)| match pick(does) {
                        Does::Answer(latency) => Some(time + latency),
                        Does::Nothing | Does::Refuse => None,
                    })
                    .unwrap_or(u64::MAX)
            }
        };
        let latency = end - self.now;
        if latency > limit {
            return (self.now + limit, Told::TimedOut(limit));
        }
        (end, Told::Answered(latency))
    }

    fn run_until(&mut self, end: u64) {
        if self.sequence == 0 {
            self.push(self.now, Event::Tick);
            if self.choice_period.is_some() {
                self.push(self.now, Event::Choice { retry_after: None });
            }
        }
        while self.events.peek().is_some_and(|Reverse((time, ..))| *time <= end) {
            let Some(Reverse((time, _, event))) = self.events.pop() else { break };
            self.now = time;
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        let now = Millis::new(self.now);
        match event {
            Event::Tick => {
                for probe in self.faults.due_probes(&self.brokers, now, &mut self.rng) {
                    assert_eq!((&*probe.topic, probe.queue_id), ("T", 0));
                    assert_eq!(probe.address, format!("{}:10911", probe.broker));
                    let limit = u64::try_from(probe.limit.as_millis()).unwrap();
                    let (time, outcome) = self.attempt(&probe.broker, true, limit);
                    self.probes += 1;
                    self.push(time, Event::Result { broker: probe.broker.to_string(), outcome });
                }
                let tick = u64::try_from(PROBE_TICK.as_millis()).unwrap();
                self.push(self.now + tick, Event::Tick);
            }
            Event::Choice { retry_after } => {
                let last = retry_after.as_deref();
                let queues = self.route.publish();
                let queue = self.picker.pick(queues, &mut self.faults, now, last, &mut self.rng).unwrap();
                let (time, outcome) = self.attempt(&queue.broker, false, self.try_limit);
                self.choices.push((self.now, queue.broker.to_string()));
                self.push(time, Event::Report { broker: queue.broker.to_string(), outcome });
                if let (None, Some(period)) = (last, self.choice_period) {
                    self.push(self.now + period, Event::Choice { retry_after: None });
                }
            }
            Event::Report { broker, outcome } => {
                let (outcome, failed) = match outcome {
                    Told::Answered(latency) => {
                        (Outcome::Success { latency: Duration::from_millis(latency) }, false)
                    }
                    Told::TimedOut(limit) => {
                        (Outcome::TimedOut { limit: Duration::from_millis(limit) }, true)
                    }
                    Told::Refused => (Outcome::TransportError, true),
                };
                if failed || self.reports_successes {
                    self.faults.report(&broker, outcome, now);
                }
                if failed {
                    self.push(self.now, Event::Choice { retry_after: Some(broker) });
                }
            }
            Event::Result { broker, outcome } => {
                let outcome = match outcome {
                    Told::Answered(latency) => {
                        ProbeOutcome::Answered { code: 0, latency: Duration::from_millis(latency) }
                    }
                    Told::TimedOut(_) => ProbeOutcome::TimedOut,
                    Told::Refused => ProbeOutcome::Failed,
                };
                self.faults.probe_result(&broker, outcome, now);
            }
        }
    }

    /// The share of the choices between the times that fell on one of `brokers`.
    fn share(&self, from: u64, to: u64, brokers: &[&str]) -> f64 {
        let within = || self.choices.iter().filter(|(time, _)| (from..to).contains(time));
        let hits = within().filter(|(_, broker)| brokers.contains(&broker.as_str())).count();
        hits as f64 / within().count().max(1) as f64
    }

    fn standing(&self, broker: &str) -> Standing {
        self.faults.standing(broker, Millis::new(self.now))
    }
}

/// The bar: one of four stopped, one that answers after 5 s, at most 2 % of the choices after the first 10 s.
#[test]
fn choices_leave_a_stopped_and_a_slow_broker() {
    // The slow one's probes are slow as well, or only its messages are.
    for slow_probe in [Does::Answer(5_000), Does::Answer(300), Does::Answer(2)] {
        // Callers give up before the slow answer, or after it, or hardly ever.
        for try_limit in [1_000, 3_000, 6_000, 60_000] {
            for seed in 0..SEEDS {
                let mut simulation = Simulation::new(seed);
                simulation.try_limit = try_limit;
                simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
                simulation.from(5_000, "c", Does::Answer(5_000), slow_probe);
                simulation.run_until(125_000);
                let share = simulation.share(15_000, 125_000, &["b", "c"]);
                assert!(
                    share <= 0.02,
                    "{:.2} % of the choices, seed {seed}, limit {try_limit} ms, {slow_probe:?}",
                    share * 100.0
                );
                assert!(simulation.share(20_000, 125_000, &["a"]) > 0.45, "the well ones share the rest");
            }
        }
    }
}

#[test]
fn a_stopped_broker_gets_no_choice_at_all_once_it_is_known() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
        simulation.run_until(300_000);
        assert_eq!(simulation.share(8_500, 300_000, &["b"]), 0.0, "seed {seed}");
    }
}

#[test]
fn a_killed_broker_gets_no_second_choice() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.from(5_000, "b", Does::Refuse, Does::Refuse);
        simulation.run_until(60_000);
        let choices = simulation.choices.iter().filter(|(time, broker)| *time >= 5_000 && broker == "b");
        assert!(choices.count() <= 1, "seed {seed}");
    }
}

/// The other bar: nobody chooses anything, and a broker that stops or dies is known within 15 s.
#[test]
fn a_silent_queue_does_not_hide_a_dead_broker() {
    for fault in [Does::Nothing, Does::Refuse, Does::Answer(5_000)] {
        for seed in 0..SEEDS {
            let stop = 20_000 + seed * 431;
            let mut simulation = Simulation::new(seed);
            simulation.choice_period = None;
            simulation.from(stop, "b", fault, fault);
            simulation.run_until(stop);
            assert_eq!(simulation.standing("b"), Standing::Well);
            simulation.run_until(stop + 15_000);
            assert_eq!(simulation.standing("b"), Standing::Avoided, "{fault:?}, seed {seed}");
            assert_eq!(simulation.standing("a"), Standing::Well);
        }
    }
}

/// Traffic ends at the moment of the fault, so that the last report is as fresh as can be.
#[test]
fn a_broker_that_stops_right_after_a_report_is_found_in_time() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.from(20_000, "b", Does::Nothing, Does::Nothing);
        simulation.run_until(19_990);
        simulation.events.clear();
        simulation.push(20_000, Event::Tick);
        simulation.run_until(35_000);
        assert_eq!(simulation.standing("b"), Standing::Avoided, "seed {seed}");
    }
}

#[test]
fn a_broker_that_is_well_again_soon_has_its_share() {
    for (fault, slow_probe) in [(Does::Nothing, Does::Nothing), (Does::Answer(5_000), Does::Answer(5_000))] {
        for seed in 0..SEEDS {
            let mut simulation = Simulation::new(seed);
            simulation.from(5_000, "b", fault, slow_probe);
            simulation.from(65_000, "b", Does::Answer(3), Does::Answer(2));
            simulation.run_until(100_000);
            let share = simulation.share(70_000, 100_000, &["b"]);
            assert!((0.24..0.26).contains(&share), "{share}, {fault:?}, seed {seed}");
        }
    }
}

#[test]
fn a_broker_far_away_is_not_lost_for_good() {
    for latency in [150, 400, 900] {
        for seed in 0..SEEDS {
            let mut simulation = Simulation::new(seed);
            simulation.from(0, "b", Does::Answer(latency), Does::Answer(latency));
            simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
            simulation.from(10_000, "b", Does::Answer(latency), Does::Answer(latency));
            simulation.run_until(100_000);
            let choices = simulation.choices.iter().filter(|(time, broker)| *time > 50_000 && broker == "b");
            assert!(choices.count() > 0, "{latency} ms, seed {seed}");
        }
    }
}

#[test]
fn with_every_broker_stopped_choices_go_on_and_the_first_to_come_back_gets_them() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        for broker in ["a", "b", "c", "d"] {
            simulation.from(5_000, broker, Does::Nothing, Does::Nothing);
        }
        simulation.from(30_000, "c", Does::Answer(3), Does::Answer(2));
        simulation.run_until(60_000);
        let first_tries =
            simulation.choices.iter().filter(|(time, _)| (20_000..30_000).contains(time)).count();
        assert!(first_tries >= 1_000, "a choice is never refused");
        assert!(simulation.share(20_000, 30_000, &["c"]) > 0.2);
        let share = simulation.share(33_000, 60_000, &["c"]);
        assert!(share > 0.98, "{share}, seed {seed}");
    }
}

#[test]
fn callers_that_report_only_failures_get_brokers_back() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.reports_successes = false;
        simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
        simulation.from(20_000, "b", Does::Answer(3), Does::Answer(2));
        simulation.run_until(70_000);
        let share = simulation.share(40_000, 70_000, &["b"]);
        assert!(share > 0.24, "{share}, seed {seed}");
    }
}

#[test]
fn busy_callers_spare_brokers_the_probes() {
    let mut simulation = Simulation::new(1);
    simulation.run_until(60_000);
    assert!(simulation.probes <= 4, "{} probes beside traffic", simulation.probes);
    let mut simulation = Simulation::new(1);
    simulation.choice_period = None;
    simulation.run_until(60_000);
    assert!((36..=52).contains(&simulation.probes), "{} probes of four idle brokers", simulation.probes);
}

#[test]
fn a_master_at_another_address_is_another_broker() {
    let mut simulation = Simulation::new(1);
    simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
    simulation.run_until(20_000);
    assert_eq!(simulation.standing("b"), Standing::Avoided);
    let mut moved = simulation.route.to_wire();
    moved.broker_datas[1].broker_addrs = [(0, "other:10911".to_owned())].into();
    let moved = TopicRoute::from(moved);
    simulation.brokers.replace(&"T".into(), Some(&simulation.route), Some(&moved));
    let now = Millis::new(simulation.now);
    simulation.faults.due_probes(&simulation.brokers, now, &mut simulation.rng);
    assert_eq!(simulation.standing("b"), Standing::OnTrial);
}

#[test]
fn records_of_brokers_that_left_go_after_a_minute() {
    let mut simulation = Simulation::new(1);
    simulation.from(5_000, "b", Does::Nothing, Does::Nothing);
    simulation.run_until(20_000);
    let empty = Brokers::default();
    let mut rng = StdRng::seed_from_u64(1);
    assert!(simulation.faults.due_probes(&empty, Millis::new(70_000), &mut rng).is_empty());
    assert_eq!(simulation.faults.standing("b", Millis::new(70_000)), Standing::Avoided);
    simulation.faults.due_probes(&empty, Millis::new(80_000), &mut rng);
    assert_eq!(simulation.faults.health(Millis::new(80_000)).count(), 0);
}

#[test]
fn a_probe_whose_result_is_lost_is_sent_again() {
    let mut simulation = Simulation::new(1);
    let mut sent = 0;
    for tick in 0..240 {
        let now = Millis::new(tick * 250);
        sent += simulation.faults.due_probes(&simulation.brokers, now, &mut simulation.rng).len();
    }
    assert!(sent > 40, "{sent} probes");
    assert!(simulation.faults.health(Millis::new(60_000)).all(|health| health.standing == Standing::Well));
}

#[test]
fn answers_with_errors_prove_that_a_broker_works_but_for_three() {
    for (code, standing) in [
        (0, Standing::OnTrial),
        (1, Standing::OnTrial),
        (16, Standing::OnTrial),
        (17, Standing::OnTrial),
        (2, Standing::Avoided),
        (14, Standing::Avoided),
        (1500, Standing::Avoided),
    ] {
        let mut faults = Faults::default();
        let now = Millis::new(5_000);
        faults.report("a", Outcome::TransportError, now);
        faults.probe_result("a", ProbeOutcome::Answered { code, latency: Duration::ZERO }, now);
        assert_eq!(faults.standing("a", now), standing, "code {code}");
        assert!(faults.is_reachable("a"), "code {code}");
    }
}
