//! `agent`, among real servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_testkit::peers::{Scratch, poll_until};

use crate::harness::{DEADLINE, Ongoing, Server, Told, ask, get, register, waypost};

/// A running agent, and where it said that it is.
pub(crate) struct Agent {
    pub(crate) process: Ongoing,
    pub(crate) address: SocketAddr,
    /// `http://...`.
    pub(crate) admin: String,
}

impl Agent {
    /// Starts it on free ports.
    pub(crate) fn start(arguments: &str) -> Self {
        let process =
            Ongoing::start(&format!("agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 {arguments}"));
        process.wait_for("(metrics, status)\n");
        let out = process.out();
        let admin =
            out.lines().nth(1).and_then(|line| line.strip_prefix("admin: http://")?.split('/').next());
        let admin = format!("http://{}", admin.unwrap_or_else(|| panic!("no admin side in {out}")));
        Self { address: address_in(&out), process, admin }
    }

    pub(crate) fn ask(&self, command: &str) -> Told {
        ask(&format!("{command} -n {}", self.address))
    }

    fn status(&self) -> Value {
        ask(&format!("agent status --admin {} -o json", self.admin)).json()
    }

    /// Waits until its status is as wanted.
    pub(crate) fn wait_for_status(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let status = poll_until(DEADLINE, || Some(self.status()).filter(&is_so));
        status.unwrap_or_else(|| panic!("not so: {what}\n{}\n{}", self.status(), self.process.err()))
    }

    fn wait_for_log(&self, part: &str) {
        self.process.wait_for_log(part);
    }
}

/// The address in the line that an agent prints when it is ready.
fn address_in(out: &str) -> SocketAddr {
    let first = out.lines().next().unwrap_or_default();
    let address = first.strip_prefix("agent ready: programs of this machine use namesrvAddr=");
    address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no address in {out}"))
}

fn list(servers: &[&Server]) -> String {
    servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(";")
}

/// The names of the servers in a status.
fn servers_of(status: &Value) -> Vec<&str> {
    let servers = status["servers"].as_array().expect("a list");
    servers.iter().map(|server| server["server"].as_str().expect("a name")).collect()
}

/// Whether every server of the list accepted the only broker.
fn is_accepted(status: &Value) -> bool {
    let upstream = status["brokers"][0]["servers"].as_array();
    upstream.is_some_and(|servers| servers.iter().all(|server| server["accepted_ms"].is_u64()))
}

fn wait_for_route(server: &Server, topic: &str, code: i32, limit: Duration) {
    let seen = poll_until(limit, || (server.ask(&format!("route {topic}")).code == code).then_some(()));
    assert!(seen.is_some(), "`route {topic}` does not end with {code} at {}", server.address);
}

/// Waits until the frames of so many brokers are on disk, whole.
fn wait_for_saved(state: &Path, brokers: usize) {
    let is_broker = |path: &Path| path.extension().is_some_and(|extension| extension == "broker");
    let saved = || {
        let files = std::fs::read_dir(state.join("brokers")).ok()?;
        let count = files.filter(|file| file.as_ref().is_ok_and(|file| is_broker(&file.path()))).count();
        (count == brokers).then_some(())
    };
    assert!(poll_until(DEADLINE, saved).is_some(), "not {brokers} brokers in {}", state.display());
}

/// The way to a server, on which everything that goes there is written down.
struct Recorder {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorder {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(server) else { continue };
                let number = {
                    let mut all = all.lock().expect("nobody panicked");
                    all.push(Vec::new());
                    all.len() - 1
                };
                let (back, all) = (copies(&to, &from), Arc::clone(&all));
                std::thread::spawn(move || back.pass(|_| {}));
                let forth = copies(&from, &to);
                let write_down =
                    move |bytes: &[u8]| all.lock().expect("nobody panicked")[number].extend_from_slice(bytes);
                std::thread::spawn(move || forth.pass(write_down));
            }
        });
        Self { address, heard }
    }

    /// The codes of the requests that went to the server.
    fn codes(&self) -> Vec<i32> {
        let limits = FrameLimits::default();
        let mut codes = Vec::new();
        for connection in self.heard.lock().expect("nobody panicked").iter() {
            let mut bytes = &connection[..];
            while let Some((frame, length)) = decode_frame(bytes, &limits).expect("frames") {
                codes.push(Header::decode(&frame, &limits).expect("a header").code);
                bytes = &bytes[length..];
            }
        }
        codes
    }
}

