use std::net::SocketAddr;

use rand::SeedableRng;
use waypost_rocketmq_wire::body::{BrokerData, TopicRouteData};

use super::*;

fn at(milliseconds: u64) -> Millis {
    Millis::new(milliseconds)
}

fn route(brokers: &[&str]) -> TopicRouteData {
    let groups = brokers.iter().map(|name| BrokerData {
        broker_name: (*name).to_owned(),
        broker_addrs: [(0, format!("{name}:10911"))].into(),
        ..BrokerData::default()
    });
    TopicRouteData { broker_datas: groups.collect(), ..TopicRouteData::default() }
}

fn core(servers: u16) -> Core {
    let mut core = Core::new(Duration::from_secs(30), StdRng::seed_from_u64(1));
    let endpoints = (1..=servers).map(|port| SocketAddr::from(([10, 0, 0, 1], port)).into()).collect();
    core.replace_servers(&endpoints, at(0));
    core
}

/// Answers every question that is asked now; returns whom, and what the core wants done besides.
fn serve(core: &mut Core, now: Millis, mut reply: impl FnMut(u16) -> Reply) -> (Vec<u16>, Vec<Action>) {
    let (mut asked, mut rest) = (Vec::new(), Vec::new());
    loop {
        let actions = core.take_actions();
        if actions.is_empty() {
            return (asked, rest);
        }
        for action in actions {
            match action {
                Action::Ask { id, endpoint, .. } => {
                    asked.push(endpoint.address.port());
                    core.replied(id, reply(endpoint.address.port()), now);
                }
                other => rest.push(other),
            }
        }
    }
}

fn silent() -> Reply {
    Reply::Failed(Fault::Silent, "no answer".to_owned())
}

fn lookup(core: &mut Core, ticket: u64, topic: &str, now: u64, deadline: u64) {
    let lookup = Lookup { topic: topic.into(), max_age: None, strict: false, deadline: at(deadline) };
    core.lookup(Ticket(ticket), lookup, at(now));
}

/// Lets time go on to `until`, answering everything with `reply`; returns when questions were asked.
fn run(core: &mut Core, from: u64, until: u64, mut reply: impl FnMut(u16) -> Reply) -> Vec<u64> {
    let mut times = Vec::new();
    let mut now = at(from);
    while let Some(next) = core.next_wakeup(now).filter(|next| *next <= at(until)) {
        now = now.max(next);
        core.tick(now);
        if !serve(core, now, &mut reply).0.is_empty() {
            times.push(now.get());
        }
    }
    times
}

#[test]
fn watched_topics_are_asked_for_at_once_and_then_every_half_minute_or_a_little_earlier() {
    let mut core = core(1);
    core.watch(&"T".into(), at(0));
    assert_eq!(serve(&mut core, at(0), |_| Reply::Route(route(&["a"]))).0.len(), 1);
    let mut polls = Vec::new();
    let mut now = at(0);
    while now < at(300_000) {
        now = core.next_wakeup(now).expect("polls go on").max(now);
        core.tick(now);
        let actions = core.take_actions();
        for action in actions {
            if let Action::Ask { id, question, .. } = action {
                if matches!(question, Question::Route(_)) {
                    polls.push(now.get());
                }
                core.replied(id, Reply::Route(route(&["a"])), now);
            }
        }
        core.take_actions();
    }
    assert!((10..=13).contains(&polls.len()), "{polls:?}");
    assert!(polls.windows(2).all(|pair| (24_000..=30_000).contains(&(pair[1] - pair[0]))), "{polls:?}");
}

#[test]
fn a_topic_that_nobody_uses_is_forgotten_after_five_minutes() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    let mut forgotten = None;
    let mut now = at(0);
    while forgotten.is_none() && now < at(600_000) {
        now = core.next_wakeup(now).expect("something to do").max(now);
        core.tick(now);
        let (_, rest) = serve(&mut core, now, |_| Reply::Route(route(&["a"])));
        forgotten = rest.iter().any(|action| matches!(action, Action::Forget(_))).then_some(now);
    }
    let forgotten = forgotten.expect("it is forgotten").get();
    assert!((300_000..=335_000).contains(&forgotten), "{forgotten}");
}

#[test]
fn a_topic_that_is_read_without_the_core_is_kept() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    let mut now = at(0);
    let mut forgotten = None;
    let last_read = at(900_000);
    while forgotten.is_none() && now < at(1_800_000) {
        if now <= last_read {
            core.used("T", now);
        }
        now = core.next_wakeup(now).expect("something to do").max(now);
        core.tick(now);
        let (_, rest) = serve(&mut core, now, |_| Reply::Route(route(&["a"])));
        forgotten = rest.iter().any(|action| matches!(action, Action::Forget(_))).then_some(now);
    }
    let forgotten = forgotten.expect("it is forgotten").get();
    // Reads end up to a poll before the last that is told, and each is told for ten seconds.
    assert!((1_170_000..=1_245_000).contains(&forgotten), "{forgotten}");
}

