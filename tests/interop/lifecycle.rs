//! Brokers of both versions come, go and come back.

use std::time::Duration;

use waypost_testkit::peers::{Broker, JavaPeer, Mqadmin, NameServer, Settings, Signal, Version};

use crate::stage::{GONE_AFTER_KILL, JAVA_TOOLS, SOON, Stage};

const CLUSTER: &str = "DefaultCluster";

#[test]
fn brokers_come_and_go() {
    let text = "
        For broker 5.5.0 alone, broker 4.9.7 alone, and both in one cluster:
        they register; mqadmin creates a topic; its route names every broker with address, permission and queues;
        each broker restarts: it is off the route when it has stopped, and on it again with the same topic;
        each broker dies by kill -9: it is off the route within 1 s, the other one stays; it comes back;
        each broker stops by SIGTERM: nothing is left.
    ";
    let Some(stage) = Stage::open("lifecycle", JAVA_TOOLS, text) else { return };
    let mut admins = [stage.mqadmin(Version::V5), stage.mqadmin(Version::V4)];
    for versions in [&[Version::V5][..], &[Version::V4], &[Version::V5, Version::V4]] {
        stage.story.step(format_args!("---- brokers {versions:?}"));
        run(&stage, &mut admins, versions);
    }
}

struct Member {
    name: String,
    peer: JavaPeer,
}

fn run(stage: &Stage, admins: &mut [Mqadmin], versions: &[Version]) {
    let server = stage.name_server(&Settings::new());
    let name_servers = server.address().to_string();
    let mut members: Vec<Member> = versions
        .iter()
        .map(|&version| {
            let name = format!("broker-{}", version.set());
            let identity = Broker { cluster: CLUSTER, name: &name, id: 0, name_servers: &name_servers };
            let peer = stage.broker(version, &identity, &Settings::new());
            Member { name, peer }
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let everyone: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    let names: Vec<&str> = everyone.iter().map(String::as_str).collect();
    stage.wait_for_brokers(&server, &names, SOON);

    for admin in admins.iter_mut().filter(|admin| versions.contains(&admin.version())) {
        let topic = format!("Lifecycle{}", admin.version().set());
        stage.create_topic(admin, &server, CLUSTER, &topic);
        whole(stage, &server, &topic, &members);
    }
    let topic = format!("Lifecycle{}", versions[0].set());

    for index in 0..members.len() {
        stop(stage, &server, &topic, &mut members, index);
        start_again(stage, &server, &topic, &mut members, index);
        kill(stage, &server, &topic, &mut members, index);
        start_again(stage, &server, &topic, &mut members, index);
    }
    for member in &mut members {
        member.peer.send(Signal::Terminate);
    }
    for member in &mut members {
        let status = member.peer.wait_until_ended();
        stage.story.step(format_args!("{} stopped by SIGTERM: {status}", member.name));
    }
    stage.wait_for_brokers(&server, &[], SOON);
    stage.wait_for_route(&server, &topic, "gone", SOON, |route| route.brokers().is_empty());
}

/// Waits until the route of `topic` names every member as it is.
fn whole(stage: &Stage, server: &NameServer, topic: &str, members: &[Member]) {
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let complete = format!("names {names:?}");
    let (route, _) = stage.wait_for_route(server, topic, &complete, SOON, |route| {
        route.brokers() == names && route.queues.len() == names.len()
    });
    for member in members {
        assert_eq!(route.addresses[&member.name][&0], member.peer.address().to_string());
        assert_eq!(route.queues[&member.name], (6, 4), "permission and write queues of {}", member.name);
    }
}

/// SIGTERM: the broker unregisters, so that it is off the route when the process ends.
fn stop(stage: &Stage, server: &NameServer, topic: &str, members: &mut [Member], index: usize) {
    let name = members[index].name.clone();
    let (status, _) =
        stage.story.timed(format_args!("{name} stops by SIGTERM"), || members[index].peer.stop());
    stage.story.step(format_args!("{name}: {status}"));
    let (_, took) = off_the_route(stage, server, topic, members, &name);
    assert!(
        !stage.program.is_waypost() || took <= GONE_AFTER_KILL,
        "{name} on the route {took:?} after its end"
    );
}

fn kill(stage: &Stage, server: &NameServer, topic: &str, members: &mut [Member], index: usize) {
    let name = members[index].name.clone();
    // Taking down a JVM's memory is the kernel's work: the clock starts when the process is gone.
    stage.story.timed(format_args!("{name} dies by kill -9"), || members[index].peer.kill());
    let (_, took) = off_the_route(stage, server, topic, members, &name);
    assert!(
        !stage.program.is_waypost() || took <= GONE_AFTER_KILL,
        "{name} on the route {took:?} after kill -9"
    );
}

fn off_the_route(
    stage: &Stage,
    server: &NameServer,
    topic: &str,
    members: &[Member],
    gone: &str,
) -> (Vec<String>, Duration) {
    let rest: Vec<&str> =
        members.iter().map(|member| member.name.as_str()).filter(|name| *name != gone).collect();
    let what = format!("without {gone}");
    let (route, took) = stage.wait_for_route(server, topic, &what, SOON, |route| route.brokers() == rest);
    assert!(!route.queues.contains_key(gone), "queues of {gone} are still there: {route:?}");
    (route.queues.into_keys().collect(), took)
}

fn start_again(stage: &Stage, server: &NameServer, topic: &str, members: &mut [Member], index: usize) {
    let what = format!("{} starts again", members[index].name);
    stage.story.timed(what, || members[index].peer.start_again()).0.expect("a broker");
    whole(stage, server, topic, members);
}