/// One direction of a connection.
struct Copies(TcpStream, TcpStream);

fn copies(from: &TcpStream, to: &TcpStream) -> Copies {
    Copies(from.try_clone().expect("a handle"), to.try_clone().expect("a handle"))
}

impl Copies {
    fn pass(mut self, see: impl Fn(&[u8])) {
        let mut chunk = [0; 65_536];
        while let Ok(count) = self.0.read(&mut chunk) {
            if count == 0 {
                break;
            }
            see(&chunk[..count]);
            if self.1.write_all(&chunk[..count]).is_err() {
                break;
            }
        }
        // The other side may have gone first.
        let _ = self.1.shutdown(Shutdown::Write);
    }
}

#[test]
fn programs_are_served_and_brokers_are_announced_to_every_server() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let agent = Agent::start(&format!("-n {}", list(&[&servers[0], &servers[1]])));
    agent.wait_for_log("no --state folder");
    let nobody = ask(&format!("agent status --admin {}", agent.admin));
    assert!(nobody.code == 0 && nobody.out.contains("no broker has registered here"), "{}", nobody.out);

    let folder = Scratch::new("brokers");
    let file = folder.path().join("brokers.toml");
    let broker =
        "[[broker]]\ncluster = \"C\"\nname = \"broker-a\"\ntopics = [{ name = \"T1\", queues = 4 }]\n";
    std::fs::write(&file, broker).expect("written");
    let brokers = Ongoing::start(&format!("register --from {} -n {}", file.display(), agent.address));
    brokers.wait_for(&format!("broker-a at {}: registered", agent.address));

    for server in &servers {
        wait_for_route(server, "T1", 0, DEADLINE);
    }
    let route = agent.ask("route T1");
    assert!(route.code == 0 && route.out.contains("broker-a  C"), "{}{}", route.out, route.err);
    assert_eq!(
        agent.ask("route T1 -o json").json()["brokers"],
        servers[0].ask("route T1 -o json").json()["brokers"]
    );
    assert_eq!(agent.ask("route nothing").code, 1);
    assert_eq!(agent.ask("brokers -o json").json()["brokers"][0]["broker"], "broker-a");

    let status = agent.wait_for_status("both servers are healthy and accepted it", |status| {
        let healthy =
            status["servers"].as_array().is_some_and(|all| all.iter().all(|it| it["healthy"] == true));
        healthy && is_accepted(status)
    });
    assert_eq!(status["listening"], serde_json::json!([agent.address.to_string()]));
    assert_eq!(servers_of(&status).len(), 2, "{status}");
    let known = &status["brokers"][0];
    assert_eq!(
        (&known["broker"], &known["cluster"], &known["id"]),
        (&"broker-a".into(), &"C".into(), &0.into())
    );
    for server in &servers {
        let name = server.address.to_string();
        assert!(servers_of(&status).contains(&name.as_str()), "{status}");
        let upstream = known["servers"].as_array().expect("a list").iter().find(|it| it["server"] == name);
        let upstream = upstream.unwrap_or_else(|| panic!("{name} is not in {status}"));
        assert_eq!((&upstream["connected"], &upstream["error"]), (&true.into(), &Value::Null), "{status}");
    }
    let table = ask(&format!("agent status --admin {}", agent.admin));
    assert_eq!(table.code, 0, "{}", table.err);
    let rows = |name: &str| table.out.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(rows("broker-a"), 2, "{}", table.out);
    for server in &servers {
        let row = table.out.lines().find(|line| line.starts_with(&server.address.to_string()));
        assert!(row.is_some_and(|row| row.contains("healthy")), "{}", table.out);
    }
}

