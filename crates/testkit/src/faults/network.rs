//! Machines of their own on one network: kernel namespaces, so that a machine can fall silent as a real one does.
//!
//! A [`Network`] is a namespace, *outside*, to which each [`Machine`] has a wire of its own. Outside has a loopback
//! interface and routes between the machines. A thread enters it, or a machine, and with it all threads and
//! processes that it starts afterwards; other threads stay where they are.

use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::not_run;
use crate::peers::tools_present;

/// How the names of all namespaces start; the process id follows.
const PREFIX: &str = "wpt";

/// What drops every packet.
const SILENCE: &str = "table inet silence {
    chain input { type filter hook input priority 0; policy drop; }
    chain output { type filter hook output priority 0; policy drop; }
}
";

/// A network of machines. Its namespaces go on drop, and what a killed process left behind goes with the next one.
#[derive(Debug)]
pub struct Network {
    outside: String,
    machines: AtomicU32,
}

impl Network {
    /// Makes it; `None`, and one line that `what` is not run, without root or a tool.
    ///
    /// # Panics
    ///
    /// In that case, if the environment says `CI=true`.
    pub fn make(what: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            not_run(what, "not root");
            return None;
        }
        if !tools_present(what, &["ip", "nft"]) {
            return None;
        }
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let outside = format!("{PREFIX}{}-{number}", std::process::id());
        let made = ip(&["netns", "add", &outside]);
        let network = Self { outside, machines: AtomicU32::new(0) };
        let made = made.and_then(|()| ip(&["-n", &network.outside, "link", "set", "lo", "up"]));
        if let Err(error) = made {
            not_run(what, &error);
            return None;
        }
        network.outside(|| {
            // Of this namespace only.
            let _ = std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        });
        Some(network)
    }

    /// Adds a machine.
    ///
    /// # Panics
    ///
    /// If the kernel does not let it: the namespace of the network itself could be made.
    pub fn machine(&self) -> Machine {
        let number = self.machines.fetch_add(1, Ordering::Relaxed) + 1;
        let third = u8::try_from(number).expect("fewer than 256 machines");
        let machine = Machine {
            name: format!("{}m{number}", self.outside),
            address: Ipv4Addr::new(10, 77, third, 2),
            gateway: Ipv4Addr::new(10, 77, third, 1),
        };
        let (outside, name) = (self.outside.as_str(), machine.name.as_str());
        let wire = format!("m{number}");
        let (inner, outer) = (format!("{}/24", machine.address), format!("{}/24", machine.gateway));
        let gateway = machine.gateway.to_string();
        let steps: [&[&str]; 8] = [
            &["netns", "add", name],
            &["-n", name, "link", "set", "lo", "up"],
            &["-n", outside, "link", "add", &wire, "type", "veth", "peer", "name", "wire", "netns", name],
            &["-n", name, "address", "add", &inner, "dev", "wire"],
            &["-n", outside, "address", "add", &outer, "dev", &wire],
            &["-n", name, "link", "set", "wire", "up"],
            &["-n", outside, "link", "set", &wire, "up"],
            &["-n", name, "route", "add", "default", "via", &gateway],
        ];
        for step in steps {
            ip(step).unwrap_or_else(|error| panic!("{error}"));
        }
        machine
    }

    /// Moves this thread outside, for good, with all threads and processes that it starts from now on.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    pub fn enter(&self) {
        enter(&self.outside);
    }

    /// Runs `work` outside, and brings this thread back.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    pub fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        within(&self.outside, work)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Machines that are still in use keep theirs.
        let _ = ip(&["netns", "del", &self.outside]);
    }
}

/// A machine with one wire. Its namespace goes on drop.
#[derive(Debug)]
pub struct Machine {
    name: String,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
}

impl Machine {
    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Under which address it reaches what runs outside.
    pub fn gateway(&self) -> Ipv4Addr {
        self.gateway
    }

