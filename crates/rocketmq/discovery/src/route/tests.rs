use super::*;
use crate::publish::{DEFAULT_TOPIC_QUEUES, UnwritableReason, default_topic_route};
use crate::queue::{Queue, QueueList};

fn group(name: &str, addresses: &[(i64, &str)]) -> BrokerData {
    BrokerData {
        cluster: "c".into(),
        broker_name: name.into(),
        broker_addrs: addresses.iter().map(|&(id, address)| (id, address.to_owned())).collect(),
        ..BrokerData::default()
    }
}

fn entry(broker: &str, read: i32, write: i32, perm: i32) -> QueueData {
    QueueData {
        broker_name: broker.into(),
        read_queue_nums: read,
        write_queue_nums: write,
        perm,
        topic_sys_flag: 0,
    }
}

fn data(groups: Vec<BrokerData>, entries: Vec<QueueData>) -> TopicRouteData {
    TopicRouteData { broker_datas: groups, queue_datas: entries, ..TopicRouteData::default() }
}

fn two_brokers() -> TopicRouteData {
    data(
        vec![
            group("b", &[(0, "10.0.0.2:10911")]),
            group("a", &[(0, "10.0.0.1:10911"), (1, "10.0.0.3:10911")]),
        ],
        vec![entry("b", 2, 2, 6), entry("a", 3, 1, 6)],
    )
}

fn shown(list: &QueueList) -> Vec<String> {
    list.iter().map(|queue: Queue| format!("{}:{}", queue.broker_name(), queue.id)).collect()
}

#[test]
fn both_views_are_sorted_by_broker_and_have_their_own_counts() {
    let route = TopicRoute::from(two_brokers());
    assert_eq!(shown(route.publish()), ["a:0", "b:0", "b:1"]);
    assert_eq!(shown(route.subscribe()), ["a:0", "a:1", "a:2", "b:0", "b:1"]);
    assert!(!route.publish().is_ordered());
}

#[test]
fn only_brokers_with_permission_and_master_are_written() {
    let route = TopicRoute::from(data(
        vec![
            group("a", &[(0, "1:1")]),
            group("b", &[(1, "2:1")]),
            group("c", &[(0, "3:1")]),
            group("d", &[]),
            group("f", &[(0, "4:1")]),
        ],
        vec![
            entry("a", 1, 1, 4),
            entry("b", 1, 1, 6),
            entry("c", 1, 0, 6),
            entry("d", 1, 1, 6),
            entry("e", 1, 1, 2),
            entry("f", -1, -1, 6),
        ],
    ));
    assert!(route.publish().is_empty());
    let refused = route.writable("T").unwrap_err();
    let reasons: Vec<_> = refused.brokers.iter().map(|(broker, reason)| (&**broker, *reason)).collect();
    assert_eq!(
        reasons,
        [
            ("a", UnwritableReason::NoWritePermission { perm: 4 }),
            ("b", UnwritableReason::NoMaster),
            ("c", UnwritableReason::NoWriteQueues),
            ("d", UnwritableReason::NoAddress),
            ("e", UnwritableReason::NoAddress),
            ("f", UnwritableReason::NoWriteQueues),
        ]
    );
    assert!(refused.to_string().starts_with(
        "topic T exists but cannot be written: broker a has no write permission (perm 4), broker b has no master"
    ));
    // Reading asks for the permission only.
    assert_eq!(shown(route.subscribe()), ["a:0", "b:0", "c:0", "d:0"]);
    let addressed: Vec<bool> = route.subscribe().ranges().iter().map(|range| range.addressed).collect();
    assert_eq!(addressed, [true, true, true, false]);
}

#[test]
fn a_route_without_queues_says_that_too() {
    let refused = TopicRoute::default().writable("T").unwrap_err();
    assert!(refused.to_string().contains("no broker has queues of it"), "{refused}");
}

#[test]
fn an_order_configuration_decides_alone() {
    let mut data = two_brokers();
    data.order_topic_conf = Some("z:2;a:1;".into());
    let route = TopicRoute::from(data);
    assert_eq!(shown(route.publish()), ["z:0", "z:1", "a:0"]);
    assert!(route.publish().is_ordered());
    let addressed: Vec<bool> = route.publish().ranges().iter().map(|range| range.addressed).collect();
    assert_eq!(addressed, [false, true]);
    assert_eq!(route.subscribe().len(), 5);
}

#[test]
fn malformed_items_of_an_order_configuration_are_reported_and_left_out() {
    let mut data = two_brokers();
    data.order_topic_conf = Some("a;b:x;:3;;c:1:9;d:-2;e:99999999999;\u{e9}:1".into());
    let route = TopicRoute::from(data);
    assert_eq!(shown(route.publish()), ["c:0", "\u{e9}:0"]);
    let bad: Vec<_> =
        route.publish().malformed_order_items().iter().map(|item| (item.position, &*item.item)).collect();
    assert_eq!(bad, [(1, "a"), (2, "b:x"), (3, ":3"), (4, ""), (7, "e:99999999999")]);
    let mut data = two_brokers();
    data.order_topic_conf = Some("nonsense".into());
    let refused = TopicRoute::from(data).writable("T").unwrap_err();
    assert_eq!(refused.brokers[0].1, UnwritableReason::NotInOrderConfiguration);
}