#[test]
fn metrics_tell_of_servers_routes_and_brokers() {
    let server = Server::start(&[]);
    let agent = Agent::start(&format!("-n {}", server.address));
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let _broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    agent.wait_for_status("it is accepted", is_accepted);
    assert_eq!(agent.ask("route T1").code, 0);
    let (status, metrics) = get(&agent.admin, "/metrics");
    assert_eq!(status, 200);
    let value = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = line.and_then(|value| value.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{series} is missing in\n{metrics}"))
    };
    let of_server = format!("{{server=\"{}\"}}", server.address);
    let of_broker = format!("{{broker=\"broker-a\",address=\"{advertised}\",server=\"{}\"}}", server.address);
    assert!(value("waypost_agent_route_queries_total") >= 1.0);
    assert!(value("waypost_agent_route_queries_waited_total") >= 1.0);
    assert!(value("waypost_agent_other_requests_total") >= 1.0);
    assert_eq!(value("waypost_agent_bad_frames_total"), 0.0);
    assert_eq!(value("waypost_agent_routes"), 1.0);
    assert_eq!(value("waypost_agent_stale_routes"), 0.0);
    assert!(value("waypost_agent_connections") >= 1.0);
    assert!(value("waypost_agent_oldest_route_seconds") < DEADLINE.as_secs_f64());
    assert_eq!(value(&format!("waypost_agent_server_healthy{of_server}")), 1.0);
    assert_eq!(value(&format!("waypost_agent_server_failures{of_server}")), 0.0);
    // The clock counts milliseconds, and the server is near.
    assert!(value(&format!("waypost_agent_server_latency_seconds{of_server}")) < DEADLINE.as_secs_f64());
    assert!(value(&format!("waypost_agent_registration_age_seconds{of_broker}")) < DEADLINE.as_secs_f64());
    assert_eq!(value(&format!("waypost_agent_registration_queue{of_broker}")), 0.0);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(get(&agent.admin, "/healthz").0, 200);
    assert_eq!(get(&agent.admin, "/nothing").0, 404);
}

#[test]
fn a_list_in_a_file_is_read_again_and_a_broken_one_changes_nothing() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let folder = Scratch::new("list");
    let file = folder.path().join("servers");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write(&format!("# one\n{}\n", servers[0].address));
    let agent = Agent::start(&format!("--servers-file {}", file.display()));
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let _broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    wait_for_route(&servers[0], "T1", 0, DEADLINE);
    assert_eq!(servers[1].ask("route T1").code, 1);

    write(&format!("{}\n{}\n", servers[0].address, servers[1].address));
    wait_for_route(&servers[1], "T1", 0, DEADLINE);
    agent.wait_for_status("it has both", |status| servers_of(status).len() == 2);

    write("# nobody\n");
    agent.process.send(Signal::HUP);
    agent.wait_for_log("the known list of name servers stays");
    std::fs::remove_file(&file).expect("removed");
    agent.wait_for_log("cannot be read");
    assert_eq!(servers_of(&agent.status()).len(), 2);
    assert_eq!(agent.ask("route T1").code, 0);

    // Who is not on the list any more does not have its brokers.
    write(&servers[1].address.to_string());
    agent.process.send(Signal::HUP);
    wait_for_route(&servers[0], "T1", 1, DEADLINE);
    agent.wait_for_status("it has one", |status| servers_of(status) == [servers[1].address.to_string()]);
    assert_eq!(servers[1].ask("route T1").code, 0);
}

#[test]
fn a_hang_up_without_a_file_is_no_end() {
    let server = Server::start(&[]);
    let agent = Agent::start(&format!("-n {}", server.address));
    agent.process.send(Signal::HUP);
    agent.wait_for_log("SIGHUP changes nothing");
    assert_eq!(get(&agent.admin, "/healthz").0, 200);
}

#[test]
fn after_kill_9_the_next_agent_says_everything_again_without_the_broker() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let home = Scratch::new("state");
    let state = home.path().join("deep/state");
    let arguments = format!("-n {} --state {}", list(&[&servers[0], &servers[1]]), state.display());
    let mut agent = Agent::start(&arguments);
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    for server in &servers {
        wait_for_route(server, "T1", 0, DEADLINE);
    }
    wait_for_saved(&state, 1);
    agent.process.send(Signal::KILL);
    agent.process.wait(DEADLINE);
    for server in &servers {
        wait_for_route(server, "T1", 1, DEADLINE);
    }

    // Its broker says nothing more: only the agent can bring the routes back.
    let next = Agent::start(&arguments);
    for server in &servers {
        wait_for_route(server, "T1", 0, DEADLINE);
        wait_for_route(server, "T2", 0, DEADLINE);
    }
    let status = next.wait_for_status("it is accepted", is_accepted);
    assert_eq!(status["brokers"][0]["address"], advertised.as_str());
    drop(broker);
}

