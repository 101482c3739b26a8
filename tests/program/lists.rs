//! One list of name servers, read alike by commands, the agent and simulated brokers.

use std::net::TcpListener;

use waypost_testkit::peers::Scratch;

use crate::harness::{Ongoing, Server, Told, ask, waypost};

/// Runs `words` with this list, which may hold blanks.
fn with_list(words: &[&str], list: &str) -> Told {
    waypost().args(words).arg("-n").arg(list).output().expect("the binary runs").into()
}

#[test]
fn commands_take_a_list_however_it_is_written() {
    let server = Server::start(&[]);
    let at = server.address;
    for list in [
        format!("{at};;{at}"),
        format!(";{at};"),
        format!("{at}, {at}\n"),
        format!("http://{at}"),
        format!("https://{at}/;tcp://{at}"),
        format!("http://ignored/{at}"),
        format!(" {at} {at} "),
    ] {
        let told = with_list(&["check", "-o", "json"], &list);
        assert_eq!(told.json().as_array().map(Vec::len), Some(1), "{list:?}: {}", told.out);
    }
}

#[test]
fn an_empty_list_is_as_good_as_none() {
    let server = Server::start(&[]);
    for blank in ["", " ", ";", "\n"] {
        // Nobody has to be at the default address; what counts is that it is the one that is asked.
        let told: Told = waypost()
            .args(["check", "--timeout", "200ms", "-o", "json"])
            .env("NAMESRV_ADDR", blank)
            .output()
            .expect("the binary runs")
            .into();
        assert_ne!(told.code, 2, "{blank:?}: {}", told.err);
        assert!(told.out.contains("\"127.0.0.1:9876\""), "{blank:?}: {}", told.out);
        // An empty option gives way to the variable.
        let told: Told = waypost()
            .args(["check", "-n", blank])
            .env("NAMESRV_ADDR", server.address.to_string())
            .output()
            .expect("the binary runs")
            .into();
        assert_eq!(told.code, 0, "{blank:?}: {}", told.err);
    }
}

#[test]
fn a_number_alone_is_told_as_a_mistyped_separator_by_commands_and_agent() {
    for list in ["127.0.0.2;9876", "127.0.0.2,9876", "127.0.0.2 9876"] {
        for words in [
            &["check"][..],
            &["watch", "T", "--for", "1s"],
            &["bench", "lookup", "--for", "1s"],
            &["agent", "--listen", "127.0.0.1:0"],
        ] {
            let told = with_list(words, list);
            assert_eq!((told.code, told.out.as_str()), (2, ""), "{words:?} {list}: {}", told.err);
            assert!(told.err.contains("did you mean \"127.0.0.2:9876\"?"), "{words:?} {list}: {}", told.err);
        }
    }
}

#[test]
fn commands_refuse_an_entry_that_is_no_server_and_the_agent_leaves_it_out() {
    let server = Server::start(&[]);
    for (entry, reason) in [
        ("a:port", "has the port \"port\""),
        ("a:70000", "has the port \"70000\""),
        ("127.0.0.300:1", "is no IPv4 address"),
        ("ftp://a:1", "has the scheme \"ftp\""),
        ("[::1", "has broken brackets"),
    ] {
        let list = format!("{};{entry}", server.address);
        let told = with_list(&["check"], &list);
        assert_eq!(told.code, 2, "{list}: {}", told.err);
        assert!(told.err.contains("entry 2") && told.err.contains(reason), "{list}: {}", told.err);

        let agent =
            Ongoing::start(&format!("agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 -n {list}"));
        agent.wait_for("agent ready");
        agent.wait_for_log(reason.split('"').next().expect("a part"));
    }
}

#[test]
fn the_agent_takes_a_missing_port_and_an_endpoint() {
    let server = Server::start(&[]);
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("bound").to_string();
    let _broker = server.register("broker-a", &address, &["T1", "T2"]);
    // Nobody has to be at 127.0.0.9:9876.
    let agent = Ongoing::start(&format!(
        "agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 -n 127.0.0.9;;http://{}/",
        server.address
    ));
    agent.wait_for("agent ready");
    let out = agent.out();
    let at = out.lines().next().and_then(|line| line.rsplit('=').next()).expect("an address");
    let told = ask(&format!("route T1 -n {at} -o json"));
    assert_eq!(told.json()["brokers"][0]["broker"], "broker-a");
}

#[test]
fn a_file_of_servers_may_have_remarks_and_one_server_a_line() {
    let server = Server::start(&[]);
    let folder = Scratch::new("list");
    let file = folder.path().join("servers");
    std::fs::write(&file, format!("\u{feff}# production\r\n{}\r\n\r\n# a:port\r\n", server.address))
        .expect("written");
    let command =
        format!("agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --servers-file {}", file.display());
    let agent = Ongoing::start(&command);
    agent.wait_for("agent ready");
    // Logged after the list was read.
    agent.wait_for_log("no --state folder");
    assert!(!agent.err().contains("no server"), "{}", agent.err());

    std::fs::write(&file, "127.0.0.2\n9876\n").expect("written");
    let told = ask(&command);
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    let sentence = told.sentence();
    assert!(
        sentence.contains("did you mean") && sentence.contains(&file.display().to_string()),
        "{sentence}"
    );
}

#[test]
fn simulated_brokers_take_the_same_list() {
    let server = Server::start(&[]);
    let folder = Scratch::new("list");
    let file = folder.path().join("brokers.toml");
    let plan =
        "[[broker]]\nname = \"a\"\ncluster = \"C\"\naddress = \"127.0.0.1:0\"\ntopics = [{ name = \"T\" }]\n";
    std::fs::write(&file, plan).expect("written");
    let brokers =
        Ongoing::start(&format!("register --from {} -n ;http://{};", file.display(), server.address));
    brokers.wait_for("registered");
}
