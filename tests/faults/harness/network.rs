//! Two machines on one wire: network namespaces, so that one of them can fall silent.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use waypost_testkit::peers::tools_present;

use super::not_run;

/// What drops every packet.
const SILENCE: &str = "table inet silence {
    chain input { type filter hook input priority 0; policy drop; }
    chain output { type filter hook output priority 0; policy drop; }
}
";

/// Two network namespaces joined by a wire; they go on drop.
#[derive(Debug)]
pub(crate) struct Networks {
    pub(crate) server: String,
    pub(crate) broker: String,
}

impl Networks {
    /// The address of the server's machine on the wire.
    pub(crate) const SERVER_ADDRESS: [u8; 4] = [10, 77, 0, 1];

    /// Makes them; `None`, and one line about `what` is not run, without root or a tool.
    pub(crate) fn make(what: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            not_run(what, "not root");
            return None;
        }
        if !tools_present(what, &["ip", "nft"]) {
            return None;
        }
        let id = std::process::id();
        let made = Self { server: format!("wpf{id}s"), broker: format!("wpf{id}b") };
        let (server, broker) = (made.server.as_str(), made.broker.as_str());
        let steps: [&[&str]; 9] = [
            &["netns", "add", server],
            &["netns", "add", broker],
            &["-n", server, "link", "set", "lo", "up"],
            &["-n", broker, "link", "set", "lo", "up"],
            &["-n", server, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", broker],
            &["-n", server, "address", "add", "10.77.0.1/24", "dev", "wire"],
            &["-n", broker, "address", "add", "10.77.0.2/24", "dev", "wire"],
            &["-n", server, "link", "set", "wire", "up"],
            &["-n", broker, "link", "set", "wire", "up"],
        ];
        for step in steps {
            let done = Command::new("ip").args(step).output().expect("ip can be run");
            if !done.status.success() {
                let error = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                not_run(what, &format!("`ip {}` failed ({error})", step.join(" ")));
                return None;
            }
        }
        Some(made)
    }

    /// Moves this thread, and the processes that it starts, to the server's machine.
    pub(crate) fn enter_server(&self) {
        let namespace =
            File::open(format!("/var/run/netns/{}", self.server)).expect("the namespace is there");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter a namespace");
    }

    /// From now on the broker's machine neither hears nor says anything.
    pub(crate) fn silence_broker(&self) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.broker, "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("nft can be run");
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(SILENCE.as_bytes()));
        assert!(matches!(written, Some(Ok(()))), "{written:?}");
        let status = child.wait().expect("nft ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in [&self.server, &self.broker] {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
