//! mqadmin of both versions shows the same on Waypost as on the Java NameServer.

mod compare;
mod differences;

use waypost_testkit::peers::{Broker, Mqadmin, NameServer, Program, Settings, Version};

use crate::stage::{JAVA_TOOLS, SOON, Stage};
use compare::{View, differences, visible};

const CLUSTER: &str = "DefaultCluster";

/// Every command, with how its output is looked at. `{ns}`, `{a}` and `{b}` are the addresses of the name server, of
/// broker-a (5.5.0) and of broker-b (4.9.7); `{t}` differs between the two versions of mqadmin.
const COMMANDS: &[(View, &str)] = &[
    (View::Table(5), "clusterList -n {ns}"),
    (View::Table(4), "clusterList -n {ns} -m"),
    (View::Table(5), "5: clusterList -n {ns} -c DefaultCluster"),
    (View::Table(5), "5: clusterList -n {ns} -c NoCluster"),
    (View::Lines, "topicList -n {ns}"),
    (View::Lines, "topicList -n {ns} -c"),
    (View::Lines, "updateTopic -n {ns} -c DefaultCluster -t {t} -r 4 -w 6"),
    (View::Lines, "updateTopic -n {ns} -b {a} -t {t}-on-a -r 2 -w 2"),
    (View::Lines, "updateTopic -n {ns} -b {b} -t {t}-on-b -r 2 -w 2 -p 4"),
    (View::Lines, "updateTopic -n {ns} -c NoCluster -t {t}-nowhere"),
    (View::Lines, "topicList -n {ns}"),
    (View::Lines, "topicRoute -n {ns} -t {t}"),
    (View::Lines, "5: topicRoute -n {ns} -t {t} -l"),
    (View::Lines, "topicRoute -n {ns} -t {t}-on-b"),
    (View::Lines, "topicRoute -n {ns} -t NoTopic"),
    (View::Lines, "topicClusterList -n {ns} -t {t}"),
    (View::Lines, "topicClusterList -n {ns} -t {t}-on-b"),
    (View::Lines, "topicClusterList -n {ns} -t NoTopic"),
    (View::Lines, "topicStatus -n {ns} -t {t}"),
    (View::Lines, "updateTopic -n {ns} -c DefaultCluster -t {t}-ordered -r 4 -w 4 -o true"),
    (View::Lines, "updateOrderConf -n {ns} -t {t}-ordered -m get"),
    (View::Lines, "updateOrderConf -n {ns} -t {t} -m get"),
    (View::Lines, "updateOrderConf -n {ns} -t {t} -m put -v broker-a:4;broker-b:4"),
    (View::Lines, "updateOrderConf -n {ns} -t {t} -m get"),
    (View::Lines, "updateOrderConf -n {ns} -t {t} -m delete"),
    (View::Lines, "updateOrderConf -n {ns} -t {t} -m get"),
    (View::Lines, "updateKvConfig -n {ns} -s Space -k {t} -v ein-schöner-Wert"),
    (View::Lines, "probe 101 namespace=Space key={t}"),
    (View::Lines, "probe 219 namespace=Space"),
    (View::Lines, "deleteKvConfig -n {ns} -s Space -k {t}"),
    (View::Lines, "probe 101 namespace=Space key={t}"),
    (View::Lines, "deleteKvConfig -n {ns} -s NoSpace -k {t}"),
    (View::Lines, "wipeWritePerm -n {ns} -b broker-a"),
    (View::Lines, "topicRoute -n {ns} -t {t}"),
    (View::Lines, "addWritePerm -n {ns} -b broker-a"),
    (View::Lines, "topicRoute -n {ns} -t {t}"),
    (View::Lines, "wipeWritePerm -n {ns} -b no-broker"),
    (View::Lines, "addWritePerm -n {ns} -b no-broker"),
    (View::Lines, "getNamesrvConfig -n {ns}"),
    (View::Lines, "updateNamesrvConfig -n {ns} -k orderMessageEnable -v true"),
    (View::Lines, "getNamesrvConfig -n {ns}"),
    (View::Lines, "topicRoute -n {ns} -t {t}-ordered"),
    (View::Lines, "updateNamesrvConfig -n {ns} -k orderMessageEnable -v false"),
    (View::Lines, "updateNamesrvConfig -n {ns} -k kvConfigPath -v /nowhere"),
    (View::Lines, "updateNamesrvConfig -n {ns} -k noSuchKey -v 1"),
    (View::Lines, "updateNamesrvConfig -n {ns} -k waitSecondsForService -v many"),
    (View::Lines, "getNamesrvConfig -n {ns}"),
    (View::Keys, "brokerStatus -n {ns} -b {a}"),
    (View::Keys, "brokerStatus -n {ns} -b {b}"),
    (View::Keys, "brokerStatus -n {ns} -c DefaultCluster"),
    (View::Lines, "statsAll -n {ns}"),
    (View::Lines, "statsAll -n {ns} -t {t}"),
    (View::Lines, "statsAll -n {ns} -a"),
    (View::Lines, "deleteTopic -n {ns} -c DefaultCluster -t {t}"),
    (View::Lines, "topicRoute -n {ns} -t {t}"),
    (View::Lines, "deleteTopic -n {ns} -c DefaultCluster -t {t}-on-a"),
    (View::Lines, "deleteTopic -n {ns} -c DefaultCluster -t NoTopic"),
    (View::Lines, "deleteTopic -n {ns} -c NoCluster -t {t}-ordered"),
    (View::Lines, "topicList -n {ns}"),
];

