//! Commands that read.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use waypost_testkit::peers::poll_until;

use crate::harness::{DEADLINE, DeadPort, Server, ask, one_answer, silent_server};

fn broker(server: &Server) -> std::net::TcpStream {
    server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"])
}

#[test]
fn a_route_is_shown_to_people_and_programs() {
    let server = Server::start(&[]);
    let _broker = broker(&server);
    let told = server.ask("route T1");
    let expected = "\
BROKER    CLUSTER      READ  WRITE  PERM  ADDRESSES
broker-a  TestCluster  16    16     RW-   0=127.0.0.1:10911
";
    assert_eq!((told.code, told.out.as_str(), told.remarks().as_slice()), (0, expected, &[][..]));
    let route = server.ask_both("route T1 --output json").json();
    assert_eq!((&route["topic"], &route["brokers"][0]["perm"]), (&"T1".into(), &6.into()));
    let details = &route["brokers"][0]["addresses"][0]["details"];
    assert_eq!(details["timeout_ms"], 120_000);
    assert_eq!(details["ha_address"], "127.0.0.1:10911");
    assert!(details["last_heartbeat_age_ms"].as_u64().is_some_and(|age| age < 20_000), "{details}");
}

#[test]
fn every_read_command_has_json() {
    let server = Server::start(&[]);
    let _broker = broker(&server);
    assert_eq!(server.ask("kv put ns k v").code, 0);
    assert_eq!(server.ask("topics -o json").json()["topics"], serde_json::json!(["T1", "T2"]));
    assert_eq!(server.ask("topics --cluster TestCluster -o json").json()["cluster"], "TestCluster");
    assert_eq!(server.ask("brokers -o json").json()["brokers"][0]["broker"], "broker-a");
    assert_eq!(
        server.ask("clusters -o json").json()["clusters"][0]["brokers"],
        serde_json::json!(["broker-a"])
    );
    assert_eq!(server.ask("kv get ns k -o json").json()["value"], "v");
    assert_eq!(server.ask("kv list ns -o json").json()["entries"], serde_json::json!({"k": "v"}));
    let settings = server.ask("config get -o json").json();
    assert_eq!(settings["settings"]["listenPort"], server.address.port().to_string());
    assert_eq!(server.ask("check -o json").json()[0]["done"], true);
    assert_eq!(
        server.ask_both("brokers -o json").json()["brokers"][0]["details"]["data_version"]["counter"],
        0
    );
}

#[test]
fn what_is_not_there_ends_with_code_1_and_a_sentence() {
    let server = Server::start(&[]);
    for command in [
        "route Nope",
        "topics --cluster Nope",
        "kv get ns k",
        "kv list ns",
        "config get nope",
        "route T -o json",
    ] {
        let told = server.ask(command);
        assert_eq!((told.code, told.out.as_str()), (1, ""), "{command}");
        assert!(told.sentence().contains("`waypost "), "{command} tells no next step: {}", told.err);
    }
}

#[test]
fn an_empty_server_and_an_unreachable_one_look_different() {
    let server = Server::start(&[]);
    let empty = server.ask("brokers -o json");
    assert_eq!(empty.json()["brokers"], serde_json::json!([]));
    assert_eq!(server.ask("topics").code, 0);
    assert_eq!(server.ask("clusters -o json").json()["clusters"], serde_json::json!([]));

    let dead = DeadPort::new();
    for command in ["brokers", "topics", "clusters", "route T", "kv get n k", "config get", "check", "doctor"]
    {
        let told = ask(&format!("{command} -n {}", dead.address()));
        assert_eq!(told.code, 3, "{command}: {}", told.err);
        assert!(told.sentence().contains("connection refused"), "{command}: {}", told.err);
    }
}

#[test]
fn the_next_server_answers_for_one_that_is_dead_or_silent() {
    let server = Server::start(&[]);
    let _broker = broker(&server);
    let dead = DeadPort::new();
    let (_listener, silent) = silent_server();
    let before = Instant::now();
    let list = format!("{};{silent};{}", dead.address(), server.address);
    let told = ask(&format!("route T1 --timeout 60s -n {list}"));
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.out.contains("broker-a"), "{}", told.out);
    let remarks = told.remarks();
    assert_eq!(remarks.len(), 2, "{}", told.err);
    assert!(remarks[0].starts_with("note: cannot connect"), "{}", told.err);
    assert!(remarks[1].starts_with(&format!("note: {silent} had not answered after ")), "{}", told.err);
    let told = ask(&format!("brokers --timeout 60s -n {silent};{}", server.address));
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.starts_with(&format!("note: {silent} had not answered after ")), "{}", told.err);
    // Long before the silent one has had its time.
    assert!(before.elapsed() < DEADLINE, "{:?}", before.elapsed());
}