#[test]
fn after_a_reported_failure_the_route_is_asked_for_every_second_until_it_changes() {
    let mut core = core(1);
    core.watch(&"T".into(), at(0));
    serve(&mut core, at(0), |_| Reply::Route(route(&["a", "b"])));
    core.report_failure(&"T".into(), at(5_000));
    assert_eq!(serve(&mut core, at(5_000), |_| Reply::Route(route(&["a", "b"]))).0.len(), 1);
    let times = run(&mut core, 5_000, 8_500, |_| Reply::Route(route(&["a", "b"])));
    assert_eq!(times, [6_000, 7_000, 8_000]);
    let times = run(&mut core, 8_500, 20_000, |_| Reply::Route(route(&["b"])));
    assert_eq!(times.first(), Some(&9_000));
    assert!(times.iter().filter(|time| **time < 18_000).count() <= 1, "{times:?}");
}

#[test]
fn a_reported_failure_is_urgent_for_a_minute_at_most() {
    let mut core = core(1);
    core.watch(&"T".into(), at(0));
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    core.report_failure(&"T".into(), at(0));
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    let times = run(&mut core, 0, 84_000, |_| Reply::Route(route(&["a"])));
    let urgent = times.iter().filter(|time| **time <= 60_000).count();
    assert!((59..=61).contains(&urgent), "{urgent}");
    assert!(times.iter().filter(|time| **time > 61_000).count() <= 3, "{times:?}");
}

#[test]
fn callers_are_answered_at_their_deadline_with_what_each_server_did() {
    let mut core = core(2);
    lookup(&mut core, 1, "T", 0, 500);
    lookup(&mut core, 2, "T", 100, 2_000);
    let mut now = at(0);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        for action in core.take_actions() {
            if let Action::Found(ticket, result) = action {
                ended.push((ticket, now, result.expect_err("nobody answers")));
            }
        }
        now = core.next_wakeup(now).map_or(now, |at| at.max(now));
        core.tick(now);
    }
    assert_eq!((ended[0].0, ended[0].1), (Ticket(1), at(500)));
    assert_eq!((ended[1].0, ended[1].1), (Ticket(2), at(2_000)));
    let LookupError::NoAnswer { said, .. } = &ended[1].2 else { panic!("{:?}", ended[1].2) };
    assert_eq!(said.len(), 2);
}

#[test]
fn an_error_names_each_server_once_with_its_last_word() {
    let mut core = core(3);
    lookup(&mut core, 1, "T", 0, 3_000);
    let mut number = 0;
    let mut said = None;
    let mut now = at(0);
    while said.is_none() {
        let (_, rest) = serve(&mut core, now, |port| {
            number += 1;
            Reply::Failed(Fault::Connect, format!("refused {port}, question {number}"))
        });
        for action in rest {
            if let Action::Found(_, Err(LookupError::NoAnswer { said: words, .. })) = action {
                said = Some(words);
            }
        }
        now = core.next_wakeup(now).map_or(now, |at| at.max(now));
        core.tick(now);
    }
    assert!(number >= 30, "each was asked again and again: {number}");
    let said = said.expect("nobody answers");
    let mut ports: Vec<u16> = said.iter().map(|said| said.server.address.port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [1, 2, 3]);
    let first_rounds = said.iter().filter(|said| said.after < Duration::from_millis(2_500)).count();
    assert_eq!(first_rounds, 0, "{said:?}");
}

type Ends = Vec<(Ticket, Result<Known, LookupError>)>;

/// The tries that the core wants made now, and the ends of lookups.
fn tries(core: &mut Core) -> (Vec<TryId>, Ends) {
    let (mut asked, mut found) = (Vec::new(), Vec::new());
    for action in core.take_actions() {
        match action {
            Action::Ask { id, .. } => asked.push(id),
            Action::Found(ticket, result) => found.push((ticket, result)),
            _ => {}
        }
    }
    (asked, found)
}

#[test]
fn who_joins_a_question_takes_its_route() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    let (asked, _) = tries(&mut core);
    lookup(&mut core, 2, "T", 10, 3_000);
    core.replied(asked[0], Reply::Route(route(&["a"])), at(20));
    let (asked, found) = tries(&mut core);
    assert_eq!((asked.len(), found.len()), (0, 2));
    assert!(found.iter().all(|(_, result)| result.is_ok()));
}

#[test]
fn who_joins_a_question_does_not_take_its_denial_but_asks_again() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    let (first, _) = tries(&mut core);
    // The topic may have been created meanwhile, and the answer may be on its way already.
    lookup(&mut core, 2, "T", 10, 3_000);
    lookup(&mut core, 3, "T", 10, 1_000);
    core.replied(first[0], Reply::NotExist, at(20));
    let (second, found) = tries(&mut core);
    assert!(matches!(found[..], [(Ticket(1), Err(LookupError::NotExist { .. }))]), "{found:?}");
    assert_eq!(second.len(), 1, "one question for both");
    lookup(&mut core, 4, "T", 25, 3_000);
    core.replied(second[0], Reply::NotExist, at(30));
    let (third, found) = tries(&mut core);
    let denied: Vec<Ticket> = found.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(denied, [Ticket(2), Ticket(3)]);
    core.replied(third[0], Reply::Route(route(&["a"])), at(40));
    let (asked, found) = tries(&mut core);
    assert!(asked.is_empty() && matches!(found[..], [(Ticket(4), Ok(_))]), "{found:?}");
}

