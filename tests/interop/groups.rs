//! Groups of a master and a slave.

use std::path::Path;
use std::time::Duration;

use waypost_testkit::agent::Agent;
use waypost_testkit::peers::{Broker, JavaPeer, Mqadmin, NameServer, Settings, Version, poll_until};

use crate::stage::{GONE_AFTER_KILL, JAVA_TOOLS, NEXT_REGISTRATION, SOON, Stage};

const CLUSTER: &str = "DefaultCluster";
const GROUP: &str = "broker-a";
const MESSAGES: usize = 20;

/// A slave asks its master for the configuration every minute, first after 10 s.
const LEARNT: Duration = Duration::from_secs(75);

#[test]
fn a_slave_follows_the_master_that_the_name_server_tells() {
    let text = "
        For 5.5.0 and 4.9.7: a master and a slave of one group register; the answers to the slave carry the master's
        address and its address for replication, which nothing else tells it.
        The group lists both by their ids. A topic created on the master reaches the slave's configuration, and the
        messages sent to the master reach the slave's log.
    ";
    let Some(stage) = Stage::open("master and slave", JAVA_TOOLS, text) else { return };
    for version in [Version::V5, Version::V4] {
        stage.story.step(format_args!("---- brokers {version}"));
        let server = stage.name_server(&Settings::new());
        let name_servers = server.address().to_string();
        let (_master, slave) = replicates(&stage, version, &server, [&name_servers; 2]);
        let (_, took) = stage.story.timed("the slave has the topic", || {
            let found = poll_until(LEARNT, || has_topic(slave.home(), "Replicated").then_some(()));
            assert!(found.is_some(), "the slave never got the topic");
        });
        assert!(took < LEARNT);
    }
}

#[test]
fn a_slave_learns_its_master_through_agents() {
    let text = "
        For 5.5.0 and 4.9.7: two name servers; a master and a slave of one group register, each through an agent of its
        own, as on two machines. Both servers list both by their ids. The messages sent to the master, found through an
        agent, reach the slave's log: it has learnt its master's address for replication.
    ";
    let Some(stage) = Stage::open("slave through agents", JAVA_TOOLS, text) else { return };
    for version in [Version::V5, Version::V4] {
        stage.story.step(format_args!("---- brokers {version}"));
        let servers = [(); 2].map(|()| stage.name_server(&Settings::new()));
        let agents = [(); 2].map(|()| stage.agent(&servers));
        let through = [0, 1].map(|index: usize| agents[index].address().to_string());
        let _kept = replicates(&stage, version, &servers[1], [&through[0], &through[1]]);
    }
}

/// A master and a slave with the name servers given to each: `server` lists both, and messages are copied.
fn replicates(
    stage: &Stage,
    version: Version,
    server: &NameServer,
    name_servers: [&str; 2],
) -> (JavaPeer, JavaPeer) {
    let (master, slave) = pair(stage, version, name_servers, &Settings::new());
    let name_servers = name_servers[1];
    stage.wait_for_members(server, CLUSTER, GROUP, &[(0, &master), (1, &slave)]);
    let mut admin = stage.mqadmin(version);
    stage.create_topic(&mut admin, server, CLUSTER, "Replicated");
    stage.wait_for_route(server, "Replicated", "names master and slave", SOON, |route| {
        route.addresses.get(GROUP).is_some_and(|ids| ids.len() == 2)
            && route.queues.get(GROUP) == Some(&(6, 4))
    });
    for number in 0..MESSAGES {
        let body = format!("message-{number}");
        let output = admin.run(&["sendMessage", "-n", name_servers, "-t", "Replicated", "-p", &body]);
        assert!(output.text.contains("SEND_OK"), "sendMessage: {}", output.text);
    }
    let written = log_end(&mut admin, name_servers, &master);
    assert!(written > 0, "the master has no messages");
    let copied = poll_until(SOON, || {
        Some(log_end(&mut admin, name_servers, &slave)).filter(|copied| *copied >= written)
    });
    stage.story.step(format_args!("log of the master ends at {written}, of the slave at {copied:?}"));
    assert!(copied.is_some(), "the slave copied {} of {written}", log_end(&mut admin, name_servers, &slave));
    (master, slave)
}

#[test]
fn an_acting_master_serves_and_is_told() {
    let text = "
        A master and a slave 5.5.0 with acting master on both sides; they beat (904) and ask for their group (901)
        every second. The master dies by kill -9. The route then shows the slave's address at id 0 without permission
        to write, its group keeps it at id 1, and request 905 reaches the slave: its log says that the minimum id
        is 1 now. The master comes back: 905 tells the slave that it is 0 again.
    ";
    let Some(stage) = Stage::open("acting master", JAVA_TOOLS, text) else { return };
    let server = stage.name_server(&acting_servers());
    let name_servers = server.address().to_string();
    acts(&stage, &server, [&name_servers; 2]);
}