#[test]
fn a_broker_that_died_with_the_agent_is_not_announced_again() {
    let server = Server::start(&[]);
    let home = Scratch::new("state");
    let arguments = format!("-n {} --state {}", server.address, home.path().display());
    let mut agent = Agent::start(&arguments);
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let advertised = ports.each_ref().map(|port| port.local_addr().expect("bound").to_string());
    let _dying = register(agent.address, "broker-a", &advertised[0], &["T1", "T2"]);
    let _living = register(agent.address, "broker-b", &advertised[1], &["T3", "T4"]);
    wait_for_saved(home.path(), 2);
    agent.process.send(Signal::KILL);
    agent.process.wait(DEADLINE);
    let [dead, _alive] = ports;
    drop(dead);
    wait_for_route(&server, "T1", 1, DEADLINE);
    wait_for_route(&server, "T3", 1, DEADLINE);

    let next = Agent::start(&arguments);
    wait_for_route(&server, "T3", 0, DEADLINE);
    next.wait_for_log("a saved broker does not accept connections: it is forgotten");
    wait_for_saved(home.path(), 1);
    assert_eq!(server.ask("route T1").code, 1);
}

#[test]
fn sigterm_ends_with_0_and_unregisters_nobody() {
    let server = Server::start(&[]);
    let way = Recorder::to(server.address);
    let home = Scratch::new("state");
    let arguments = format!("-n {} --state {}", way.address, home.path().display());
    let mut agent = Agent::start(&arguments);
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let mut broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    wait_for_route(&server, "T1", 0, DEADLINE);
    assert_eq!(agent.ask("route T1").code, 0);
    wait_for_saved(home.path(), 1);
    agent.process.send(Signal::TERM);
    let status = agent.process.wait(DEADLINE);
    assert_eq!(status.code(), Some(0), "{}", agent.process.err());
    assert_eq!(broker.read(&mut [0; 1]).expect("an orderly end"), 0);
    // All of its bytes are there when the connections ended, which the server takes as the broker's end.
    wait_for_route(&server, "T1", 1, DEADLINE);
    let codes = way.codes();
    assert!(codes.contains(&request::REGISTER_BROKER), "{codes:?}");
    assert!(!codes.contains(&request::UNREGISTER_BROKER), "{codes:?}");

    let next = Agent::start(&arguments);
    wait_for_route(&server, "T1", 0, DEADLINE);
    next.wait_for_status("it is accepted", is_accepted);
}

#[test]
fn two_agents_of_one_machine_share_no_admin_side() {
    let server = Server::start(&[]);
    // The default port: whether this takes it or somebody has it, the agents cannot.
    let _held = TcpListener::bind("127.0.0.1:9881");
    let agents = [(); 2].map(|()| {
        let agent = Ongoing::start(&format!("agent --listen 127.0.0.1:0 -n {}", server.address));
        agent.wait_for("admin: none; choose an address with --admin-listen\n");
        agent
    });
    for agent in &agents {
        agent.wait_for_log("no HTTP side");
        assert_eq!(ask(&format!("check -n {}", address_in(&agent.out()))).code, 0, "{}", agent.err());
    }

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let chosen = taken.local_addr().expect("bound");
    let command = format!("agent --listen 127.0.0.1:0 -n {} --admin-listen {chosen}", server.address);
    let told = ask(&command);
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert!(told.err.contains(&chosen.port().to_string()), "{}", told.err);
    let told = ask(&format!("agent --listen {chosen} --admin-listen 127.0.0.1:0 -n {}", server.address));
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert!(told.err.contains("is in use") && told.err.contains("--listen"), "{}", told.err);
}

