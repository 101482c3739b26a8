//! The real `waypost serve`, as a process.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::peers::{Process, Scratch, Settings, Signal};

/// Far more than it needs, on a machine that is busy with other tests.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A drain ends by itself before this.
const STOP_DEADLINE: Duration = Duration::from_secs(40);

/// What it prints when it is ready; the address and port follow.
const BANNER: &str = "The Name Server boot success. serializeType=JSON, address ";

/// A Waypost server with its own temporary home. It keeps home and port when it is started again; it is killed on
/// drop, and a failing test prints the end of its log.
#[derive(Debug)]
pub struct WaypostServer {
    binary: PathBuf,
    settings: Settings,
    port: u16,
    process: Process,
    home: Scratch,
}

impl WaypostServer {
    /// Starts `binary serve` with `settings` on a free port and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If it does not start: no test can go on without it.
    pub fn start(binary: &Path, settings: &Settings) -> Self {
        let home = Scratch::new("server");
        let mut effective = Settings::new()
            .with("listenPort", 0)
            .with("bindAddress", "127.0.0.1")
            .with("adminListen", "127.0.0.1:0")
            .with("kvConfigPath", home.path().join("namesrv/kvConfig.json").display());
        effective.extend(settings);
        let process = launch(binary, &effective, home.path());
        let mut server = Self { binary: binary.to_owned(), settings: effective, port: 0, process, home };
        server.wait_until_ready(0);
        server
    }

    fn wait_until_ready(&mut self, log_from: usize) {
        self.port = self.process.wait_for_log("banner", log_from, START_DEADLINE, |log| {
            let address = log.split(BANNER).nth(1)?.lines().next().filter(|_| log.ends_with('\n'))?;
            address.trim().rsplit(':').next()?.parse().ok()
        });
    }

    /// Starts it again, after [`WaypostServer::kill`] or [`WaypostServer::terminate`], with the same home and port.
    pub fn start_again(&mut self) {
        let log_from = self.process.log().len();
        self.settings.set("listenPort", self.port);
        self.process = launch(&self.binary, &self.settings, self.home.path());
        self.wait_until_ready(log_from);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Its home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written to standard output and standard error so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Sends it a signal.
    pub fn send(&mut self, signal: Signal) {
        self.process.send(signal);
    }

    /// SIGSTOP, and waits until every thread stands still.
    pub fn stand_still(&mut self) {
        self.process.stand_still();
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, then waits for the end.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.terminate(STOP_DEADLINE)
    }
}

fn launch(binary: &Path, settings: &Settings, home: &Path) -> Process {
    let file = home.join("namesrv.properties");
    let written = std::fs::write(&file, settings.to_string());
    assert!(written.is_ok(), "cannot write {}: {written:?}", file.display());
    let mut command = Command::new(binary);
    command
        .args(["serve", "-c"])
        .arg(&file)
        .env("HOME", home)
        .env("ROCKETMQ_HOME", home)
        .env_remove("NAMESRV_ADDR")
        .current_dir(home);
    Process::start("waypost", &mut command, &home.join("server.log"))
}
