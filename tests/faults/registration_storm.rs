//! Brokers with many topics that register again and again, with changes: route queries do not wait for them, and
//! see each route whole.

use std::time::{Duration, Instant};

use crate::harness::{Beside, Broker, Client, Server};

const BROKERS: usize = 5;
const TOPICS: usize = 10_000;

#[test]
fn route_queries_do_not_wait_for_registrations_and_never_see_half_of_one() {
    let mut server = Server::with_defaults();
    let _steady = server.register(&Broker::new("broker-steady", "10.9.1.1:10911", &["Steady"]));
    let end = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        for number in 0..BROKERS {
            let address = server.address();
            scope.spawn(move || {
                let (name, own) = (format!("broker-{number}"), format!("10.9.0.{number}:10911"));
                let mut broker = Broker::with_topics(&name, &own, "Topic", TOPICS);
                let mut client = Client::to(address);
                while Instant::now() < end {
                    broker.version += 1;
                    broker.topics.push(format!("New-{number}-{}", broker.version));
                    broker.register(&mut client);
                }
            });
        }
        let beside = Beside::start(&server, "Steady");
        let mut client = server.client();
        let mut most = 0;
        while Instant::now() < end {
            let answer = client.route("Topic-77").expect("an answer");
            if answer.code == 17 {
                continue;
            }
            let text = answer.text();
            let (queues, brokers) =
                (text.matches("\"readQueueNums\"").count(), text.matches("\"brokerAddrs\"").count());
            assert_eq!(queues, brokers, "half a registration: {text}");
            assert!(queues >= most, "a broker that is registered left the route: {text}");
            most = queues;
        }
        assert!(most > 0, "no registration was seen");
        beside.finish();
    });
    server.assert_alive();
}
