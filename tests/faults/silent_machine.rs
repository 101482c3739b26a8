//! A broker's machine that falls silent: no FIN, no RST, no packet at all. Two network namespaces are the two
//! machines.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use waypost_testkit::faults::{Machine, Network};

use crate::harness::{Broker, ChildBroker, Server, Settings, poll_until};

/// Java takes 125 s.
const LIMIT: Duration = Duration::from_secs(65);

const TEST: &str =
    "silent_machine::brokers_of_a_silent_machine_are_suspected_and_removed_unless_heard_of_elsewhere";

#[test]
fn brokers_of_a_silent_machine_are_suspected_and_removed_unless_heard_of_elsewhere() {
    ChildBroker::take_over_if_child();
    let Some(network) = Network::make("a machine that falls silent") else { return };
    let machine = network.machine();
    std::thread::scope(|scope| {
        // Only this thread moves: the other tests stay where they are.
        scope.spawn(|| {
            network.enter();
            play(&machine);
        });
    });
}

fn play(machine: &Machine) {
    let mut server = Server::start(&Settings::new().with("bindAddress", "0.0.0.0"));
    let on_the_wire = SocketAddr::new(IpAddr::from(machine.gateway()), server.address().port());
    let lost = Broker::new("broker-lost", "10.77.1.2:10911", &["TopicLost"]);
    let moved = Broker::new("broker-moved", "10.77.1.2:10921", &["TopicMoved"]);
    let _children =
        [&lost, &moved].map(|broker| ChildBroker::start(TEST, on_the_wire, broker, &machine.prefix()));
    let mut client = server.client();
    assert!(client.has_route("TopicLost") && client.has_route("TopicMoved"));

    machine.silence();
    let start = Instant::now();
    // One of them is heard of by another way, say another interface of its machine.
    let mut elsewhere = server.client();
    let mut suspected = None;
    let gone = poll_until(LIMIT + Duration::from_secs(30), || {
        std::thread::sleep(Duration::from_millis(200));
        moved.beat(&mut elsewhere);
        if suspected.is_none() && !server.log_lines("broke by time-out").is_empty() {
            suspected = Some(start.elapsed());
        }
        (!client.has_route("TopicLost")).then(|| start.elapsed())
    });
    let took = gone.expect("the broker of a silent machine is removed");
    eprintln!("silent machine: suspected after {suspected:?}, off the route after {took:?}");
    assert!(took <= LIMIT, "off the route after {took:?}");
    assert!(took >= Duration::from_secs(30), "a silence of {took:?} is not yet a death");
    server.expect_count("broker_removals_total", "cause=\"connection_timed_out\"", 1);
    server.expect_count("connections_ended_total", "reason=\"timed_out\"", 2);

    // The other one would have been removed at about the same time.
    let lost = poll_until(Duration::from_secs(8), || {
        std::thread::sleep(Duration::from_millis(200));
        moved.beat(&mut elsewhere);
        (!client.has_route("TopicMoved")).then_some(())
    });
    assert!(lost.is_none(), "a broker that was heard of is gone");
    // Now it is bound to the connection over which it was heard of.
    drop(elsewhere);
    let gone = poll_until(Duration::from_secs(5), || (!client.has_route("TopicMoved")).then_some(()));
    assert!(gone.is_some(), "it outlives the connection that it is bound to");
    server.assert_alive();
}