/// One command and what an operator saw.
struct Shown {
    admin: Version,
    command: String,
    lines: Vec<String>,
}

#[test]
fn operators_see_what_they_saw_before() {
    let text = "
        A broker 5.5.0 and a broker 4.9.7 register with the Java NameServer 5.5.0, two more with the same names with
        the server under test. mqadmin 5.5.0 and then mqadmin 4.9.7 run the same commands on both. What they print is
        the same, but for addresses, times, measured values and the order of lists, and but for the differences that
        are listed with their reasons in differences.rs.
    ";
    let Some(stage) = Stage::open("mqadmin", JAVA_TOOLS, text) else { return };
    let original = Program::Java(Version::V5);
    let (expected, seen) = std::thread::scope(|scope| {
        let expected = scope.spawn(|| transcript(&stage, &original));
        let seen = transcript(&stage, &stage.program);
        (expected.join().expect("the transcript of the original"), seen)
    });
    let mut unexplained = Vec::new();
    let mut used = vec![false; differences::INTENDED.len()];
    for (expected, seen) in expected.iter().zip(&seen) {
        assert_eq!((expected.admin, &expected.command), (seen.admin, &seen.command));
        let found = differences(&expected.lines, &seen.lines);
        let number = found.len();
        let rest: Vec<_> =
            found.into_iter().filter(|line| !differences::intended(&seen.command, line, &mut used)).collect();
        let verdict = match (rest.is_empty(), number) {
            (true, 0) => "same".to_owned(),
            (true, _) => format!("same but for {number} intended differences"),
            (false, _) => "DIFFERENT".to_owned(),
        };
        stage.story.step(format_args!("mqadmin {} {}: {verdict}", seen.admin, seen.command));
        if !rest.is_empty() {
            let rest = rest.join("\n");
            stage.story.step(&rest);
            unexplained.push(format!("mqadmin {} {}\n{rest}", seen.admin, seen.command));
        }
    }
    assert!(expected.len() > COMMANDS.len() && expected.len() == seen.len(), "commands were left out");
    assert!(unexplained.is_empty(), "{} commands differ:\n{}", unexplained.len(), unexplained.join("\n"));
    if stage.program.is_waypost() {
        let unused: Vec<_> = differences::INTENDED.iter().zip(&used).filter(|(_, used)| !**used).collect();
        assert!(unused.is_empty(), "differences that no longer exist: {unused:?}");
    }
}