#[test]
fn wrong_usage_is_one_sentence_with_the_next_step() {
    let told = ask("agent");
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    let sentence = told.sentence();
    assert!(
        sentence.contains("no name server is configured") && sentence.contains("NAMESRV_ADDR"),
        "{sentence}"
    );

    let folder = Scratch::new("list");
    let file = folder.path().join("servers");
    let told = ask(&format!("agent --servers-file {}", file.display()));
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    assert!(told.sentence().contains(&format!("{} cannot be read", file.display())), "{}", told.err);
    std::fs::write(&file, "# nobody\n").expect("written");
    let told = ask(&format!("agent --servers-file {}", file.display()));
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    assert!(told.sentence().contains(&file.display().to_string()), "{}", told.err);

    let told = ask(&format!("agent --servers-file {} -n 127.0.0.1:9876", file.display()));
    assert_eq!(told.code, 2);
    let server = Server::start(&[]);
    let told = ask(&format!("agent status --admin {}", server.admin));
    assert_eq!(told.code, 1);
    assert!(told.sentence().contains("is no agent"), "{}", told.err);
}

#[test]
fn a_state_that_cannot_be_kept_is_told() {
    let server = Server::start(&[]);
    let home = Scratch::new("state");
    let file = home.path().join("file");
    std::fs::write(&file, "in the way").expect("written");
    let told: Told = waypost()
        .args(["agent", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["-n", &server.address.to_string(), "--state"])
        .arg(&file)
        .output()
        .expect("the binary runs")
        .into();
    assert_eq!((told.code, told.out.as_str()), (1, ""), "{}", told.err);
    assert!(told.err.contains(&file.display().to_string()) && told.err.contains("--state"), "{}", told.err);

    // A disk that fails later costs no route.
    let state = home.path().join("state");
    let agent = Agent::start(&format!("-n {} --state {}", server.address, state.display()));
    std::fs::create_dir_all(&state).expect("a folder");
    std::fs::write(state.join("brokers"), "in the way").expect("written");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let _broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    agent.wait_for_log("its route will not survive the agent's death");
    wait_for_route(&server, "T1", 0, DEADLINE);
}

#[test]
fn a_standstill_of_the_agent_leaves_a_line_with_its_length_and_is_counted() {
    let server = Server::start(&[]);
    let agent = Agent::start(&format!("-n {}", server.address));
    agent.process.send(Signal::STOP);
    // Longer than what a busy machine costs; there is nothing to wait for.
    std::thread::sleep(Duration::from_millis(3_500));
    agent.process.send(Signal::CONT);
    agent.wait_for_log("the process stood still");
    let log = agent.process.err();
    let line = log.lines().find(|line| line.contains("the process stood still")).expect("it is there");
    let milliseconds = line.rsplit("milliseconds=").next().and_then(|text| text.trim().parse::<u32>().ok());
    assert!(milliseconds.is_some_and(|length| length > 3_000), "{line}");
    let (_, metrics) = get(&agent.admin, "/metrics");
    assert!(metrics.contains("\nwaypost_agent_standstills_total 1\n"), "{metrics}");
    assert!(metrics.contains("\nwaypost_agent_standstill_seconds_total 3."), "{metrics}");
}

#[test]
fn agents_that_name_each_other_say_so_and_take_each_other_back() {
    let server = Server::start(&[]);
    let folder = Scratch::new("list");
    let file = folder.path().join("servers");
    let write = |text: String| std::fs::write(&file, text).expect("written");
    write(server.address.to_string());
    let a = Agent::start(&format!("--servers-file {}", file.display()));
    let b = Agent::start(&format!("-n {}", a.address));
    write(b.address.to_string());
    a.process.send(Signal::HUP);
    for agent in [&a, &b] {
        agent.wait_for_log("name server left out: it is an agent that leads back to this one");
        agent.wait_for_log("no name server is left");
    }
    let told = ask(&format!("agent status --admin {}", a.admin));
    let line = format!("{} is left out: it is an agent that leads back to this one", b.address);
    assert!(told.code == 0 && told.out.contains(&line), "{}", told.out);
    assert!(get(&a.admin, "/metrics").1.contains("waypost_agent_servers_left_out 1"));

    write(server.address.to_string());
    a.process.send(Signal::HUP);
    b.wait_for_log("it leads back to this agent no longer");
    let _broker = register(b.address, "broker-a", "127.0.0.1:10911", &["T1", "T2"]);
    wait_for_route(&server, "T1", 0, DEADLINE);
}
