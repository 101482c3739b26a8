//! One thread of the process hangs while all others go on, and the process ends, so that its clients leave it and it
//! is started again. Threads are held as by a debugger, and held before anybody has asked for anything: a thread that
//! waits for work may hang as well.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use waypost_testkit::faults::HeldThread;
use waypost_testkit::peers::Process;

use crate::harness::{SOON, Scratch, Server, poll_until};

/// The watchdog's patience, and what a look of it and the end of the process take on a busy machine.
const ABOUT_FIVE_SECONDS: Duration = Duration::from_secs(8);

const SIGABRT: i32 = 6;

/// How a process ended and how long after `since`, and its log.
struct Ended {
    status: Option<ExitStatus>,
    after: Duration,
    log: String,
}

impl Ended {
    fn assert_by_watchdog(&self, party: &str) {
        let Self { status, after, log } = self;
        eprintln!("{party}: {status:?} after {after:?}");
        assert_eq!(status.and_then(|status| status.signal()), Some(SIGABRT), "{party}: {log}");
        assert!(*after <= ABOUT_FIVE_SECONDS, "{party}: it ended after {after:?}");
        let line = log.lines().find(|line| line.contains("no progress: the process aborts"));
        assert!(line.is_some_and(|line| line.contains(party)), "not told of the {party}:\n{log}");
    }
}

fn end_of_server(thread: &str) -> Ended {
    let mut server = Server::with_defaults();
    let since = Instant::now();
    let _held = HeldThread::hold(server.id(), thread);
    let status = server.ends_within(SOON);
    Ended { status, after: since.elapsed(), log: server.log() }
}

fn end_of_agent(thread: &str) -> Ended {
    let folder = Scratch::new("stuck-agent");
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.args(["agent", "-n", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.env("HOME", folder.path()).env_remove("NAMESRV_ADDR");
    let mut agent = Process::start("waypost agent", &mut command, &folder.path().join("log"));
    agent.wait_for_log("that it is ready", 0, SOON, |log| log.contains("agent started").then_some(()));
    let since = Instant::now();
    let _held = HeldThread::hold(agent.id(), thread);
    let status = poll_until(SOON, || agent.ended());
    Ended { status, after: since.elapsed(), log: agent.log() }
}

/// All at once: each takes five seconds, of which nobody works.
fn each(threads: &[(&str, &str)], end: impl Fn(&str) -> Ended + Sync) {
    std::thread::scope(|scope| {
        for (thread, party) in threads {
            let end = &end;
            scope.spawn(move || end(thread).assert_by_watchdog(party));
        }
    });
}

#[test]
fn a_server_ends_within_about_five_seconds_of_the_hang_of_any_thread() {
    let threads = [
        ("session-0", "session thread 0"),
        ("table lane", "table lane"),
        ("list lane", "list lane"),
        ("registration lane", "registration lane"),
        ("kv-writer", "kv-writer"),
        ("pulse", "pulse thread"),
        ("watchdog", "watchdog thread"),
    ];
    each(&threads, end_of_server);
}

#[test]
fn an_agent_ends_within_about_five_seconds_of_the_hang_of_any_thread() {
    let threads =
        [("session-0", "session thread 0"), ("pulse", "pulse thread"), ("watchdog", "watchdog thread")];
    each(&threads, end_of_agent);
}
