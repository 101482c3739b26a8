use super::*;
use waypost_rocketmq_discovery::route::TopicRoute;
use waypost_rocketmq_wire::body::{BrokerData, QueueData};

const HOUR: u64 = 3_600_000;

/// A wall-clock time, far from zero.
const WALL: u64 = 1_000 * HOUR;

fn route(queues: i32) -> TopicRouteData {
    let queues = QueueData {
        broker_name: "a\tb".to_owned(),
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm: 6,
        topic_sys_flag: 0,
    };
    let broker = BrokerData {
        broker_name: "a\tb".to_owned(),
        broker_addrs: [(0, "127.0.0.1:10911".to_owned())].into(),
        ..BrokerData::default()
    };
    TopicRouteData { queue_datas: vec![queues], broker_datas: vec![broker], ..TopicRouteData::default() }
}

fn known(topic: &str, queues: i32, checked: Option<u64>) -> (Arc<str>, Known) {
    let route = Some(Arc::new(TopicRoute::from(route(queues))));
    (topic.into(), Known { route, checked: checked.map(Millis::new), stale: false })
}

/// A file with these topics, each confirmed at [`WALL`].
fn file(topics: &[&str]) -> String {
    let known = topics.iter().map(|topic| known(topic, 4, Some(0))).collect();
    Table::default().next(known, Millis::ZERO, WALL).expect("something to write").text
}

fn topics(loaded: &Loaded) -> Vec<&str> {
    loaded.routes.iter().map(|(topic, _)| &**topic).collect()
}

#[test]
fn what_was_written_is_read() {
    let loaded = Table::load(file(&["%RETRY%g", "T"]).as_bytes(), WALL + HOUR);
    assert_eq!(topics(&loaded), ["%RETRY%g", "T"]);
    assert!(loaded.routes.iter().all(|(_, read)| *read == route(4)));
    assert_eq!(loaded.table.routes.get("T").map(|line| line.confirmed), Some(WALL));
    assert_eq!(loaded.damaged, 0);
}

#[test]
fn what_is_older_than_a_day_is_dropped_without_a_word() {
    let loaded = Table::load(file(&["T"]).as_bytes(), WALL + 24 * HOUR);
    assert_eq!((loaded.routes.len(), loaded.damaged), (1, 0));
    let loaded = Table::load(file(&["T"]).as_bytes(), WALL + 24 * HOUR + 1);
    assert_eq!((loaded.routes.len(), loaded.damaged), (0, 0));
}

#[test]
fn a_clock_that_was_set_back_costs_no_route() {
    let loaded = Table::load(file(&["T"]).as_bytes(), WALL - 500 * HOUR);
    assert_eq!(loaded.table.routes.get("T").map(|line| line.confirmed), Some(WALL - 500 * HOUR));
}