fn static_topic(order_conf: Option<&str>) -> TopicRoute {
    let mut data = two_brokers();
    let mapping = TopicQueueMapping {
        bname: Some("b".into()),
        scope: Some("__global__".into()),
        total_queues: 2,
        epoch: 1,
        curr_id_map: [(0, 0)].into(),
        ..TopicQueueMapping::default()
    };
    data.topic_queue_mapping_by_broker = Some([("b".to_owned(), mapping)].into());
    data.order_topic_conf = order_conf.map(str::to_owned);
    TopicRoute::from(data)
}

#[test]
fn a_static_topic_has_logical_queues_unless_an_order_configuration_is_there() {
    let logical = ["__syslo__global__:0", "__syslo__global__:1"];
    let route = static_topic(None);
    assert_eq!(shown(route.publish()), logical);
    let first = route.publish().get(0).unwrap();
    assert_eq!((&*first.broker, first.broker_name()), ("b", "__syslo__global__"));
    assert_eq!(&*route.publish().get(1).unwrap().broker, crate::static_topic::UNOWNED);
    // An empty configuration is one, and turns the logical queues off for publishing only.
    let route = static_topic(Some(""));
    assert_eq!(shown(route.publish()), ["a:0", "b:0", "b:1"]);
    assert_eq!(shown(route.subscribe()), logical);
    let route = static_topic(Some("a:1"));
    assert_eq!(shown(route.publish()), ["a:0"]);
    assert_eq!(shown(route.subscribe()), logical);
}

#[test]
fn the_default_topic_gives_at_most_four_queues_a_broker() {
    let default = data(vec![group("a", &[(0, "1:1")])], vec![entry("a", 8, 16, 7), entry("b", 2, 8, 7)]);
    let derived = default_topic_route(default, DEFAULT_TOPIC_QUEUES);
    let counts: Vec<_> =
        derived.queue_datas.iter().map(|entry| (entry.read_queue_nums, entry.write_queue_nums)).collect();
    assert_eq!(counts, [(4, 4), (2, 2)]);
}

#[test]
fn the_order_of_lists_and_the_ignored_fields_make_no_change() {
    let before = TopicRoute::from(two_brokers());
    let mut turned = two_brokers();
    turned.broker_datas.reverse();
    turned.queue_datas.reverse();
    assert_eq!(TopicRoute::from(turned.clone()), before);
    turned.broker_datas[0].cluster = "other".into();
    turned.broker_datas[0].zone_name = Some("z".into());
    turned.broker_datas[1].enable_acting_master = true;
    let turned = TopicRoute::from(turned);
    assert!(turned.content_equals(&before));
    assert_ne!(turned, before);
}

#[test]
fn each_compared_field_makes_a_change() {
    type Edit = fn(&mut TopicRouteData);
    let edits: [Edit; 11] = [
        |data| data.order_topic_conf = Some(String::new()),
        |data| data.queue_datas[0].broker_name = "z".into(),
        |data| data.queue_datas[0].read_queue_nums += 1,
        |data| data.queue_datas[0].write_queue_nums += 1,
        |data| data.queue_datas[0].perm = 4,
        |data| data.queue_datas[0].topic_sys_flag = 1,
        |data| drop(data.queue_datas.pop()),
        |data| data.broker_datas[0].broker_name = "z".into(),
        |data| drop(data.broker_datas[0].broker_addrs.insert(0, "other:1".into())),
        |data| drop(data.filter_server_table.insert("a".into(), vec![])),
        |data| data.topic_queue_mapping_by_broker = Some(BTreeMap::new()),
    ];
    let before = TopicRoute::from(two_brokers());
    for (position, edit) in edits.iter().enumerate() {
        let mut data = two_brokers();
        edit(&mut data);
        assert!(!TopicRoute::from(data).content_equals(&before), "edit {position}");
    }
}

#[test]
fn what_a_server_said_comes_back_sorted() {
    let mut expected = two_brokers();
    expected.broker_datas.reverse();
    expected.queue_datas.reverse();
    expected.order_topic_conf = Some("a:1".into());
    let mut given = two_brokers();
    given.order_topic_conf = Some("a:1".into());
    assert_eq!(TopicRoute::from(given).to_wire(), expected);
}

#[test]
fn a_route_that_loses_more_than_half_of_its_brokers_is_noticed() {
    let groups = |names: &[&str]| {
        TopicRoute::from(data(names.iter().map(|name| group(name, &[(0, "1:1")])).collect(), vec![]))
    };
    let before = groups(&["a", "b", "c", "d"]);
    assert!(before.loses_most_brokers(&groups(&["a", "x", "y", "z"])));
    assert!(!before.loses_most_brokers(&groups(&["a", "b"])));
    assert!(!TopicRoute::default().loses_most_brokers(&before));
}

#[test]
fn equal_routes_are_one_and_unused_ones_go() {
    let mut cache = RouteCache::default();
    let first = cache.share(two_brokers());
    assert!(Arc::ptr_eq(&first, &cache.share(two_brokers())));
    let mut other = two_brokers();
    other.queue_datas[0].perm = 4;
    let other = cache.share(other);
    assert!(!Arc::ptr_eq(&first, &other));
    assert!(Arc::ptr_eq(&first.content.groups, &other.content.groups));
    for round in 0..10_000 {
        let mut fleeting = two_brokers();
        fleeting.queue_datas[0].read_queue_nums = round;
        fleeting.broker_datas[0].broker_addrs.insert(0, format!("10.0.0.1:{round}"));
        drop(cache.share(fleeting));
    }
    assert!(cache.len() <= 2 * CLEARING_FLOOR, "{} routes are kept", cache.len());
    assert!(cache.parts.groups.len() <= 2 * CLEARING_FLOOR);
    assert!(Arc::ptr_eq(&first, &cache.share(two_brokers())));
}
