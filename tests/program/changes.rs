//! Commands that change something, on every server of a list.

use waypost_testkit::peers::poll_until;

use crate::harness::{DEADLINE, DeadPort, Server, ask};

#[test]
fn a_change_goes_to_every_server() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let told = ask(&format!("kv put ns k v -n {};{}", first.address, second.address));
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    for server in [&first, &second] {
        assert!(told.out.contains(&format!("{}  put", server.address)), "{}", told.out);
        assert_eq!(server.ask("kv get ns k").out, "v\n");
    }
    assert_eq!(ask(&format!("kv delete ns k -n {};{}", first.address, second.address)).code, 0);
    assert_eq!(first.ask("kv get ns k").code, 1);
}

#[test]
fn a_change_that_one_server_missed_ends_with_code_4_and_names_it() {
    let server = Server::start(&[]);
    let dead = DeadPort::new();
    let told = ask(&format!("kv put ns k v -n {};{} -o json", server.address, dead.address()));
    assert_eq!(told.code, 4);
    let rows: serde_json::Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!((&rows[0]["done"], &rows[1]["done"]), (&true.into(), &false.into()), "{rows}");
    assert_eq!(rows[1]["error"], "unreachable");
    assert!(told.sentence().contains(&dead.address().to_string()), "{}", told.err);
    assert_eq!(ask(&format!("kv put ns k v -n {}", dead.address())).code, 3);
}

#[test]
fn write_permission_is_wiped_and_given_back_and_a_waypost_shows_the_overlay() {
    let server = Server::start(&[]);
    let _broker = server.register("b", "127.0.0.1:10911", &["T1", "T2"]);
    let told = server.ask("wipe-write b");
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.contains("wiped   2"), "{}", told.out);
    let route = server.ask_both("route T1 -o json").json();
    assert_eq!(
        (&route["brokers"][0]["permission"], &route["brokers"][0]["announced_perm"]),
        (&"R--".into(), &6.into())
    );
    assert_eq!(server.ask("add-write b").code, 0);
    assert_eq!(server.ask("route T1 -o json").json()["brokers"][0]["permission"], "RW-");
    let nobody = server.ask("wipe-write nobody");
    assert_eq!(nobody.code, 1);
    assert!(nobody.sentence().contains("`waypost brokers`"), "{}", nobody.err);
}

#[test]
fn a_deleted_topic_has_no_route() {
    let server = Server::start(&[]);
    let _broker = server.register("b", "127.0.0.1:10911", &["T1", "T2"]);
    assert_eq!(server.ask("delete-topic T1 --cluster OtherCluster").code, 0);
    assert_eq!(server.ask("route T1").code, 0);
    assert_eq!(server.ask("delete-topic T1 --cluster TestCluster").code, 0);
    assert_eq!(server.ask("route T1").code, 1);
    assert_eq!(server.ask("delete-topic T2").code, 0);
    assert_eq!(server.ask("topics").out, "");
}

#[test]
fn settings_change_on_one_server_or_on_all_but_never_by_accident() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let list = format!("{};{}", first.address, second.address);
    let told = ask(&format!("config set brokerExpireMillis=90000 -n {list}"));
    assert_eq!(told.code, 2);
    assert!(told.sentence().contains("--all"), "{}", told.err);
    assert_eq!(first.ask("config get brokerExpireMillis").out, "brokerExpireMillis=120000\n");

    assert_eq!(first.ask("config set brokerExpireMillis=100000").code, 0);
    assert_eq!(first.ask("config get brokerExpireMillis").out, "brokerExpireMillis=100000\n");
    assert_eq!(ask(&format!("config set brokerExpireMillis=90000 --all -n {list}")).code, 0);
    assert_eq!(second.ask("config get brokerExpireMillis").out, "brokerExpireMillis=90000\n");

    let refused = first.ask("config set listenPort=1");
    assert_eq!(refused.code, 1);
    assert!(refused.sentence().contains("restart"), "{}", refused.err);
    assert_eq!(first.ask("config set brokerExpireMilis=1").code, 1);
}

#[test]
fn who_sets_a_doubtful_value_is_warned() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let told = first.ask("config set brokerExpireMillis=300000");
    assert_eq!(told.code, 0);
    assert!(told.err.starts_with("warning: brokerExpireMillis = 300000 "), "{}", told.err);
    assert!(told.err.contains("305 s"), "{}", told.err);
    assert_eq!(first.ask("config set enableTopicList=false").err, "");

    let list = format!("{};{}", first.address, second.address);
    let told = ask(&format!(
        "config set brokerExpireMillis=1000 scanNotActiveBrokerInterval=2000 --all -n {list} -o json"
    ));
    assert_eq!(told.err.lines().filter(|line| line.starts_with("warning: ")).count(), 2, "{}", told.err);
    assert_eq!(told.json()[1]["warnings"].as_array().map(Vec::len), Some(2), "{}", told.out);
}

#[test]
fn a_deleted_topic_that_brokers_announce_is_said_to_come_back() {
    let server = Server::start(&[]);
    let _ba = server.register("ba", "127.0.0.1:10911", &["T1", "T2"]);
    let bb = server.register("bb", "127.0.0.1:10912", &["T1", "T2"]);
    let told = server.ask_both("delete-topic T1");
    assert_eq!(told.code, 0, "{}", told.err);
    let comes_back = format!("their next registrations bring it back to {} within 30 s", server.address);
    assert!(
        told.err.starts_with("note: ba and bb had announced \"T1\" when it was deleted "),
        "{}",
        told.err
    );
    assert!(told.err.contains(&comes_back), "{}", told.err);

    let told = server.ask_both("route T1");
    let sentence = told.sentence();
    assert_eq!(told.code, 1, "{sentence}");
    assert!(sentence.contains("no broker has registered it, or it was deleted here since"), "{sentence}");
    assert!(
        sentence.contains("ba and bb had announced \"T1\"") && sentence.contains(&comes_back),
        "{sentence}"
    );
    let (_, table) = server.get("/v1/table?topic=T1");
    let table: serde_json::Value = serde_json::from_str(&table).expect("JSON");
    assert_eq!(table["deleted"][0]["brokers"], serde_json::json!(["ba", "bb"]), "{table}");

    // One announces it again, the other one leaves.
    let _again = server.register("ba", "127.0.0.1:10911", &["T1", "T2"]);
    let told = server.ask_both("route T1");
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.starts_with("note: bb had announced \"T1\""), "{}", told.err);
    drop(bb);
    let forgotten = poll_until(DEADLINE, || server.ask_both("route T1").err.is_empty().then_some(()));
    assert!(forgotten.is_some(), "it left, and still it is said to bring the topic back");
}

#[test]
fn who_announces_a_topic_is_said_to_be_unknown_where_no_admin_side_is_in_reach() {
    let server = Server::start(&["--set", "adminListen=off"]);
    let _broker = server.register("ba", "127.0.0.1:10911", &["Orders", "Stock"]);
    let told = server.ask("delete-topic Orders");
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains("out of reach (--admin)"), "{}", told.err);
    let told = server.ask("route Orders");
    assert_eq!(told.code, 1, "{}", told.err);
    let sentence = told.sentence();
    assert!(sentence.contains("or it was deleted here since"), "{sentence}");
    assert!(sentence.contains(&format!("brings it back to {}", server.address)), "{sentence}");
    assert!(sentence.contains("out of reach (--admin)"), "{sentence}");
}
