//! The server under test.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use waypost_rocketmq_wire::message::Request;
use waypost_testkit::server::WaypostServer;

use super::{Answer, Broker, Client, Metrics, SOON, Settings, Signal, poll_until};

/// `waypost serve` on a free port, with its home in a temporary folder.
pub(crate) struct Server {
    process: WaypostServer,
    admin: Option<SocketAddr>,
}

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Server {
    /// Starts it with the defaults.
    pub(crate) fn with_defaults() -> Self {
        Self::start(&Settings::new())
    }

    pub(crate) fn start(settings: &Settings) -> Self {
        let process = WaypostServer::start(Path::new(env!("CARGO_BIN_EXE_waypost")), settings);
        let mut server = Self { process, admin: None };
        server.admin = server.find_admin();
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    pub(crate) fn home(&self) -> &Path {
        self.process.home()
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address())
    }

    /// A client whose address is `127.<a>.<b>.<c>`: the machine answers to all of them.
    pub(crate) fn client_from(&self, [a, b, c]: [u8; 3]) -> Client {
        Client::from(IpAddr::V4(Ipv4Addr::new(127, a, b, c)), self.address())
    }

    /// Registers `broker` over a connection of its own, which keeps it in the table.
    pub(crate) fn register(&self, broker: &Broker) -> Client {
        let mut client = self.client();
        broker.register(&mut client);
        client
    }

    /// Everything that the table shows of `topics`: the bytes of 206, 106 and each 105.
    pub(crate) fn table(&self, topics: &[&str]) -> Vec<Answer> {
        let mut client = self.client();
        let mut answers = vec![client.call(&Request::new(206)), client.call(&Request::new(106))];
        answers.extend(topics.iter().map(|topic| client.route(topic).expect("an answer")));
        answers.into_iter().map(|answer| Answer { opaque: 0, ..answer }).collect()
    }

    /// # Panics
    ///
    /// If the process has ended, or no longer answers.
    pub(crate) fn assert_alive(&mut self) {
        let ended = self.process.ended();
        assert!(ended.is_none(), "the server ended: {ended:?}");
        assert_eq!(self.client().call(&Request::new(106)).code, 0);
    }

    /// Its memory, by the kernel's account.
    pub(crate) fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process lives");
        let bytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
        };
        Memory { now: bytes("VmRSS:"), peak: bytes("VmHWM:") }
    }

    /// Starts the account of the peak anew, from the memory that is resident now.
    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.id()), "5")
            .expect("the account of a child can be reset");
    }

    /// What it counts.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::read(self.admin.expect("the server has an admin side"))
    }

    /// Waits until the counter `name` of `label` is at least `least`.
    ///
    /// # Panics
    ///
    /// If it never is.
    pub(crate) fn expect_count(&self, name: &str, label: &str, least: u64) {
        let mut seen = 0.0;
        let reached = poll_until(SOON, || {
            seen = self.metrics().sum(name, label);
            (seen >= least as f64).then_some(())
        });
        assert!(reached.is_some(), "{name}{{{label}}} is {seen}, not {least}");
    }

    /// Waits until its log has `text`.
    ///
    /// # Panics
    ///
    /// If it never has.
    pub(crate) fn expect_log(&self, text: &str) {
        let found = poll_until(SOON, || plain(&self.log()).contains(text).then_some(()));
        assert!(found.is_some(), "not in the log: {text}\n{}", plain(&self.log()));
    }

    /// The lines of its log that contain `text`, without colours.
    pub(crate) fn log_lines(&self, text: &str) -> Vec<String> {
        plain(&self.log()).lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    pub(crate) fn send(&mut self, signal: Signal) {
        self.process.send(signal);
    }

    /// SIGSTOP, and waits until every thread stands still.
    pub(crate) fn stand_still(&mut self) {
        self.process.stand_still();
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// How it ended, if it does within `limit`.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll_until(limit, || self.process.ended())
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on its port, with what its home folder holds.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.admin = self.find_admin();
    }

    /// The other port that the process listens on. Not from its log, whose words are not what is tested here.
    fn find_admin(&self) -> Option<SocketAddr> {
        let process = format!("/proc/{}", self.id());
        let own: HashSet<String> = fs::read_dir(format!("{process}/fd"))
            .expect("the process lives")
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let sockets = fs::read_to_string(format!("{process}/net/tcp")).expect("the table of sockets");
        sockets.lines().skip(1).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
            let port = u16::from_str_radix(local.split(':').nth(1)?, 16).ok()?;
            let is_admin = state == "0A" && own.contains(inode) && port != self.address().port();
            is_admin.then(|| SocketAddr::from(([127, 0, 0, 1], port)))
        })
    }
}

/// `text` without the colours of a terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('\u{1b}');
    plain.extend(parts.next());
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}
