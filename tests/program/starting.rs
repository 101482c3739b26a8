//! Starts, good and bad.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use rustix::process::Signal;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::peers::Scratch;

use crate::harness::{DEADLINE, Server, Told, ask, exchange, waypost};

#[test]
fn without_configuration_the_first_line_is_the_originals_and_the_rest_says_what_next() {
    let server = Server::start(&[]);
    let out = server.out();
    let port = server.address.port();
    let expected = format!(
        "The Name Server boot success. serializeType=JSON, address 0.0.0.0:{port}\n\
         routes: port {port} of every address\n\
         admin:  {}/ (metrics, health, live table)\n\
         next:   start brokers with namesrvAddr=127.0.0.1:{port}, then `{} brokers -n 127.0.0.1:{port}`\n",
        server.admin,
        env!("CARGO_BIN_EXE_waypost")
    );
    // A host without IPv6 has one address to name.
    assert_eq!(
        out.replace(&format!("routes: 0.0.0.0:{port}"), &format!("routes: port {port} of every address")),
        expected
    );
    assert_eq!(server.ask("check").code, 0);
}

#[test]
fn a_bound_address_is_the_one_in_the_first_line() {
    let server = Server::start(&["--set", "bindAddress=127.0.0.1"]);
    let first = format!("address 127.0.0.1:{}\n", server.address.port());
    assert!(server.out().contains(&first), "{}", server.out());
}

#[test]
fn a_taken_port_is_one_sentence_with_the_next_step() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let home = Scratch::new("program");
    let told: Told = waypost()
        .args(["serve", "--set", "adminListen=off", "--set", "bindAddress=0.0.0.0"])
        .args(["--listen-port", &port.to_string()])
        .env("HOME", home.path())
        .output()
        .expect("the binary runs")
        .into();
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    let sentence = told.sentence();
    assert!(
        sentence.contains(&format!("port {port} is in use"))
            && sentence.ends_with("choose another port with --listen-port"),
        "{sentence}"
    );
}

#[test]
fn errors_name_the_option_that_was_given() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let home = Scratch::new("program");
    let file = home.path().join("namesrv.toml");
    std::fs::write(&file, format!("adminListen = \"{taken}\"\n")).expect("written");
    let admin = taken.to_string();
    let port = taken.port().to_string();
    let told = |words: &str, environment: &[(&str, &str)]| {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let variables = environment.iter().copied().chain([("HOME", home.path().to_str().expect("text"))]);
        Told::from(waypost().args(words).envs(variables).output().expect("the binary runs"))
    };
    let nothing: &[(&str, &str)] = &[];
    let serve = "serve --set adminListen=off --set bindAddress=127.0.0.1";
    let agent = "agent -n 127.0.0.1:1 --listen 127.0.0.1:0";
    for (words, environment, code, named) in [
        (format!("{serve} --listen-port {port}"), nothing, 1, "with --listen-port"),
        (format!("{serve} --set listenPort={port}"), nothing, 1, "with --set listenPort"),
        (serve.to_owned(), &[("WAYPOST_LISTEN_PORT", port.as_str())], 1, "with WAYPOST_LISTEN_PORT"),
        (format!("serve --listen-port 0 --set admin_listen={admin}"), nothing, 1, "with --set admin_listen"),
        (format!("serve --listen-port 0 -c {}", file.display()), nothing, 1, "namesrv.toml:1)"),
        (
            "serve --listen-port 0".to_owned(),
            &[("WAYPOST_ADMIN_LISTEN", admin.as_str())],
            1,
            "WAYPOST_ADMIN_LISTEN",
        ),
        (
            "serve --listen-port 0 --set bindAddress=192.0.2.1".to_owned(),
            nothing,
            1,
            "with --set bindAddress",
        ),
        (format!("{agent} --admin-listen {admin}"), nothing, 1, "with --admin-listen"),
        (format!("{agent} --admin-listen 192.0.2.1:1"), nothing, 1, "with --admin-listen"),
        (format!("agent -n 127.0.0.1:1 --listen {admin}"), nothing, 1, "with --listen"),
        (
            format!("{agent} --admin-listen 127.0.0.1:0 --state {}/x", file.display()),
            nothing,
            1,
            "folder with --state",
        ),
        (
            format!("{agent} --admin-listen 127.0.0.1:0"),
            &[("WAYPOST_AGENT_STATE", file.to_str().expect("text"))],
            1,
            "folder with WAYPOST_AGENT_STATE",
        ),
        (format!("{agent} --access-admin mars"), nothing, 2, "'--access-admin <NETWORKS>'"),
        (agent.to_owned(), &[("WAYPOST_AGENT_ACCESS_ADMIN", "mars")], 2, "'WAYPOST_AGENT_ACCESS_ADMIN'"),
        (
            format!("{agent} --access-admin mars"),
            &[("WAYPOST_AGENT_ACCESS_ADMIN", "mars")],
            2,
            "'--access-admin <NETWORKS>'",
        ),
        ("agent --listen 127.0.0.1:0 -n a:x".to_owned(), nothing, 2, "-n: the name server list"),
        (
            "agent --listen 127.0.0.1:0".to_owned(),
            &[("NAMESRV_ADDR", "a:x")],
            2,
            "NAMESRV_ADDR: the name server list",
        ),
        ("check".to_owned(), &[("NAMESRV_ADDR", "a:x")], 2, "'NAMESRV_ADDR'"),
        ("check -n a:x".to_owned(), &[("NAMESRV_ADDR", "a:x")], 2, "'--namesrv <LIST>'"),
    ] {
        let told = told(&words, environment);
        assert_eq!((told.code, told.out.as_str()), (code, ""), "{words} {environment:?}: {}", told.err);
        assert!(told.err.contains(named), "{words} {environment:?}: {named} is not in {}", told.err);
    }
}

