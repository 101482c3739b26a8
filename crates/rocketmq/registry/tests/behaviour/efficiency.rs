//! How much a command touches, in numbers that do not depend on the machine.

use std::collections::HashSet;
use std::sync::Arc;

use waypost_rocketmq_registry::Outcome;

use crate::fixture::{Broker, World, accepted, broker, changed, topic};

const TOPICS: usize = 50_000;

/// A broker with many topics, all with 8 queues.
fn big(name: &str, address: &str, connection: u64) -> Broker {
    let mut big = broker(name, 0, address).on(connection);
    big.topics = (0..TOPICS).map(|number| topic(&format!("topic-{number}"), 6)).collect();
    big
}

fn distinct_routes(world: &World) -> usize {
    let routes = (0..TOPICS).filter_map(|number| world.published(&format!("topic-{number}")));
    routes.map(|route| Arc::as_ptr(&route)).collect::<HashSet<_>>().len()
}

#[test]
fn a_change_of_one_topic_among_many_changes_one_route() {
    let mut world = World::new();
    let mut ba = big("ba", "A", 1);
    assert_eq!(world.register(&ba).changed.len(), TOPICS);
    assert_eq!(distinct_routes(&world), 1, "all topics look the same");

    assert_eq!(world.renew(&ba).outcome, accepted());
    assert!(world.register(&ba).changed.is_empty(), "unchanged");
    ba = ba.version(2);
    assert!(world.register(&ba).changed.is_empty(), "unchanged under another version");
    ba = ba.perm("topic-777", 4).version(3);
    let effects = world.register(&ba);
    assert_eq!(changed(&effects), ["topic-777"]);
    assert_eq!(effects.events.len(), 1);
    assert_eq!(distinct_routes(&world), 2);

    // A broker that comes shows in all routes once, and only in them when it goes.
    assert_eq!(world.register(&big("bb", "B", 2)).changed.len(), TOPICS);
    assert_eq!(distinct_routes(&world), 2);
    assert_eq!(world.close(2).changed.len(), TOPICS);
    assert_eq!(world.delete_topic("topic-1", None).changed.len(), 1);
    assert_eq!(world.renew(&ba).outcome, Outcome::BodyNeeded);
    assert_eq!(changed(&world.register(&ba)), ["topic-1"]);

    // An empty table has given everything back.
    assert_eq!(world.close(1).changed.len(), TOPICS);
    assert_eq!(world.table.counts(), World::new().table.counts());
    assert!(world.index.is_empty());
}
