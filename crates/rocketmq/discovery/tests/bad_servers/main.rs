//! Discovery against servers that misbehave, over real sockets.
#![allow(clippy::disallowed_methods, reason = "tests measure how long calls take")]

mod server;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use server::{Behaviour, Server};
use tokio::net::TcpSocket;
use waypost_net::address::AddressList;
use waypost_rocketmq_discovery::chooser::ChooseError;
use waypost_rocketmq_discovery::client::{Discovery, Options, Readiness};
use waypost_rocketmq_discovery::error::LookupError;
use waypost_rocketmq_discovery::faults::Outcome;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_remoting::source::Source;

const LIMIT: Duration = Duration::from_secs(3);
/// For what must happen at some time: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn list(addresses: &[SocketAddr]) -> AddressList {
    addresses.iter().map(|address| (*address).into()).collect()
}

/// A client whose first choice is the first of `servers`: the seed is searched, choice by chance stays.
async fn client(servers: &[SocketAddr]) -> Discovery {
    for seed in 0.. {
        let options = Options {
            seed: Some(seed),
            probe_brokers: false,
            poll_period: Duration::from_secs(1),
            ..Options::new(Source::List(list(servers)))
        };
        let discovery = Discovery::start(options).unwrap();
        if discovery.servers().await[0].endpoint.address == servers[0] {
            return discovery;
        }
    }
    unreachable!("some seed starts with each server")
}

fn brokers(route: &TopicRoute) -> Vec<&str> {
    route.groups().iter().map(|group| group.broker_name.as_str()).collect()
}

