use std::collections::BTreeMap;

use super::*;
use crate::brokers::{Cluster, DataVersion};
use crate::doctor::{BrokerFinding, ServerFinding};
use crate::route::{RouteAddress, StaticQueues};

fn group(broker: &str, addresses: &[(i64, &str)]) -> RouteBroker {
    RouteBroker {
        broker: broker.into(),
        cluster: Some("C".into()),
        read_queues: 8,
        write_queues: 4,
        perm: 6,
        permission: "RW-".into(),
        addresses: addresses
            .iter()
            .map(|(id, address)| RouteAddress { id: *id, address: (*address).into(), details: None })
            .collect(),
        ..RouteBroker::default()
    }
}

fn some_details() -> Details {
    Details {
        registered_at_ms: 1_000,
        registered_for_ms: 192_000,
        last_heartbeat_age_ms: 4_200,
        timeout_ms: 120_000,
        removed_in_ms: None,
        data_version: DataVersion { state_version: 0, timestamp: 1_700_000_000_000, counter: 3 },
        ha_address: Some("10.0.0.1:10912".into()),
        peer: Some("10.0.0.1:40000".into()),
    }
}

#[test]
fn a_route_is_one_line_a_broker() {
    let shown = Route {
        topic: "T".into(),
        brokers: vec![
            group("broker-a", &[(0, "10.0.0.1:10911"), (1, "10.0.0.2:10911")]),
            group("b", &[(0, "10.0.0.3:10911")]),
        ],
        ..Route::default()
    };
    let expected = "\
BROKER    CLUSTER  READ  WRITE  PERM  ADDRESSES
broker-a  C        8     4      RW-   0=10.0.0.1:10911 1=10.0.0.2:10911
b         C        8     4      RW-   0=10.0.0.3:10911
";
    assert_eq!(route(&shown), expected);
}

#[test]
fn a_route_shows_overlays_zones_orders_mappings_and_details_where_there_are_any() {
    let mut first = group("broker-a", &[(0, "10.0.0.1:10911")]);
    (first.perm, first.permission, first.announced_perm) = (4, "R--".into(), Some(6));
    first.zone = Some("z1".into());
    first.addresses[0].details = Some(some_details());
    let mapping = StaticQueues {
        broker: "broker-a".into(),
        total_queues: 2,
        epoch: 7,
        queues: BTreeMap::from([(0, 0), (1, 5)]),
    };
    let shown = Route {
        topic: "T".into(),
        order_configuration: Some("broker-a:8".into()),
        brokers: vec![first, group("b", &[])],
        static_queues: vec![mapping],
        ..Route::default()
    };
    let expected = "\
BROKER    CLUSTER  READ  WRITE  PERM  ANNOUNCED  ZONE  ADDRESSES
broker-a  C        8     4      R--   RW-        z1    0=10.0.0.1:10911
b         C        8     4      RW-   -          -     -

order: broker-a:8

STATIC QUEUES ON  EPOCH  TOTAL  LOGICAL=PHYSICAL
broker-a          7      2      0=0 1=5

BROKER    ID  ADDRESS         REGISTERED  HEARD     TIMEOUT  DATA VERSION       HA ADDRESS      CONNECTION      STATE
broker-a  0   10.0.0.1:10911  3m12s       4.2s ago  2m00s    0/1700000000000/3  10.0.0.1:10912  10.0.0.1:40000  live
";
    assert_eq!(route(&shown), expected);
}

#[test]
fn brokers_without_details_have_no_empty_columns() {
    let broker = |name: &str, id| Broker {
        cluster: "C".into(),
        broker: name.into(),
        id,
        address: format!("10.0.0.{id}:10911"),
        ..Broker::default()
    };
    let mut shown = Brokers { server: "s".into(), brokers: vec![broker("a", 0), broker("a", 1)] };
    let expected = "\
CLUSTER  BROKER  ID  ADDRESS
C        a       0   10.0.0.0:10911
C        a       1   10.0.0.1:10911
";
    assert_eq!(brokers(&shown), expected);
    shown.brokers[1].details =
        Some(Details { removed_in_ms: Some(29_000), peer: None, ha_address: None, ..some_details() });
    let expected = "\
CLUSTER  BROKER  ID  ADDRESS         REGISTERED  HEARD     TIMEOUT  DATA VERSION       HA ADDRESS  CONNECTION  STATE
C        a       0   10.0.0.0:10911  -           -         -        -                  -           -           -
C        a       1   10.0.0.1:10911  3m12s       4.2s ago  2m00s    0/1700000000000/3  -           gone        suspect, leaves in 29s
";
    assert_eq!(brokers(&shown), expected);
}

