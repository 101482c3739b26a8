//! Many peers that ask for the longest answers (206, 106) as fast as they get them: the signs of life of brokers
//! must not wait behind them until the brokers count as dead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{BEARABLE, Beside, Broker, ChildBroker, Client, Server, Settings};

const ASKING: usize = 600;
const TOPICS: usize = 20_000;

#[test]
fn brokers_stay_and_registrations_are_answered_in_a_storm_of_lists() {
    ChildBroker::take_over_if_child();
    const TEST: &str = "list_storm::brokers_stay_and_registrations_are_answered_in_a_storm_of_lists";
    let mut server = Server::start(&Settings::new().with("scanNotActiveBrokerInterval", 100));
    let _large = server.register(&Broker::with_topics("broker-large", "10.9.1.1:10911", "Topic", TOPICS));
    let own = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]).timeout_ms(2_500);
    let _child = ChildBroker::start(TEST, server.address(), &own, &[]);
    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..ASKING {
            let (address, stop, answers) = (server.address(), &stop, &answers);
            scope.spawn(move || {
                let mut client = Client::to(address);
                let code = if number % 4 == 0 { 106 } else { 206 };
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.call(&Request::new(code)).code, 0);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let beside = Beside::start(&server, "TopicA");
        let mut client = server.client();
        let mut longest = Duration::ZERO;
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            let start = Instant::now();
            let ext = [("brokerAddr", "10.9.9.9:1"), ("clusterName", "C")];
            assert_eq!(client.call(&Request { ext: &ext, ..Request::new(322) }).code, 0);
            longest = longest.max(start.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        let present = client.has_route("TopicA");
        stop.store(true, Ordering::Relaxed);
        eprintln!("{answers:?} lists in 8 s; the longest sign of life took {longest:?}");
        assert!(present, "a broker that reports itself was removed");
        assert!(longest < BEARABLE, "a sign of life took {longest:?}");
        beside.finish();
    });
    server.assert_alive();
}