/// An address that refuses: bound, so that nobody else gets the port, but not listening.
fn refused() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// The shortest time that a route of one of `topics` takes: a single one may be off on a busy machine.
async fn shortest(discovery: &Discovery, topics: &[&str]) -> Duration {
    let mut shortest = PATIENCE;
    for topic in topics {
        let began = Instant::now();
        discovery.route(topic, LIMIT).await.unwrap();
        shortest = shortest.min(began.elapsed());
    }
    shortest
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The first choice misbehaves, the second server is well: the call succeeds, the next one does not meet the
/// bad server.
async fn second_server_answers(bad: SocketAddr, within: Duration) -> Discovery {
    let good = Server::with(Behaviour::Well, "T", &["a", "b"]).await;
    let others = ["U", "V", "W", "X", "Y"];
    others.iter().for_each(|topic| good.put(topic, &["a"]));
    let discovery = client(&[bad, good.address]).await;
    let began = Instant::now();
    let route = discovery.route("T", LIMIT).await.unwrap();
    assert!(began.elapsed() < within, "{:?}", began.elapsed());
    assert_eq!(brokers(&route), ["a", "b"]);
    wait_until("the bad server is known to be bad", async || {
        let servers = discovery.servers().await;
        servers.iter().any(|server| server.endpoint.address == bad && server.health.is_suspect())
    })
    .await;
    let took = shortest(&discovery, &others).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    discovery
}

const BUSY_MACHINE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_hung_server_costs_one_stagger_and_its_connection() {
    let hung = Server::start(Behaviour::Hung).await;
    let discovery = second_server_answers(hung.address, BUSY_MACHINE).await;
    wait_until("the connection to the hung server is closed", async || hung.closed() > 0).await;
    hung.behave(Behaviour::Well);
    wait_until("the server is trusted again", async || {
        let servers = discovery.servers().await;
        servers.iter().any(|server| server.endpoint.address == hung.address && !server.health.is_suspect())
    })
    .await;
}

#[tokio::test]
async fn a_refusing_server_costs_nothing() {
    let (bad, _socket) = refused();
    second_server_answers(bad, BUSY_MACHINE).await;
}

#[tokio::test]
async fn a_server_that_closes_connections_is_left() {
    let bad = Server::start(Behaviour::Closing).await;
    second_server_answers(bad.address, BUSY_MACHINE).await;
}

#[tokio::test]
async fn busy_and_failing_servers_are_left() {
    for code in [1, 2, 3, 1500] {
        let bad = Server::start(Behaviour::Code(code)).await;
        second_server_answers(bad.address, BUSY_MACHINE).await;
    }
}

#[tokio::test]
async fn servers_that_send_nonsense_are_left() {
    for behaviour in [Behaviour::Nonsense, Behaviour::Empty, Behaviour::Garbage] {
        let bad = Server::start(behaviour).await;
        second_server_answers(bad.address, BUSY_MACHINE).await;
    }
}

#[tokio::test]
async fn a_slow_server_answers_when_it_is_the_only_one_and_is_ranked_last_otherwise() {
    let slow = Server::with(Behaviour::Slow(Duration::from_millis(700)), "T", &["a"]).await;
    let discovery = client(&[slow.address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    let good = Server::start(Behaviour::Well).await;
    let others = ["U", "V", "W", "X", "Y"];
    others.iter().for_each(|topic| [&slow, &good].iter().for_each(|server| server.put(topic, &["a"])));
    discovery.replace_servers(list(&[slow.address, good.address]));
    wait_until("both are listed", async || discovery.servers().await.len() == 2).await;
    let took = shortest(&discovery, &others).await;
    assert!(took < Duration::from_millis(600), "{took:?}");
}

#[tokio::test]
async fn the_deadline_is_kept_when_nobody_answers_and_the_error_tells_who_said_what() {
    let hung = Server::start(Behaviour::Hung).await;
    let busy = Server::start(Behaviour::Code(2)).await;
    let (dead, _socket) = refused();
    let discovery = client(&[hung.address, busy.address, dead]).await;
    // Time to ask all three, one after the other.
    let limit = Duration::from_millis(1_500);
    let began = Instant::now();
    let error = discovery.route("T", limit).await.unwrap_err();
    let took = began.elapsed();
    // The clock counts milliseconds, and the hung one has 3 s.
    assert!(took + Duration::from_millis(1) >= limit && took < Duration::from_millis(2_900), "{took:?}");
    let LookupError::NoAnswer { said, .. } = &error else { panic!("{error:?}") };
    for (server, what) in [(hung.address, "no answer"), (busy.address, "told to"), (dead, "refused")] {
        let mine = said.iter().find(|said| said.server.address == server).expect("every server is listed");
        assert!(mine.what.contains(what), "{mine}");
    }
    assert!(error.to_string().contains("topic \"T\": no name server answered within"), "{error}");
}

#[tokio::test]
async fn a_topic_exists_when_one_server_knows_it() {
    let empty = Server::start(Behaviour::Well).await;
    let good = Server::with(Behaviour::Well, "T", &["a"]).await;
    let discovery = client(&[empty.address, good.address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    let error = discovery.route("nope", LIMIT).await.unwrap_err();
    let LookupError::NotExist { said, .. } = &error else { panic!("{error:?}") };
    assert_eq!(said.len(), 2, "{error}");
}

#[tokio::test]
async fn one_server_decides_that_a_topic_is_unknown_when_the_others_are_silent() {
    let empty = Server::start(Behaviour::Well).await;
    let hung = Server::start(Behaviour::Hung).await;
    let discovery = client(&[empty.address, hung.address]).await;
    let began = Instant::now();
    let error = discovery.route("nope", LIMIT).await.unwrap_err();
    assert!(matches!(error, LookupError::NotExist { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_millis(2_900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_stale_server_does_not_take_a_route_back() {
    let newer = Server::with(Behaviour::Well, "T", &["a", "b"]).await;
    let stale = Server::with(Behaviour::Well, "T", &["a"]).await;
    let discovery = client(&[newer.address, stale.address]).await;
    let mut watch = discovery.watch("T");
    assert_eq!(brokers(&watch.changed().await.unwrap().unwrap()), ["a", "b"]);
    newer.behave(Behaviour::Hung);
    wait_until("the stale server was asked", async || stale.route_queries() > 2).await;
    assert_eq!(brokers(&watch.current().route.unwrap()), ["a", "b"]);
}

#[tokio::test]
async fn a_restarted_server_that_lost_a_topic_does_not_take_it_away() {
    let server = Server::with(Behaviour::Well, "T", &["a", "b"]).await;
    let discovery = client(&[server.address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    server.delete("T");
    discovery.refresh("T", LIMIT).await.expect("the known route stays");
    server.put("T", &["a", "b", "c"]);
    let route = discovery.refresh("T", LIMIT).await.unwrap();
    assert_eq!(brokers(&route), ["a", "b", "c"]);
}

#[tokio::test]
async fn known_routes_are_served_and_marked_stale_while_nobody_answers() {
    let server = Server::with(Behaviour::Well, "T", &["a"]).await;
    let address = server.address;
    let discovery = client(&[address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    assert!(!discovery.known("T").unwrap().stale);
    server.behave(Behaviour::Hung);
    wait_until("the route is stale", async || discovery.known("T").unwrap().stale).await;
    let took = shortest(&discovery, &["T"; 5]).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    let error = discovery.refresh("T", Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, LookupError::NoAnswer { .. }), "{error:?}");
    server.behave(Behaviour::Well);
    wait_until("the route is fresh", async || !discovery.known("T").unwrap().stale).await;
}

#[tokio::test]
async fn a_known_route_is_given_though_the_driver_is_held_up() {
    let server = Server::with(Behaviour::Well, "T", &["a"]).await;
    let discovery = client(&[server.address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    server.behave(Behaviour::Hung);
    let asked = discovery.younger_than("T", Duration::ZERO, Duration::from_millis(300));
    let held_up = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Nothing of this runtime goes on meanwhile: after it both the driver and its caller are late.
        std::thread::sleep(Duration::from_secs(1));
    };
    let (known, ()) = tokio::join!(asked, held_up);
    let known = known.unwrap();
    assert!(known.stale);
    assert_eq!(brokers(&known.route.unwrap()), ["a"]);
}

#[tokio::test]
async fn many_callers_of_one_topic_share_one_question() {
    let server = Server::with(Behaviour::Slow(Duration::from_millis(100)), "T", &["a"]).await;
    let discovery = client(&[server.address]).await;
    let calls: Vec<_> = (0..50).map(|_| discovery.route("T", LIMIT)).collect();
    let mut ended = 0;
    for call in calls {
        call.await.unwrap();
        ended += 1;
    }
    assert_eq!((ended, server.route_queries()), (50, 1));
}

#[tokio::test]
async fn subscribers_hear_of_changes_only() {
    let server = Server::with(Behaviour::Well, "T", &["a"]).await;
    let discovery = client(&[server.address]).await;
    let mut watch = discovery.watch("T");
    assert_eq!(brokers(&watch.changed().await.unwrap().unwrap()), ["a"]);
    let polls = server.route_queries();
    wait_until("it is polled again", async || server.route_queries() > polls + 1).await;
    let nothing = tokio::time::timeout(Duration::from_millis(50), watch.changed()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    server.put("T", &["a", "b"]);
    assert_eq!(brokers(&watch.changed().await.unwrap().unwrap()), ["a", "b"]);
}

#[tokio::test]
async fn a_reported_failure_has_the_route_asked_for_at_once() {
    let server = Server::with(Behaviour::Well, "T", &["a", "b"]).await;
    let options = Options { probe_brokers: false, ..Options::new(Source::List(list(&[server.address]))) };
    let discovery = Discovery::start(options).unwrap();
    let mut chooser = discovery.chooser("T");
    discovery.route("T", LIMIT).await.unwrap();
    server.put("T", &["b"]);
    discovery.report("T", "a", Outcome::TransportError);
    for _ in 0..8 {
        assert_eq!(&*chooser.choose(Some("a")).unwrap().queue.broker, "b");
    }
    // Polls are half a minute apart: only the report can bring the news so soon.
    let began = Instant::now();
    wait_until("the route is renewed", async || {
        brokers(&discovery.known("T").unwrap().route.unwrap()) == ["b"]
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_topic_without_a_route_cannot_be_chosen_from() {
    let server = Server::start(Behaviour::Well).await;
    let discovery = client(&[server.address]).await;
    let error = discovery.chooser("T").choose(None).unwrap_err();
    assert!(matches!(error, ChooseError::NoRoute { .. }), "{error:?}");
}

#[tokio::test]
async fn ready_fails_fast_or_waits() {
    let (address, _socket) = refused();
    let discovery = client(&[address]).await;
    let began = Instant::now();
    discovery.wait_ready(Readiness::FailFast, PATIENCE).await.unwrap_err();
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    let good = Server::start(Behaviour::Well).await;
    let waiting = discovery.wait_ready(Readiness::Wait, PATIENCE);
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        discovery.replace_servers(list(&[good.address]));
    };
    let (ready, ()) = tokio::join!(waiting, later);
    ready.unwrap();
}

#[tokio::test]
async fn the_default_topic_stands_in_for_one_that_does_not_exist() {
    let server = Server::with(Behaviour::Well, "TBW102", &["a"]).await;
    let discovery = client(&[server.address]).await;
    let route = discovery.route_or_default("new", Some(2), LIMIT).await.unwrap();
    assert_eq!(route.publish().len(), 2);
    server.delete("TBW102");
    let discovery = client(&[server.address]).await;
    let error = discovery.route_or_default("new", None, LIMIT).await.unwrap_err();
    assert!(matches!(&error, LookupError::NotExist { topic, .. } if topic == "new"), "{error:?}");
}

/// What a call gives that never waits; `None` if it does.
fn at_once<T>(call: impl Future<Output = T>) -> Option<T> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_known_route_is_given_without_waiting_for_the_driver() {
    let server = Server::with(Behaviour::Well, "T", &["a"]).await;
    let discovery = client(&[server.address]).await;
    assert!(at_once(discovery.route("T", LIMIT)).is_none(), "it has to be asked for");
    let route = discovery.route("T", LIMIT).await.unwrap();
    for _ in 0..3 {
        let again = at_once(discovery.route("T", LIMIT)).expect("no wait").unwrap();
        assert_eq!(*again, *route);
        let young = at_once(discovery.younger_than("T", PATIENCE, LIMIT)).expect("no wait").unwrap();
        assert!(!young.stale && young.checked.is_some());
    }
    assert!(at_once(discovery.younger_than("T", Duration::ZERO, LIMIT)).is_none(), "no age asks the server");
    assert!(at_once(discovery.refresh("T", LIMIT)).is_none());
    assert!(discovery.close(PATIENCE).await);
    assert_eq!(discovery.route("T", LIMIT).await.unwrap_err(), LookupError::Closed);
}

#[tokio::test]
async fn choosers_see_a_new_route_and_each_report_at_once() {
    let server = Server::with(Behaviour::Well, "T", &["a", "b"]).await;
    let discovery = client(&[server.address]).await;
    discovery.route("T", LIMIT).await.unwrap();
    let mut chooser = discovery.chooser("T");
    let mut chosen = |last: Option<&str>| {
        let brokers = (0..8).map(|_| chooser.choose(last).unwrap().queue.broker.to_string());
        brokers.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(chosen(None), ["a", "b"]);
    assert_eq!(chosen(Some("a")), ["b"]);
    discovery.report("T", "a", Outcome::TransportError);
    assert_eq!(chosen(None), ["b"]);
    discovery.report("T", "b", Outcome::BrokerError { code: 2 });
    assert_eq!(chosen(None), ["b"], "it answers, however badly");
    server.put("T", &["a", "b", "c"]);
    wait_until("the new broker is known", async || {
        discovery.known("T").and_then(|known| known.route).is_some_and(|route| route.group("c").is_some())
    })
    .await;
    assert_eq!(chosen(None), ["c"]);
}

#[tokio::test]
async fn the_close_ends_calls_and_connections() {
    let server = Server::start(Behaviour::Hung).await;
    let discovery = client(&[server.address]).await;
    let call = discovery.route("T", PATIENCE);
    let close = async {
        wait_until("the server was asked", async || server.route_queries() > 0).await;
        discovery.close(PATIENCE).await
    };
    let (ended, closed) = tokio::join!(call, close);
    assert_eq!(ended.unwrap_err(), LookupError::Closed);
    assert!(closed);
    wait_until("the connection is closed", async || server.closed() > 0).await;
    assert_eq!(discovery.watch("T").changed().await.unwrap_err(), LookupError::Closed);
}