#[test]
fn a_topic_that_only_the_second_server_knows_is_found() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let _broker = broker(&second);
    let told = ask(&format!("route T1 -n {};{}", first.address, second.address));
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.err.contains(&format!("note: {} has no route", first.address)), "{}", told.err);
}

#[test]
fn a_silent_server_costs_no_more_than_the_limit() {
    let (_listener, silent) = silent_server();
    let told = ask(&format!("route T -n {silent} --timeout 300ms"));
    assert_eq!(told.code, 3);
    let sentence = told.sentence();
    assert!(sentence.contains("within 300ms") && sentence.contains("--timeout"), "{sentence}");
}

#[test]
fn the_list_can_come_from_the_environment() {
    let server = Server::start(&[]);
    let mut command = crate::harness::waypost();
    let output = command.arg("check").env("NAMESRV_ADDR", server.address.to_string()).output();
    assert!(output.expect("the binary runs").status.success());
}

#[test]
fn wrong_usage_ends_with_code_2() {
    for command in ["route", "fly", "route T -n a:port", "route T --tls", "config set x", "man burn"] {
        let told = ask(command);
        assert_eq!(told.code, 2, "{command}: {}", told.err);
        assert!(told.out.is_empty() && told.err.starts_with("error: "), "{command}: {}", told.err);
    }
}

#[test]
fn help_man_pages_and_completions_are_data() {
    for (command, part) in [
        ("-h", "waypost demo"),
        ("route --help", "--timeout"),
        ("man", ".TH waypost"),
        ("man kv put", "waypost\\-kv\\-put"),
        ("completions bash", "_waypost"),
        ("completions zsh", "#compdef waypost"),
    ] {
        let told = ask(command);
        assert_eq!((told.code, told.err.as_str()), (0, ""), "{command}");
        assert!(told.out.contains(part), "{command}: {}", told.out);
    }
}

#[test]
fn the_page_of_commands_names_every_command() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let (mut open, mut named) = (vec![String::new()], 0);
    while let Some(path) = open.pop() {
        let help = ask(&format!("{path} -h")).out;
        let commands = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let commands = commands.split("\n\n").next().unwrap_or_default();
        // Longer descriptions go on in further lines, which are indented deeper.
        for line in commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let name = line.split_whitespace().next().expect("a name");
            if name == "help" {
                continue;
            }
            let command = format!("{path} {name}");
            let is_group = ["kv", "config", "bench"].contains(&name);
            let has_more = is_group || name == "agent";
            let shown = command.trim_start();
            assert!(is_group || page.contains(&format!("`{shown}")), "{shown} is missing in docs/cli.md");
            named += 1;
            if has_more {
                open.push(command);
            }
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn something_else_on_the_port_is_told_from_a_server_that_is_away() {
    for (bytes, code, part) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], 1, "it speaks HTTP; by default 9880"),
        (&b"\0\0\0\x08\0\0\0\x04null"[..], 1, "is it a RocketMQ NameServer?"),
        (&b""[..], 3, "closed the connection without an answer"),
        (&b"\0\0\0\x40"[..], 3, "closed the connection without an answer"),
    ] {
        let (server, address) = one_answer(bytes);
        let told = ask(&format!("topics -n {address}"));
        server.join().expect("it answers");
        assert_eq!(told.code, code, "{}", told.err);
        assert!(told.sentence().contains(part), "{}", told.err);
    }
}

#[test]
fn an_empty_list_says_whose_it_is() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let _broker = broker(&second);
    for (command, what) in [("topics", "topic"), ("clusters", "cluster"), ("brokers", "broker")] {
        let alone = first.ask(command);
        assert_eq!(alone.code, 0, "{command}: {}", alone.err);
        let expected = format!("note: {} knows no {what}; `waypost doctor` looks", first.address);
        assert!(alone.err.starts_with(&expected), "{command}: {}", alone.err);

        let both = ask(&format!("{command} -n {};{}", first.address, second.address));
        assert_eq!(both.code, 0, "{command}: {}", both.err);
        let expected = format!("note: {} knows no {what}; the servers after it", first.address);
        assert!(both.err.starts_with(&expected), "{command}: {}", both.err);
        assert!(!second.ask(command).err.contains("knows no"), "{command}");
    }
}

#[test]
fn a_topic_that_is_not_found_names_the_servers_that_could_not_be_asked() {
    let server = Server::start(&[]);
    let dead = DeadPort::new();
    let told = ask(&format!("route T -n {};{}", dead.address(), server.address));
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    let dead = format!("note: cannot connect to {}", dead.address());
    let alive = format!("error: {} has no route", server.address);
    let line = |start: &str| told.err.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((line(&dead), line(&alive)), (1, 1), "{}", told.err);
}

#[test]
fn a_list_of_keys_without_a_namespace_says_which_one_it_means() {
    let told = Server::start(&[]).ask("kv list");
    assert_eq!(told.code, 1);
    let sentence = told.sentence();
    assert!(
        sentence.contains("\"ORDER_TOPIC_CONFIG\"") && sentence.contains("`waypost kv list NAMESPACE`"),
        "{sentence}"
    );
}