    /// Runs `work` on this machine, and brings this thread back; a process that it starts stays on the machine.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        within(&self.name, work)
    }

    /// The words that run a program on this machine when they are put before its command.
    pub fn prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// From now on it neither hears nor says anything; nobody is told.
    ///
    /// # Panics
    ///
    /// If nft fails.
    pub fn silence(&self) {
        self.nft(SILENCE);
    }

    /// Ends the silence, the loss, or both.
    ///
    /// # Panics
    ///
    /// If nft fails.
    pub fn restore(&self) {
        self.nft("flush ruleset\n");
    }

    /// From now on each packet on its wire, in either direction, is dropped with a chance of `percent`.
    ///
    /// # Panics
    ///
    /// If nft fails.
    pub fn lose(&self, percent: u32) {
        self.nft(&format!(
            "flush ruleset
table inet loss {{
    chain input {{ type filter hook input priority 0; iifname \"wire\" numgen random mod 100 < {percent} drop; }}
    chain output {{ type filter hook output priority 0; oifname \"wire\" numgen random mod 100 < {percent} drop; }}
}}
"
        ));
    }

    fn nft(&self, rules: &str) {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped());
        let mut child = self.within(|| command.spawn()).expect("nft can be run");
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(rules.as_bytes()));
        assert!(matches!(written, Some(Ok(()))), "{written:?}");
        let status = child.wait().expect("nft ends");
        assert!(status.success(), "nft refuses ({status}): {rules}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn within<T>(name: &str, work: impl FnOnce() -> T) -> T {
    /// Goes back also when `work` panics: a test harness reuses its threads.
    struct Home(File);
    impl Drop for Home {
        fn drop(&mut self) {
            let back = move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network));
            assert!(back.is_ok() || std::thread::panicking(), "cannot go back: {back:?}");
        }
    }
    let _home = Home(File::open("/proc/thread-self/ns/net").expect("the namespace of this thread"));
    enter(name);
    work()
}

fn enter(name: &str) {
    let namespace = File::open(format!("/var/run/netns/{name}")).expect("the namespace is there");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("root may enter a namespace");
}

fn ip(words: &[&str]) -> Result<(), String> {
    let done =
        Command::new("ip").args(words).output().map_err(|error| format!("`ip` cannot run ({error})"))?;
    if done.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(format!("`ip {}` failed ({error})", words.join(" ")))
}

/// Removes the namespaces of processes that were killed before they could.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/var/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.filter(|owner| owner.parse::<u32>().is_ok()) else { continue };
        if !Path::new("/proc").join(owner).exists() {
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read as _};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn a_machine_is_reached_falls_silent_and_comes_back() {
        let Some(network) = Network::make("a machine that falls silent") else { return };
        let machine = network.machine();
        let listener = machine.within(|| TcpListener::bind((machine.address(), 0)).unwrap());
        let address = listener.local_addr().unwrap();
        let connect =
            |limit| network.outside(|| TcpStream::connect_timeout(&address, limit).map_err(|e| e.kind()));
        let mut outer = connect(SOON).unwrap();
        let (mut inner, _) = listener.accept().unwrap();
        machine.silence();
        let refused = outer.write_all(b"x");
        assert!(matches!(connect(SHORT), Err(ErrorKind::TimedOut)));
        inner.set_read_timeout(Some(SHORT)).unwrap();
        assert!(inner.read(&mut [0]).is_err(), "a silent machine hears ({refused:?})");
        machine.restore();
        inner.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(inner.read(&mut [0]).unwrap(), 1, "what was sent comes after the silence");
        connect(SOON).unwrap();
    }

    #[test]
    fn machines_reach_each_other_and_lose_about_as_many_packets_as_asked() {
        let Some(network) = Network::make("a machine that loses packets") else { return };
        let (near, far) = (network.machine(), network.machine());
        let receiver = near.within(|| UdpSocket::bind((near.address(), 0)).unwrap());
        let sender = far.within(|| UdpSocket::bind((far.address(), 0)).unwrap());
        let target: SocketAddr = receiver.local_addr().unwrap();
        near.lose(20);
        receiver.set_read_timeout(Some(SHORT)).unwrap();
        let mut received = 0;
        for _ in 0..10 {
            (0..100).for_each(|_| drop(sender.send_to(b"x", target)));
            while receiver.recv(&mut [0]).is_ok() {
                received += 1;
            }
        }
        assert!((700..900).contains(&received), "{received} of 1000 came");
    }
}