#[test]
fn clusters_tell_which_brokers_lost_their_master() {
    let cluster = |name: &str, without_master: &[&str]| Cluster {
        cluster: name.into(),
        brokers: vec!["a".into(), "b".into()],
        addresses: 3,
        without_master: without_master.iter().map(|&name| name.into()).collect(),
    };
    let mut shown = Clusters { server: "s".into(), clusters: vec![cluster("C1", &[])] };
    assert_eq!(clusters(&shown), "CLUSTER  ADDRESSES  BROKERS\nC1       3          a b\n");
    shown.clusters.push(cluster("C2", &["b"]));
    let expected = "\
CLUSTER  ADDRESSES  BROKERS  WITHOUT MASTER
C1       3          a b      -
C2       3          a b      b
";
    assert_eq!(clusters(&shown), expected);
}

#[test]
fn changes_are_told_server_by_server() {
    let row = |server: &str, topics, error| OutcomeRow {
        server: server.into(),
        done: true,
        topics,
        warnings: Vec::new(),
        error,
        message: None,
    };
    let rows = [row("a:9876", Some(12), None), row("b:9876", None, Some("not_found"))];
    let expected = "\
SERVER  RESULT     TOPICS
a:9876  wiped      12
b:9876  not found  -
";
    assert_eq!(outcomes(&rows, "wiped"), expected);
    assert_eq!(outcomes(&rows[1..], "put"), "SERVER  RESULT\nb:9876  not found\n");
}

#[test]
fn findings_are_two_tables() {
    let shown = Findings {
        servers: vec![
            ServerFinding {
                server: "a:9876".into(),
                answers: true,
                state: "answers",
                reached: true,
                clusters: 1,
                brokers: 1,
            },
            ServerFinding { server: "b:9876".into(), state: "silent", ..ServerFinding::default() },
        ],
        brokers: vec![BrokerFinding {
            cluster: "C".into(),
            broker: "b".into(),
            id: 0,
            address: "127.0.0.1:10911".into(),
            reachable: false,
            known_to: vec!["a:9876".into()],
        }],
        problems: vec!["x".into()],
    };
    let expected = "\
SERVER  STATE    CLUSTERS  BROKERS
a:9876  answers  1         1
b:9876  silent   0         0

CLUSTER  BROKER  ID  ADDRESS          REACHABLE  KNOWN TO
C        b       0   127.0.0.1:10911  no         a:9876
";
    assert_eq!(findings(&shown), expected);
}

#[test]
fn nothing_that_a_server_sends_reaches_a_terminal_as_a_control() {
    let shown =
        Topics { topics: vec!["a\u{1b}[2Jb".into(), "c\nd".into(), "\u{202e}e".into()], ..Topics::default() };
    assert_eq!(topics(&shown), "a\\u{1b}[2Jb\nc\\nd\n\\u{202e}e\n");
    let entries = BTreeMap::from([("k".to_owned(), "1\r\n2".to_owned())]);
    let shown = KvNamespace { entries, ..KvNamespace::default() };
    assert_eq!(kv(&shown), "KEY  VALUE\nk    1\\r\\n2\n");
}

#[test]
fn spans_have_their_two_largest_units() {
    let table = [
        (0, "0ms"),
        (999, "999ms"),
        (4_260, "4.3s"),
        (59_999, "59s"),
        (60_000, "1m00s"),
        (3_725_000, "1h02m"),
        (90_000_000, "1d01h"),
    ];
    for (milliseconds, text) in table {
        assert_eq!(span(milliseconds), text);
    }
}

#[test]
fn the_json_of_a_route_has_the_documented_members() {
    let mut first = group("a", &[(0, "10.0.0.1:10911")]);
    first.addresses[0].details = Some(Details { data_version: DataVersion::default(), ..some_details() });
    let shown =
        Route { topic: "T".into(), server: "s:9876".into(), brokers: vec![first], ..Route::default() };
    let expected = r#"{
  "topic": "T",
  "server": "s:9876",
  "order_configuration": null,
  "brokers": [
    {
      "broker": "a",
      "cluster": "C",
      "zone": null,
      "acting_master": false,
      "read_queues": 8,
      "write_queues": 4,
      "perm": 6,
      "permission": "RW-",
      "sys_flag": 0,
      "addresses": [
        {
          "id": 0,
          "address": "10.0.0.1:10911",
          "details": {
            "registered_at_ms": 1000,
            "registered_for_ms": 192000,
            "last_heartbeat_age_ms": 4200,
            "timeout_ms": 120000,
            "removed_in_ms": null,
            "data_version": {
              "state_version": 0,
              "timestamp": 0,
              "counter": 0
            },
            "ha_address": "10.0.0.1:10912",
            "peer": "10.0.0.1:40000"
          }
        }
      ]
    }
  ],
  "static_queues": []
}
"#;
    assert_eq!(json(&shown), expected);
}

#[test]
fn a_configuration_tells_sources_and_what_has_no_effect() {
    let row = |key: &str, value: &str, source: &str, acts| ConfigurationRow {
        key: key.into(),
        value: value.into(),
        source: source.into(),
        acts,
    };
    let rows =
        [row("listenPort", "9877", "flag listenPort", true), row("productEnvName", "", "default", false)];
    let expected = "\
KEY             VALUE  SOURCE
listenPort      9877   flag listenPort
productEnvName  -      default (no effect)
";
    assert_eq!(configuration(&rows), expected);
}
