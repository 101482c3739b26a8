//! A name server that lost everything is whole again when every broker has registered.

use std::time::Duration;

use waypost_testkit::peers::{Broker, Settings, Version};

use crate::stage::{JAVA_TOOLS, NEXT_REGISTRATION, SOON, Stage};

/// Brokers register every 30 s and see at once that their connection broke.
const WHOLE_AGAIN: Duration = Duration::from_secs(35);

#[test]
fn whole_again_soon_after_an_empty_restart() {
    let text = "
        Brokers 5.5.0 and 4.9.7 are registered with one topic. The name server is killed with -9 and starts again,
        knowing nothing. Its route of the topic names both brokers again within 35 s.
    ";
    let Some(stage) = Stage::open("empty restart", JAVA_TOOLS, text) else { return };
    let mut server = stage.name_server(&Settings::new());
    let name_servers = server.address().to_string();
    let names = ["broker-a", "broker-b"];
    let _brokers: Vec<_> = [Version::V5, Version::V4]
        .into_iter()
        .zip(names)
        .map(|(version, name)| {
            let identity = Broker { cluster: "DefaultCluster", name, id: 0, name_servers: &name_servers };
            stage.broker(version, &identity, &Settings::new())
        })
        .collect();
    stage.wait_for_brokers(&server, &names, SOON);
    let mut admin = stage.mqadmin(Version::V5);
    stage.create_topic(&mut admin, &server, "DefaultCluster", "Whole");
    let whole = |route: &waypost_testkit::peers::Route| route.brokers() == names && route.queues.len() == 2;
    stage.wait_for_route(&server, "Whole", "names both", SOON, whole);

    server.kill();
    stage.story.timed("killed and started again", || server.start_again()).0.expect("a name server");
    let (_, took) = stage.wait_for_route(&server, "Whole", "names both again", NEXT_REGISTRATION, whole);
    assert!(!stage.program.is_waypost() || took <= WHOLE_AGAIN, "whole again after {took:?}");
}