#[test]
fn one_damaged_byte_costs_one_route_and_is_told() {
    let whole = file(&["T", "U", "V"]).into_bytes();
    for at in 0..whole.len() {
        for byte in [whole[at] ^ 1, whole[at] ^ 8, 0xff, b'\n', b'\t', b'0'] {
            if byte == whole[at] {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[at] = byte;
            let loaded = Table::load(&damaged, WALL);
            assert!(loaded.damaged > 0, "byte {at} as {byte:#x} was not told");
            assert!((1..=3).contains(&loaded.routes.len()), "byte {at} as {byte:#x}");
            for (topic, read) in &loaded.routes {
                assert!(["T", "U", "V"].contains(&&**topic), "{topic}");
                assert_eq!(*read, route(4), "byte {at} as {byte:#x}");
            }
        }
    }
}

#[test]
fn a_truncated_file_keeps_its_whole_lines_and_is_told() {
    let whole = file(&["T", "U", "V"]);
    for length in 0..whole.len() - 1 {
        let loaded = Table::load(&whole.as_bytes()[..length], WALL);
        assert!(loaded.damaged > 0, "the first {length} bytes");
        assert!(loaded.routes.len() < 3, "the first {length} bytes");
    }
    assert_eq!(Table::load(&whole.as_bytes()[..whole.len() - 1], WALL).damaged, 0, "only the last line end");
}

#[test]
fn a_file_of_an_earlier_version_is_read_where_it_makes_sense() {
    let json = |queues| String::from_utf8(serde_json_of(&route(queues))).expect("text");
    let good = format!("T\t{WALL}\t{}\n", json(4));
    let loaded = Table::load(good.as_bytes(), WALL);
    assert_eq!((topics(&loaded), loaded.damaged), (vec!["T"], 0));
    for bad in [
        "half a li".to_owned(),
        format!("U\tx\t{}", json(4)),
        format!("U\t-1\t{}", json(4)),
        format!("U\t{}\t{}", u64::MAX, json(4)),
        format!("U\t99999999999999999999999\t{}", json(4)),
        format!("U\t{WALL}\t{}", json(-4)),
        format!("U\t{WALL}\t{{}}"),
        format!("U\t{WALL}\t{{\"queueDatas\":"),
        format!("\t{WALL}\t{}", json(4)),
    ] {
        let loaded = Table::load(format!("{good}{bad}\n").as_bytes(), WALL);
        assert_eq!((topics(&loaded), loaded.damaged), (vec!["T"], 1), "{bad}");
    }
}

fn serde_json_of(route: &TopicRouteData) -> Vec<u8> {
    let mut json = Vec::new();
    route.encode(waypost_rocketmq_wire::body::Dialect::Standard, &mut json);
    json
}

#[test]
fn nothing_is_written_while_routes_are_only_confirmed_again() {
    let table = Table::load(file(&["T", "U"]).as_bytes(), WALL).table;
    for minutes in 0..60 {
        let now = minutes * 60_000;
        let known = vec![known("T", 4, Some(now)), known("U", 4, None)];
        assert!(table.next(known, Millis::new(now), WALL + now).is_none(), "after {minutes} minutes");
    }
}

#[test]
fn a_confirmation_is_written_when_the_one_on_disk_is_an_hour_old() {
    let table = Table::load(file(&["T"]).as_bytes(), WALL).table;
    let next =
        table.next(vec![known("T", 4, Some(HOUR - 5_000))], Millis::new(HOUR), WALL + HOUR).expect("due");
    assert_eq!(next.table.routes.get("T").map(|line| line.confirmed), Some(WALL + HOUR - 5_000));
    let again = vec![known("T", 4, Some(HOUR + 30_000))];
    assert!(next.table.next(again, Millis::new(HOUR + 30_000), WALL + HOUR + 30_000).is_none());
    // Nobody confirmed it since: what is on disk is true.
    assert!(table.next(vec![known("T", 4, None)], Millis::new(HOUR), WALL + HOUR).is_none());
}

#[test]
fn a_change_is_written_at_once() {
    let table = Table::load(file(&["T", "U"]).as_bytes(), WALL).table;
    let now = Millis::new(1);
    let write = |known| table.next(known, now, WALL + 1).is_some();
    assert!(write(vec![known("T", 8, Some(1)), known("U", 4, Some(1))]), "other queues");
    assert!(
        write(vec![known("T", 4, Some(1)), known("U", 4, Some(1)), known("V", 4, Some(1))]),
        "a new topic"
    );
    assert!(write(vec![known("T", 4, Some(1))]), "a topic that is gone");
    assert!(!write(vec![known("T", 4, Some(1)), known("U", 4, Some(1))]));
}

#[test]
fn an_unconfirmed_route_leaves_the_disk_after_a_day() {
    let table = Table::load(file(&["T"]).as_bytes(), WALL).table;
    let unconfirmed = || vec![known("T", 4, None)];
    assert!(table.next(unconfirmed(), Millis::ZERO, WALL + 24 * HOUR).is_none());
    let next = table.next(unconfirmed(), Millis::ZERO, WALL + 24 * HOUR + 1).expect("due");
    assert_eq!(next.text, "#routes 0\n");
}

#[tokio::test]
async fn whatever_is_in_place_of_the_file_the_agent_goes_on() {
    let number = std::process::id();
    let folder = std::env::temp_dir().join(format!("waypost-saved-{number}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join(FILE)).expect("a folder in place of the file");
    let nobody = [std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into()].into_iter().collect();
    let options = waypost_rocketmq_discovery::client::Options::new(
        waypost_rocketmq_remoting::source::Source::List(nobody),
    );
    let discovery = Discovery::start(options).expect("a runtime");
    let saved = SavedRoutes::open(&folder, &discovery);
    assert!(saved.on_disk.lock().expect("unpoisoned").routes.is_empty());
    assert!(saved.save(&discovery).is_ok(), "nothing to write");
    std::fs::remove_dir(folder.join(FILE)).expect("removed");
    std::os::unix::fs::symlink("/dev/zero", folder.join(FILE)).expect("an endless file");
    let saved = SavedRoutes::open(&folder, &discovery);
    assert!(saved.on_disk.lock().expect("unpoisoned").routes.is_empty());
    std::fs::remove_dir_all(folder).expect("removed");
}