#[test]
fn an_acting_master_serves_and_is_told_through_agents() {
    let text = "
        As above with two name servers, and an agent of its own for each of the two brokers, as on two machines. What
        is said of the route and the group holds for both servers and both agents.
    ";
    let Some(stage) = Stage::open("acting through agents", JAVA_TOOLS, text) else { return };
    let servers = [(); 2].map(|()| stage.name_server(&acting_servers()));
    let agents = [(); 2].map(|()| stage.agent(&servers));
    let through = [0, 1].map(|index: usize| agents[index].address().to_string());
    let _brokers = acts(&stage, &servers[0], [&through[0], &through[1]]);
    for probe in agents.iter().map(Agent::probe).chain(servers.iter().map(NameServer::probe)) {
        let whole = poll_until(SOON, || {
            let route = probe.route("Acting")?;
            (route.queues.get(GROUP)?.0 == 6 && route.addresses.get(GROUP)?.len() == 2).then_some(())
        });
        assert!(whole.is_some(), "the route is {:?}", probe.route("Acting"));
    }
}

fn acting_servers() -> Settings {
    Settings::new().with("supportActingMaster", "true").with("notifyMinBrokerIdChanged", "true")
}

/// A master and a slave with the name servers given to each, seen at `server`.
fn acts(stage: &Stage, server: &NameServer, name_servers: [&str; 2]) -> (JavaPeer, JavaPeer) {
    let acting =
        Settings::new().with("enableSlaveActingMaster", "true").with("compatibleWithOldNameSrv", "false");
    let (mut master, mut slave) = pair(stage, Version::V5, name_servers, &acting);
    stage.wait_for_members(server, CLUSTER, GROUP, &[(0, &master), (1, &slave)]);
    let mut admin = stage.mqadmin(Version::V5);
    stage.create_topic(&mut admin, server, CLUSTER, "Acting");
    stage.wait_for_route(server, "Acting", "names both", SOON, |route| {
        route.addresses.get(GROUP).is_some_and(|ids| ids.len() == 2)
    });

    stage.story.timed("the master dies by kill -9", || master.kill());
    let slave_address = slave.address().to_string();
    let (route, took) =
        stage.wait_for_route(server, "Acting", "shows the slave at id 0", NEXT_REGISTRATION, |route| {
            route
                .addresses
                .get(GROUP)
                .is_some_and(|ids| ids.len() == 1 && ids.get(&0) == Some(&slave_address))
        });
    assert_eq!(route.queues[GROUP].0, 4, "an acting master can only be read");
    assert!(!stage.program.is_waypost() || took <= GONE_AFTER_KILL, "off the route after {took:?}");
    stage.wait_for_members(server, CLUSTER, GROUP, &[(1, &slave)]);
    told(stage, &mut slave, 1);

    stage.story.timed("the master starts again", || master.start_again()).0.expect("a broker");
    stage.wait_for_members(server, CLUSTER, GROUP, &[(0, &master), (1, &slave)]);
    let (route, _) = stage.wait_for_route(server, "Acting", "shows both again", NEXT_REGISTRATION, |route| {
        route.addresses.get(GROUP).is_some_and(|ids| ids.len() == 2)
    });
    assert_eq!(route.queues[GROUP].0, 6, "the master can be written again");
    told(stage, &mut slave, 0);
    (master, slave)
}

/// Master and slave of one group.
fn pair(stage: &Stage, version: Version, name_servers: [&str; 2], extra: &Settings) -> (JavaPeer, JavaPeer) {
    let start = |id: u32, role: &str| {
        let name_servers = name_servers[id as usize];
        let identity = Broker { cluster: CLUSTER, name: GROUP, id, name_servers };
        let mut settings = extra.clone();
        settings.set("brokerRole", role);
        stage.broker(version, &identity, &settings)
    };
    (start(0, "ASYNC_MASTER"), start(1, "SLAVE"))
}

/// Waits until the slave has logged the line of the handler of request 905. What the broker learns by asking (901)
/// is logged in other words. The previous id in that line is not what the broker used before, but its own.
fn told(stage: &Stage, slave: &mut JavaPeer, minimum: u32) {
    let end = format!("new {minimum}");
    let what = format!("the slave has got 905 with minimum id {minimum}");
    stage.story.timed(what, || {
        slave.wait_for_line("905", SOON, |line| {
            line.contains("min broker id changed, prev") && line.ends_with(&end)
        });
    });
}

fn log_end(admin: &mut Mqadmin, name_servers: &str, broker: &JavaPeer) -> u64 {
    let output = admin.run(&["brokerStatus", "-n", name_servers, "-b", &broker.address().to_string()]);
    let line = output.text.lines().find(|line| line.starts_with("commitLogMaxOffset"));
    let value = line.and_then(|line| line.rsplit(':').next()?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("brokerStatus without commitLogMaxOffset: {}", output.text))
}

fn has_topic(home: &Path, topic: &str) -> bool {
    let file = home.join("store/config/topics.json");
    std::fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("\"{topic}\"")))
}