#[test]
fn values_that_properties_escape_are_shown() {
    let text = "
        A name server has values with backslashes, `\\u` and letters beyond ASCII. getNamesrvConfig of both versions shows
        each. On the Java NameServer it ends with a null pointer at the `\\u`.
    ";
    let Some(stage) = Stage::open("mqadmin shows escaped values", JAVA_TOOLS, text) else { return };
    if !stage.program.is_waypost() {
        return;
    }
    let values = [("onePath", r"C:\\users\\temp", r"C:\users\temp"), ("oneWord", r"sch\u00f6n", "schön")];
    let mut settings = Settings::new().with("bindAddress", "127.0.0.1");
    for (key, written, _) in values {
        settings.set(key, written);
    }
    let server = stage.name_server(&settings);
    for version in [Version::V5, Version::V4] {
        let mut admin = stage.mqadmin(version);
        let text = admin.run(&["getNamesrvConfig", "-n", &server.address().to_string()]).text;
        for (key, _, value) in values {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{text}"));
            let shown = line.split_once('=').map(|(_, shown)| shown.trim());
            assert_eq!(shown, Some(value), "mqadmin {version}: {line}");
        }
        stage.story.step(format_args!("mqadmin {version} shows the values"));
    }
}

/// Runs every command of both versions against a `program` with brokers of its own.
fn transcript(stage: &Stage, program: &Program) -> Vec<Shown> {
    let settings = Settings::new().with("bindAddress", "127.0.0.1");
    let server = NameServer::start(&stage.workshop, program, &settings).expect("a name server");
    let name_servers = server.address().to_string();
    let names = ["broker-a", "broker-b"];
    let brokers: Vec<_> = [Version::V5, Version::V4]
        .into_iter()
        .zip(names)
        .map(|(version, name)| {
            let identity = Broker { cluster: CLUSTER, name, id: 0, name_servers: &name_servers };
            // As rarely as they can, because a registration may undo wipeWritePerm.
            stage.broker(version, &identity, &Settings::new().with("registerNameServerPeriod", 60_000))
        })
        .collect();
    stage.wait_for_brokers(&server, &names, SOON);
    let (a, b) = (brokers[0].address().to_string(), brokers[1].address().to_string());
    let addresses = [("ns", name_servers), ("a", a), ("b", b)];
    let mut shown = Vec::new();
    for version in [Version::V5, Version::V4] {
        let before = shown.len();
        let mut admin = stage.mqadmin(version);
        for (view, command) in COMMANDS {
            let command = match command.strip_prefix("5: ") {
                Some(_) if version == Version::V4 => continue,
                Some(command) => command,
                None => command,
            };
            let command = command.replace("{t}", &format!("T{}", &version.to_string()[..1]));
            let text = run(&mut admin, &server, &command, &addresses);
            let lines = visible(*view, &text, &addresses);
            shown.push(Shown { admin: version, command, lines });
        }
        stage.story.step(format_args!("mqadmin {version}: {} commands on {program}", shown.len() - before));
    }
    shown
}

fn run(admin: &mut Mqadmin, server: &NameServer, command: &str, addresses: &[(&str, String)]) -> String {
    let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    for word in &mut words {
        for (name, address) in addresses {
            *word = word.replace(&format!("{{{name}}}"), address);
        }
    }
    if words[0] != "probe" {
        return admin.run(&words).text;
    }
    // mqadmin has no command to read a value back.
    let fields: Vec<(&str, &str)> = words[2..].iter().filter_map(|word| word.split_once('=')).collect();
    let answer = server.probe().ask(words[1].parse().expect("a code"), &fields).expect("an answer");
    let body = String::from_utf8_lossy(&answer.body);
    format!("{} {:?} {:?} {body}\n", answer.code, answer.remark, answer.fields)
}
