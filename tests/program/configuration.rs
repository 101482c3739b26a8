//! `config` and `serve -p`, without a server.

use std::collections::BTreeSet;

use waypost_testkit::peers::Scratch;

use crate::harness::{Server, ask};

#[test]
fn a_configuration_is_checked_without_running_it() {
    let home = Scratch::new("program");
    let file = home.path().join("good.toml");
    std::fs::write(&file, "listen_port = 1234\n").expect("written");
    let told = ask(&format!("config check -c {}", file.display()));
    assert_eq!(told.code, 0, "{}", told.err);

    std::fs::write(&file, "lissen_port = 1234\n").expect("written");
    for command in ["config check", "config show", "serve"] {
        let told = ask(&format!("{command} -c {}", file.display()));
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{command}");
        let sentence = told.sentence();
        assert!(
            sentence.contains("good.toml:1") && sentence.contains("did you mean"),
            "{command}: {sentence}"
        );
    }
    assert_eq!(ask("config check --set listenPort=99999").code, 2);
    assert_eq!(ask("config check -c /nowhere/at/all.toml").code, 2);
}

#[test]
fn every_value_is_shown_with_its_source() {
    let home = Scratch::new("program");
    let file = home.path().join("namesrv.properties");
    std::fs::write(&file, "listenPort=1234\nscanNotActiveBrokerInterval=4000\n").expect("written");
    let shown = ask(&format!("config show -c {} --set listenPort=77 -o json", file.display())).json();
    let row = |key: &str| {
        let rows = shown.as_array().expect("a list");
        rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key} is missing")).clone()
    };
    assert_eq!(
        (&row("listenPort")["value"], &row("listenPort")["source"]),
        (&"77".into(), &"flag listenPort".into())
    );
    let source = row("scanNotActiveBrokerInterval")["source"].as_str().expect("text").to_owned();
    assert!(source.ends_with("namesrv.properties:2"), "{source}");
    assert_eq!(row("bindAddress")["source"], "default");
    let shown = ask("config show --listen-port 78 -o json").json();
    let port = shown.as_array().expect("a list").iter().find(|row| row["key"] == "listenPort");
    assert_eq!(port.expect("it is shown")["source"], "flag --listen-port");
    assert_eq!(row("productEnvName")["acts"], false);
    let table = ask("config show").out;
    assert!(table.starts_with("KEY ") && table.contains("\nlistenPort "), "{table}");
}

#[test]
fn the_originals_way_to_print_the_configuration_works() {
    for flag in ["-p", "--printConfigItem"] {
        let told = ask(&format!("serve {flag} --listen-port 1234"));
        assert_eq!(told.code, 0, "{}", told.err);
        assert!(told.out.lines().any(|line| line == "listenPort=1234"), "{}", told.out);
    }
}

#[test]
fn the_example_is_a_good_configuration() {
    let home = Scratch::new("program");
    let file = home.path().join("example.toml");
    std::fs::write(&file, ask("config example").out).expect("written");
    let told = ask(&format!("config check -c {}", file.display()));
    assert_eq!((told.code, told.err.as_str()), (0, ""));
}

#[test]
fn the_reference_names_every_key_that_a_running_server_reports() {
    let server = Server::start(&[]);
    let reference = ask("config reference").out;
    let reported = server.ask("config get -o json").json();
    let keys: BTreeSet<&String> = reported["settings"].as_object().expect("a map").keys().collect();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        assert!(reference.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

#[test]
fn the_reference_in_the_documentation_is_the_one_that_the_binary_prints() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (command, file) in
        [("config reference", "configuration.md"), ("config example", "waypost.example.toml")]
    {
        let written = std::fs::read_to_string(docs.join(file)).expect("a page");
        assert!(
            written == ask(command).out,
            "docs/{file} is old: write it anew with `waypost {command} > docs/{file}`"
        );
    }
}
