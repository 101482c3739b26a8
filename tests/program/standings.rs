//! How an agent sees its name servers.

use rustix::process::Signal;
use serde_json::Value;
use std::net::SocketAddr;
use waypost_testkit::peers::poll_until;

use crate::agent::Agent;
use crate::harness::{DEADLINE, DeadPort, Server, ask, get, register, silent_server};

fn list(servers: &[Server]) -> String {
    servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(";")
}

/// What a status says of one server.
fn of(status: &Value, server: SocketAddr) -> &Value {
    let servers = status["servers"].as_array().expect("a list");
    let found = servers.iter().find(|it| it["server"] == server.to_string());
    found.unwrap_or_else(|| panic!("{server} is not in {status}"))
}

fn wait_for_state(agent: &Agent, server: SocketAddr, state: &str) -> Value {
    let status = agent.wait_for_status(state, |status| of(status, server)["state"] == state);
    of(&status, server).clone()
}

/// The lines of an agent's log that tell of a change of this server to this state.
fn lines(agent: &Agent, server: SocketAddr, state: &str) -> usize {
    let (message, server) = (format!("name server is {state}"), format!("server={server}"));
    let log = agent.process.err();
    log.lines().filter(|line| line.contains(&message) && line.split(' ').any(|word| word == server)).count()
}

fn wait_for_line(agent: &Agent, server: SocketAddr, state: &str, count: usize) {
    let told = poll_until(DEADLINE, || (lines(agent, server, state) == count).then_some(()));
    assert!(told.is_some(), "not {count} lines that {server} is {state}\n{}", agent.process.err());
}

#[test]
fn one_hung_server_of_three_is_told_though_nobody_asks_it() {
    let servers = [Server::start(&[]), Server::start(&[]), Server::start(&[])];
    let agent = Agent::start(&format!("-n {}", list(&servers)));
    for server in &servers {
        assert_eq!(wait_for_state(&agent, server.address, "healthy")["healthy"], true);
        wait_for_line(&agent, server.address, "healthy", 1);
    }
    let hung = servers[1].address;
    servers[1].send(Signal::STOP);
    wait_for_line(&agent, hung, "silent", 1);
    let told = wait_for_state(&agent, hung, "silent");
    assert_eq!((&told["healthy"], &told["last_fault"]), (&false.into(), &"silent".into()), "{told}");
    assert!(told["failures"].as_u64().is_some_and(|count| count > 0), "{told}");
    assert!(told["since_ms"].as_u64() >= told["last_fault_ms"].as_u64(), "{told}");
    let table = ask(&format!("agent status --admin {}", agent.admin)).out;
    let row = table.lines().find(|line| line.starts_with(&hung.to_string())).expect("a row");
    assert!(row.contains("  silent  ") && row.contains("silent, ") && row.ends_with(" ago"), "{table}");
    let metrics = get(&agent.admin, "/metrics").1;
    assert!(metrics.contains(&format!("waypost_agent_server_healthy{{server=\"{hung}\"}} 0\n")), "{metrics}");
    let state = |name: &str| format!("waypost_agent_server_state{{server=\"{hung}\",state=\"{name}\"}}");
    assert!(metrics.contains(&format!("{} 1\n", state("silent"))), "{metrics}");
    assert!(metrics.contains(&format!("{} 0\n", state("healthy"))), "{metrics}");

    servers[1].send(Signal::CONT);
    wait_for_line(&agent, hung, "healthy", 2);
    assert!(agent.process.err().contains("before=\"silent\""), "{}", agent.process.err());
    assert_eq!(wait_for_state(&agent, hung, "healthy")["failures"], 0);
    for (server, silent) in servers.iter().zip([0, 1, 0]) {
        assert_eq!(lines(&agent, server.address, "silent"), silent, "{}", agent.process.err());
    }
}

#[test]
fn a_stopped_server_is_not_healthy_beside_a_broker_that_waits_for_it() {
    let servers = [Server::start(&[]), Server::start(&[])];
    let agent = Agent::start(&format!("-n {}", list(&servers)));
    let stopped = servers[0].address;
    wait_for_state(&agent, stopped, "healthy");
    servers[0].send(Signal::STOP);
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = port.local_addr().expect("bound").to_string();
    let _broker = register(agent.address, "broker-a", &advertised, &["T1", "T2"]);
    let status = agent.wait_for_status("it waits and is silent", |status| {
        let upstream = status["brokers"][0]["servers"].as_array();
        let waits = upstream.is_some_and(|servers| {
            servers.iter().any(|it| it["server"] == stopped.to_string() && it["queue"].as_u64() > Some(0))
        });
        waits && of(status, stopped)["state"] == "silent"
    });
    assert_eq!(of(&status, servers[1].address)["state"], "healthy", "{status}");
}

#[test]
fn a_server_that_is_gone_refuses_and_one_that_was_never_heard_is_unknown_until_it_is_silent() {
    let server = Server::start(&[]);
    let (_never, silent) = silent_server();
    let dead = DeadPort::new();
    let agent = Agent::start(&format!("-n {};{silent};{}", server.address, dead.address()));
    let healthy = format!("waypost_agent_server_healthy{{server=\"{silent}\"}}");
    let unknown = format!("waypost_agent_server_state{{server=\"{silent}\",state=\"unknown\"}} 1\n");
    let known = poll_until(DEADLINE, || {
        let metrics = get(&agent.admin, "/metrics").1;
        // Nothing is claimed of what is not known.
        assert_ne!(metrics.contains(&unknown), metrics.contains(&healthy), "{metrics}");
        metrics.contains(&format!("{healthy} 0\n")).then_some(())
    });
    assert!(known.is_some(), "it stays unknown");
    wait_for_line(&agent, silent, "silent", 1);
    wait_for_line(&agent, dead.address(), "refusing", 1);
    let refusing = wait_for_state(&agent, dead.address(), "refusing");
    assert_eq!(refusing["last_fault"], "connect", "{refusing}");
    let gone = server.address;
    wait_for_state(&agent, gone, "healthy");
    server.send(Signal::KILL);
    wait_for_line(&agent, gone, "refusing", 1);
}
