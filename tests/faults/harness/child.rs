//! A broker in a process of its own, to be killed, stopped or cut off: the test program runs itself again.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::{Broker, Client, SOON, Scratch, Signal};
use waypost_testkit::peers::Process;

/// Tells a process that it is the child; holds what the child needs.
const CHILD: &str = "WAYPOST_FAULTS_CHILD";

/// What the child prints once it is registered.
const REGISTERED: &str = "registered with the server";

/// Between two heartbeats of a child.
const PERIOD: Duration = Duration::from_millis(300);

/// A child process that registered as a broker and sends heartbeats.
pub(crate) struct ChildBroker {
    process: Process,
    _folder: Scratch,
}

impl ChildBroker {
    /// To be called first by every test that starts children, named `test` with its modules: in a child it is
    /// the broker until the process is killed.
    pub(crate) fn take_over_if_child() {
        let Ok(what) = std::env::var(CHILD) else { return };
        let mut words = what.split(' ');
        let mut word = || words.next().expect("the parent gives all words");
        let server: SocketAddr = word().parse().expect("the server's address");
        let (name, address, timeout) = (word().to_owned(), word().to_owned(), word().parse().ok());
        let topics = words.map(str::to_owned).collect();
        let broker = Broker { name, address, topics, timeout_ms: timeout, version: 1 };
        let mut client = Client::to(server);
        broker.register(&mut client);
        println!("{REGISTERED}");
        loop {
            std::thread::sleep(PERIOD);
            broker.beat(&mut client);
        }
    }

    /// Starts the child and waits until it is registered. `prefix` is put before the command.
    pub(crate) fn start(test: &str, server: SocketAddr, broker: &Broker, prefix: &[&str]) -> Self {
        let folder = Scratch::new("child-broker");
        let program = std::env::current_exe().expect("the path of this program");
        let arguments = ["--exact", test, "--nocapture", "--test-threads=1"];
        let mut command = match prefix.split_first() {
            None => Command::new(&program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        let timeout = broker.timeout_ms.map_or_else(|| "-".to_owned(), |millis| millis.to_string());
        let topics = broker.topics.join(" ");
        command
            .args(arguments)
            .env(CHILD, format!("{server} {} {} {timeout} {topics}", broker.name, broker.address));
        let mut process = Process::start("child broker", &mut command, &folder.path().join("log"));
        process.wait_for_log("registration", 0, SOON, |log| log.contains(REGISTERED).then_some(()));
        Self { process, _folder: folder }
    }

    /// Kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn send(&mut self, signal: Signal) {
        self.process.send(signal);
    }
}
