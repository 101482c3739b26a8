//! A disk that hangs, played by a pipe that nobody reads: whoever opens it for writing waits for ever.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use waypost_testkit::peers::{Scratch, poll_until};

use crate::agent::Agent;
use crate::harness::{DEADLINE, Ongoing, Server};

/// The end after a second signal: the last lines of the log may take two seconds, the rest takes no time.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Whoever opens this path waits.
fn hang(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

#[test]
fn an_agent_whose_disk_hangs_ends_and_a_second_signal_ends_it_at_once() {
    for second in [None, Some(Signal::INT)] {
        let server = Server::start(&[]);
        let _broker = server.register("broker-a", "127.0.0.1:10911", &["T1", "T2"]);
        let state = Scratch::new("state");
        let mut agent = Agent::start(&format!("-n {} --state {}", server.address, state.path().display()));
        // Where it writes before it renames.
        hang(&state.path().join(format!(".routes.tsv.{}.tmp", agent.process.id())));
        // Without a route there is nothing to write.
        assert_eq!(agent.ask("route T1").code, 0);
        agent.process.send(Signal::TERM);
        agent.process.wait_for_log("the stop waits for the routes that are being saved");
        if let Some(second) = second {
            agent.process.send(second);
            assert_eq!(agent.process.wait(AT_ONCE).code(), Some(130), "{}", agent.process.err());
        } else {
            assert_eq!(agent.process.wait(DEADLINE).code(), Some(0), "{}", agent.process.err());
            assert!(agent.process.err().contains("were not saved in time"), "{}", agent.process.err());
        }
    }
}

#[test]
fn a_second_signal_ends_a_start_that_hangs() {
    let home = Scratch::new("hung");
    let (kv, routes) = (home.path().join("kvConfig.json"), home.path().join("routes.tsv"));
    hang(&kv);
    hang(&routes);
    let list = "-n 127.0.0.1:1";
    for command in [
        format!("serve --listen-port 0 --set adminListen=off --set kvConfigPath={}", kv.display()),
        format!(
            "agent --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 {list} --state {}",
            home.path().display()
        ),
    ] {
        let mut process = Ongoing::start(&command);
        // One that listens to signals does so on a thread of this name.
        let tasks = format!("/proc/{}/task", process.id());
        let listens = || {
            let mut names = fs::read_dir(&tasks).ok()?.flatten().map(|task| task.path().join("comm"));
            names.any(|name| fs::read_to_string(name).is_ok_and(|name| name == "signals\n")).then_some(())
        };
        assert!(poll_until(DEADLINE, listens).is_some(), "{command}: {}", process.err());
        process.send(Signal::TERM);
        process.send(Signal::INT);
        // Whichever comes second.
        let code = process.wait(AT_ONCE).code();
        assert!(matches!(code, Some(130 | 143)), "{command}: {code:?} {}", process.err());
        assert_eq!(process.out(), "", "it did not start");
    }
}

#[test]
fn a_second_signal_ends_a_command_whose_output_nobody_reads() {
    let server = Server::start(&[]);
    let home = Scratch::new("unread");
    let out = home.path().join("out");
    hang(&out);
    // Opened for reading as well, so that nothing waits before the pipe is full.
    let pipe = fs::File::options().read(true).write(true).open(&out).expect("a pipe");
    let full = vec![b'x'; 1 << 20];
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).expect("a flag of pipes");
    while (&pipe).write(&full).is_ok_and(|count| count > 0) {}
    while (&pipe).write(b"x").is_ok_and(|count| count > 0) {}
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::empty()).expect("a flag of pipes");
    let command = format!("watch T1 --every 100ms -n {}", server.address);
    let mut process = Ongoing::start_with_out(&command, pipe);
    let waits = || {
        let at = fs::read_to_string(format!("/proc/{}/wchan", process.id())).ok()?;
        at.contains("pipe").then_some(())
    };
    // Not every kernel tells where a process waits; without that the signals come a little early.
    let _ = poll_until(Duration::from_secs(2), waits);
    process.send(Signal::TERM);
    process.send(Signal::INT);
    let code = process.wait(AT_ONCE).code();
    assert!(matches!(code, Some(130 | 143)), "{code:?} {}", process.err());
}
