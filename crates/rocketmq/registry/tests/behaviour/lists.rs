//! 106, 206, 224, 304, 311 to 313 and 901 (sections 1.3 and 2.14, S1).

use waypost_rocketmq_registry::ConnectionEnd;
use waypost_rocketmq_wire::body::{ClusterInfo, TopicConfig, TopicList};

use crate::fixture::{World, broker, master, topic};

fn list(names: &[&str]) -> TopicList {
    TopicList { broker_addr: None, topic_list: names.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn an_empty_table_has_empty_lists() {
    // S1.
    let world = World::new();
    assert_eq!(world.table.cluster_info(), ClusterInfo::default());
    assert_eq!(world.table.all_topics(), list(&[]));
    assert_eq!(world.table.system_topics(), list(&[]));
    assert_eq!(world.table.topics_of_cluster("c1"), None);
    for flagged in
        [world.table.unit_topics(), world.table.unit_sub_topics(), world.table.unit_sub_ununit_topics()]
    {
        assert_eq!(flagged, list(&[]));
    }
    let group = world.table.member_group("c", "x");
    assert_eq!((group.cluster.as_str(), group.broker_name.as_str()), ("c", "x"));
    assert!(group.broker_addrs.is_empty());
}

#[test]
fn cluster_info_has_every_broker_with_all_ids() {
    // getAllClusterInfo, A36, K12.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T1", "T2"]).in_zone("z1"));
    world.register(&broker("ba", 1, "B").in_zone("z1"));
    world.register(&master("bb", "C", &["T1", "T2"]));
    world.register(&master("bc", "D", &["T1", "T2"]).in_cluster("c2"));
    let info = world.table.cluster_info();
    let names: Vec<&String> = info.broker_addr_table.keys().collect();
    assert_eq!(names, ["ba", "bb", "bc"]);
    let ba = &info.broker_addr_table["ba"];
    assert_eq!((ba.cluster.as_str(), ba.zone_name.as_deref()), ("c1", Some("z1")));
    assert_eq!(ba.broker_addrs, [(0, "A".to_owned()), (1, "B".to_owned())].into());
    assert_eq!(info.broker_addr_table["bc"].cluster, "c2");
    assert_eq!(info.cluster_addr_table["c1"], ["ba".to_owned(), "bb".to_owned()].into());
    assert_eq!(info.cluster_addr_table["c2"], ["bc".to_owned()].into());
}

#[test]
fn all_topics_are_listed_by_name() {
    // getAllTopicList, testGetAllTopicList.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T2", "T1"]));
    world.register(&master("bb", "B", &["T3", "T1"]));
    assert_eq!(world.table.all_topics(), list(&["T1", "T2", "T3"]));
}

#[test]
fn the_topics_of_a_cluster_are_those_of_its_brokers() {
    // testGetTopicsByCluster.
    let mut world = World::new();
    world.register(&master("ba", "A", &["T2", "T1"]));
    world.register(&master("bb", "B", &["T3", "T1"]).in_cluster("c2"));
    assert_eq!(world.table.topics_of_cluster("c1"), Some(list(&["T1", "T2"])));
    assert_eq!(world.table.topics_of_cluster("c2"), Some(list(&["T1", "T3"])));
    // A18: unknown is told from empty.
    assert_eq!(world.table.topics_of_cluster("nope"), None);
    world.register(&broker("bc", 0, "C").in_cluster("c3"));
    assert_eq!(world.table.topics_of_cluster("c3"), Some(list(&[])));
}

#[test]
fn system_topics_are_the_names_of_clusters_and_brokers() {
    // 1.3, code 304.
    let mut world = World::new();
    world.register(&broker("ba", 1, "A"));
    world.register(&broker("bb", 0, "B").in_cluster("c2"));
    let system = world.table.system_topics();
    assert_eq!(system.topic_list, ["ba", "bb", "c1", "c2"]);
}

#[test]
fn the_broker_to_ask_is_a_live_master_if_there_is_one() {
    // D24.
    let mut world = World::new();
    let ask = |world: &World| world.table.system_topics().broker_addr;
    world.register(&broker("ba", 1, "A").on(1));
    assert_eq!(ask(&world).as_deref(), Some("A"));
    world.register(&broker("bb", 0, "B").on(2));
    world.register(&broker("bc", 0, "C").on(3));
    assert_eq!(ask(&world).as_deref(), Some("B"));
    world.lose(2, ConnectionEnd::TimedOut);
    assert_eq!(ask(&world).as_deref(), Some("C"));
    world.lose(3, ConnectionEnd::TimedOut);
    assert_eq!(ask(&world).as_deref(), Some("A"));
    world.lose(1, ConnectionEnd::TimedOut);
    assert_eq!(ask(&world).as_deref(), Some("A"));
}

#[test]
fn unit_topics_go_by_the_flag_of_the_first_broker() {
    // 2.14.
    let mut world = World::new();
    let flagged = |name: &str, flag: i32| TopicConfig { topic_sys_flag: flag, ..topic(name, 6) };
    let mut ba = broker("ba", 0, "A");
    ba.topics = vec![flagged("T0", 0), flagged("T1", 1), flagged("T2", 2), flagged("%RETRY%T3", 3)];
    let mut bb = broker("bb", 0, "B");
    bb.topics = vec![flagged("T0", 3), flagged("T4", 3)];
    world.register(&bb);
    world.register(&ba);
    assert_eq!(world.table.unit_topics(), list(&["%RETRY%T3", "T1", "T4"]));
    assert_eq!(world.table.unit_sub_topics(), list(&["%RETRY%T3", "T2", "T4"]));
    assert_eq!(world.table.unit_sub_ununit_topics(), list(&["T2"]));
}

#[test]
fn a_member_group_echoes_the_callers_cluster() {
    // 1.3, code 901.
    let mut world = World::new();
    world.register(&broker("ba", 0, "A"));
    world.register(&broker("ba", 1, "B"));
    let group = world.table.member_group("whatever", "ba");
    assert_eq!(group.cluster, "whatever");
    assert_eq!(group.broker_addrs, [(0, "A".to_owned()), (1, "B".to_owned())].into());
}

#[test]
fn names_of_clusters_and_brokers_are_ordinary_topics() {
    // K21.
    let mut world = World::new();
    world.register(&master("ba", "A", &["c1", "ba"]));
    world.register(&master("bb", "B", &["c1", "bb"]));
    assert_eq!(world.route("c1"), "ba@c1{0:A} 8/8 6; bb@c1{0:B} 8/8 6");
    assert_eq!(world.route("bb"), "bb@c1{0:B} 8/8 6");
}