#[test]
fn a_taken_admin_port_stops_the_start_only_if_it_was_chosen() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let chosen = format!("adminListen={}", taken.local_addr().expect("an address"));
    let told = ask(&format!("serve --listen-port 0 --set {chosen}"));
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert!(told.sentence().ends_with("with --set adminListen"), "{}", told.err);

    // The default port: whether this takes it or somebody has it, the server cannot.
    let _held = TcpListener::bind("127.0.0.1:9880");
    let mut server = Server::start_with(&[], &[]);
    assert!(server.out().contains("\nadmin:  none, 127.0.0.1:9880 is not to be had"), "{}", server.out());
    server.wait_until("the log says so", |server| server.err().contains("no admin side"));
    assert_eq!(server.ask("check").code, 0);
}

#[test]
fn the_admin_side_can_be_off() {
    let server = Server::start_with(&["--set", "adminListen=off"], &[]);
    assert!(server.out().contains("\nadmin:  off"), "{}", server.out());
}

#[test]
fn a_folder_that_cannot_be_written_stops_no_routes_and_is_named() {
    let home = Scratch::new("program");
    let file = home.path().join("file");
    std::fs::write(&file, "in the way").expect("written");
    let path = file.join("kvConfig.json");
    let setting = format!("kvConfigPath={}", path.display());
    let server = Server::start(&["--set", &setting]);
    assert_eq!(server.ask("check").code, 0);
    let put = server.ask("kv put ns k v");
    assert_eq!(put.code, 1, "{}", put.err);
    assert!(put.sentence().contains(&file.display().to_string()), "{}", put.err);
    assert_eq!(server.ask("kv get ns k").code, 1, "what is not on disk is not in memory");
}

#[test]
fn a_damaged_kv_file_stops_the_start_and_the_way_on_that_it_names_works() {
    let home = Scratch::new("program");
    let path = home.path().join("kvConfig.json");
    std::fs::write(&path, "{\"configTable\":{").expect("written");
    std::fs::write(home.path().join("kvConfig.json.bak"), "{\"configTable\":{\"ns\":{\"k\":\"v\"}}}")
        .expect("written");
    let setting = format!("kvConfigPath={}", path.display());
    let told = ask(&format!("serve --listen-port 0 --set adminListen=off --set {setting}"));
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    let sentence = told.sentence();
    assert!(sentence.contains("kvConfig.json") && sentence.contains("--kv-from-backup"), "{sentence}");
    let server = Server::start(&["--kv-from-backup", "--set", &setting]);
    assert_eq!(server.ask("kv get ns k").out, "v\n");
}