#[test]
fn who_joins_a_poll_that_finds_the_topic_gone_asks_again() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    let refresh = |core: &mut Core, ticket, now| {
        let lookup = Lookup {
            topic: "T".into(),
            max_age: Some(Duration::ZERO),
            strict: false,
            deadline: at(now + 200),
        };
        core.lookup(Ticket(ticket), lookup, at(now));
    };
    refresh(&mut core, 2, 1_000);
    serve(&mut core, at(1_000), |_| Reply::NotExist);
    refresh(&mut core, 3, 70_000);
    let (asked, _) = tries(&mut core);
    refresh(&mut core, 4, 70_001);
    for id in asked {
        core.replied(id, Reply::NotExist, at(70_002));
    }
    let (asked, found) = tries(&mut core);
    assert!(matches!(found[..], [(Ticket(3), Err(LookupError::NotExist { .. }))]), "{found:?}");
    core.replied(asked[0], Reply::Route(route(&["a"])), at(70_003));
    assert!(matches!(tries(&mut core).1[..], [(Ticket(4), Ok(_))]));
}

#[test]
fn while_nobody_answers_only_probes_go_out_and_known_routes_are_stale() {
    let mut core = core(3);
    for topic in ["T", "U", "V"] {
        core.watch(&topic.into(), at(0));
    }
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    let mut probes = 0;
    let mut polls = 0;
    let mut outage = false;
    let mut now = at(0);
    while now < at(240_000) {
        now = core.next_wakeup(now).expect("probes").max(now);
        core.tick(now);
        for action in core.take_actions() {
            match action {
                Action::Ask { id, question, .. } => {
                    match question {
                        Question::Probe => probes += 1,
                        _ => polls += 1,
                    }
                    core.replied(id, silent(), now);
                }
                Action::Outage(begins) => outage = begins,
                _ => {}
            }
        }
    }
    assert!(outage);
    assert!(polls <= 9, "three topics, three servers, once: {polls}");
    assert!((60..=100).contains(&probes), "{probes}");
    assert!(core.known("T").stale && core.known("T").route.is_some());
    // The first probe that is answered ends it, and all topics are asked for again.
    let mut asked = BTreeSet::new();
    let until = now.after(Duration::from_secs(15));
    while now < until {
        now = core.next_wakeup(now).expect("probes").max(now);
        core.tick(now);
        for action in core.take_actions() {
            if let Action::Ask { id, question, .. } = action {
                if let Question::Route(topic) = &question {
                    asked.insert(topic.to_string());
                }
                core.replied(id, Reply::Route(route(&["a"])), now);
            }
        }
    }
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(!core.known("T").stale);
}

#[test]
fn polls_under_way_are_bounded() {
    let mut core = core(1);
    for number in 0..500 {
        core.watch(&format!("T{number}").into(), at(0));
    }
    let asked = core.take_actions().iter().filter(|action| matches!(action, Action::Ask { .. })).count();
    assert_eq!(asked, POLLS_MAX);
}

#[test]
fn a_restored_route_is_stale_until_a_server_confirms_it() {
    let mut core = core(1);
    core.restore(&"T".into(), route(&["a"]), at(0));
    assert!(core.known("T").stale);
    lookup(&mut core, 1, "T", 0, 3_000);
    let found = core.take_actions().into_iter().any(|action| matches!(action, Action::Found(_, Ok(_))));
    assert!(found, "a known route is given at once");
    core.tick(at(0));
    serve(&mut core, at(0), |_| Reply::Route(route(&["a"])));
    assert!(!core.known("T").stale);
}

#[test]
fn an_error_names_the_request_that_nobody_answered() {
    let mut core = core(1);
    for (ticket, code) in [(1, 106), (2, 999)] {
        core.read(Ticket(ticket), code, at(3_000), false, at(0));
    }
    let (_, rest) = serve(&mut core, at(0), |_| silent());
    let subjects = rest.into_iter().filter_map(|action| match action {
        Action::Read(_, Err(LookupError::NoAnswer { subject, .. })) => Some(subject),
        _ => None,
    });
    assert_eq!(subjects.collect::<Vec<_>>(), ["GET_BROKER_CLUSTER_INFO (106)", "request 999"]);
}

#[test]
fn a_caller_that_went_away_leaves_nothing_behind() {
    let mut core = core(1);
    lookup(&mut core, 1, "T", 0, 3_000);
    core.abandon(Ticket(1));
    core.read(Ticket(2), 106, at(3_000), true, at(0));
    core.abandon(Ticket(2));
    assert!(core.waiters.is_empty() && core.reads.is_empty());
    assert_eq!(core.queries.len(), 1, "only the topic's, whose answer is of use");
}