#[test]
fn a_check_has_its_own_word_for_each_cause() {
    let refusing = Server::start(&["--set", "accessRead=10.0.0.0/8"]);
    let dead = DeadPort::new();
    let (_listener, silent) = silent_server();
    let (closing, closed) = one_answer(b"");
    let (speaking, http) = one_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let list = format!("{};{silent};{closed};{http};{}", dead.address(), refusing.address);
    let told = ask(&format!("check -o json --timeout 1s -n {list}"));
    assert_eq!(told.code, 1, "{}", told.err);
    closing.join().expect("it closes");
    speaking.join().expect("it answers");
    let rows: serde_json::Value = serde_json::from_str(&told.out).expect("JSON");
    let words: Vec<_> = rows.as_array().expect("rows").iter().map(|row| &row["error"]).collect();
    assert_eq!(words, ["unreachable", "silent", "closed", "malformed", "refused"], "{rows}");
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).expect("a page");
    for word in words {
        let word = word.as_str().expect("a word");
        assert!(page.contains(&format!("| `{word}` |")), "{word} is not explained");
    }
}

#[test]
fn a_server_that_hangs_in_the_tls_handshake_is_silent() {
    let (_listener, silent) = silent_server();
    let told = ask(&format!("check --tls --tls-insecure --timeout 300ms -n {silent} -o json"));
    assert_eq!(told.code, 3, "{}", told.err);
    assert!(told.out.contains("\"error\": \"silent\""), "{}", told.out);
    assert!(told.sentence().contains("did not answer the TLS handshake"), "{}", told.err);
}

#[test]
fn servers_that_say_the_same_are_told_in_one_sentence() {
    let servers = [(); 3].map(|()| Server::start(&[]));
    let [first, second, third] = servers.each_ref().map(|server| server.address);
    let told = ask(&format!("route Nope -n {first};{second};{third}"));
    assert_eq!(told.code, 1);
    let sentence = told.sentence();
    assert_eq!(sentence.matches("has no route for topic").count(), 1, "{sentence}");
    // Which of them answers first is not known.
    for server in [first, second, third] {
        assert!(sentence.contains(&server.to_string()), "{sentence}");
    }
    assert!(sentence.contains(" answered the same)"), "{sentence}");

    let told = ask(&format!("wipe-write nobody -n {first};{second};{third}"));
    assert!(told.sentence().ends_with(&format!(" ({second} and {third} answered the same)")), "{}", told.err);
    let dead = [DeadPort::new(), DeadPort::new()];
    for command in ["route T", "check", "doctor"] {
        let told = ask(&format!("{command} -n {};{}", dead[0].address(), dead[1].address()));
        let expected = format!(" (the same goes for {})", dead[1].address());
        assert!(told.sentence().ends_with(&expected), "{command}: {}", told.err);
    }
}

#[test]
fn an_unknown_topic_is_told_with_the_nearest_names() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    let _brokers = [
        first.register("a", "127.0.0.1:10911", &["OrderTopic", "Stock"]),
        second.register("b", "127.0.0.1:10912", &["OrderTopics", "Stock"]),
    ];
    // The list may come too late on a busy machine, and then there is no question.
    let asked = poll_until(DEADLINE, || {
        let told = ask(&format!("route OrdreTopic -n {};{}", first.address, second.address));
        assert_eq!(told.code, 1, "{}", told.err);
        told.sentence().ends_with("; did you mean \"OrderTopic\" or \"OrderTopics\"?").then_some(())
    });
    assert!(asked.is_some(), "no names are told");
    let told = first.ask("route Nope");
    assert!(!told.sentence().contains("did you mean"), "{}", told.err);
}

#[test]
fn a_long_or_late_list_of_topics_holds_up_no_answer() {
    let unknown = br#"{"code":17,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}"#;
    for list in [&[][..], &[0x7f, 0xff, 0xff, 0xff], &[0, 0x20, 0, 0]] {
        let (listener, address) = silent_server();
        let server = std::thread::spawn(move || {
            let mut answer = u32::try_from(unknown.len() + 4).expect("short").to_be_bytes().to_vec();
            answer.extend(u32::try_from(unknown.len()).expect("short").to_be_bytes());
            answer.extend(unknown);
            let mut held = Vec::new();
            for bytes in [&answer, list] {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut question = [0; 4_096];
                assert!(stream.read(&mut question).expect("a question") > 0);
                stream.write_all(bytes).expect("written");
                held.push(stream);
            }
            held
        });
        let before = Instant::now();
        let told = ask(&format!("route T -n {address} --timeout 60s"));
        let _held = server.join().expect("it answers");
        assert_eq!(told.code, 1, "{}", told.err);
        assert!(told.sentence().contains("has no route"), "{}", told.err);
        assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    }
}