#[test]
fn systemd_is_notified_of_readiness_and_stopping() {
    let home = Scratch::new("program");
    let path = home.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(DEADLINE)).expect("a live socket");
    let mut server = Server::start_with(
        &["--set", "adminListen=off"],
        &[("NOTIFY_SOCKET", path.to_str().expect("a path of text"))],
    );
    let told = || {
        let mut text = [0; 256];
        let count = socket.recv(&mut text).expect("a notice");
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    assert!(told().starts_with("READY=1"));
    server.send(Signal::TERM);
    assert!(told().starts_with("STOPPING=1"));
    assert!(server.wait().success());
}

#[test]
fn json_logs_are_one_object_a_line() {
    let mut server = Server::start(&["--set", "logFormat=json", "--set", "logLevel=debug", "-n", "a:9876"]);
    server.wait_until("the start is logged", |server| server.err().contains("\"started\""));
    server.send(Signal::TERM);
    assert!(server.wait().success());
    let err = server.err();
    assert!(err.lines().count() >= 3, "{err}");
    for line in err.lines() {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(event["level"].is_string() && event["message"].is_string(), "{line}");
    }
    assert!(err.contains("-n has no effect"), "{err}");
}

#[test]
fn the_level_of_the_log_is_a_setting_and_rust_log_ranks_above_it() {
    let mut quiet = Server::start(&["--set", "logLevel=error"]);
    quiet.send(Signal::TERM);
    assert!(quiet.wait().success());
    assert_eq!(quiet.err(), "");
    let mut loud =
        Server::start_with(&["--set", "logLevel=error", "--set", "adminListen=off"], &[("RUST_LOG", "info")]);
    loud.send(Signal::TERM);
    assert!(loud.wait().success());
    assert!(loud.err().contains("started"), "{}", loud.err());
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let mut server = Server::start_with_log(Stdio::piped());
    let mut stream = TcpStream::connect(server.address).expect("a connection");
    // An audit line each: several times of what a pipe holds, and more lines than may wait.
    let ext = [("brokerName", "a-broker-that-nobody-has-ever-heard-of"), ("key", "value")];
    for _ in 0..20_000 {
        let question = Request { ext: &ext, ..Request::new(request::WIPE_WRITE_PERM_OF_BROKER) };
        assert_eq!(exchange(&mut stream, question).0, 0);
    }
    assert_eq!(server.ask("check").code, 0);
    let mut log = server.log().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).expect("text");
        text
    });
    server.send(Signal::TERM);
    assert!(server.wait().success());
    let text = reader.join().expect("a text");
    assert!(text.contains("log lines were lost"), "{} lines", text.lines().count());
    let whole = |line: &str| line.contains(" INFO ") || line.contains("WARN ");
    assert!(text.lines().all(whole), "lines stay whole");
}

#[test]
fn a_kv_file_that_is_not_there_is_not_said_to_be_loaded() {
    let scratch = Scratch::new("program");
    let path = format!("kvConfigPath={}", scratch.path().join("kv.json").display());
    let (fresh, loaded) = ("no KV file yet: starts empty", "KV configuration loaded");
    let mut server = Server::start(&["--set", &path]);
    server.wait_until("the log tells of the file", |server| server.err().contains(fresh));
    assert!(!server.err().contains(loaded), "{}", server.err());
    assert_eq!(server.ask("kv put ns k v").code, 0);
    drop(server);

    let mut server = Server::start(&["--set", &path]);
    server.wait_until("the log tells of the file", |server| server.err().contains(loaded));
    assert!(!server.err().contains(fresh), "{}", server.err());
}
