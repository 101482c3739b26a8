//! The real `waypost agent`, as a process that a supervisor keeps running.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes in real time")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::faults::Supervised;
use crate::peers::{Probe, Scratch, Signal, free_port, mortal, poll_until};

/// Far more than it needs, on a machine that is busy with other tests.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// An agent with its own state folder. Killed, it is started again 100 ms later, with the same port and state.
#[derive(Debug)]
pub struct Agent {
    address: SocketAddr,
    process: Supervised,
    _home: Scratch,
}

impl Agent {
    /// Starts `binary agent` on a free loopback port for `name_servers`, separated by semicolons, and waits until it
    /// accepts connections.
    ///
    /// # Panics
    ///
    /// If it does not start: no test can go on without it.
    pub fn start(binary: &Path, name_servers: &str) -> Self {
        Self::listening_on(binary, name_servers, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// As [`Agent::start`], on another address of this machine.
    ///
    /// # Panics
    ///
    /// As [`Agent::start`].
    pub fn listening_on(binary: &Path, name_servers: &str, host: IpAddr) -> Self {
        let home = Scratch::new("agent");
        let address = SocketAddr::new(host, free_port());
        let (program, list) = (PathBuf::from(binary), name_servers.to_owned());
        let (state, folder) = (home.path().join("state"), home.path().to_owned());
        let process = Supervised::start("waypost agent", &home.path().join("agent.log"), move || {
            let mut command = mortal(&program);
            command
                .args(["agent", "-n", &list, "--listen", &address.to_string(), "--state"])
                .arg(&state)
                .env("HOME", &folder)
                .env_remove("NAMESRV_ADDR")
                .current_dir(&folder);
            command
        });
        let agent = Self { address, process, _home: home };
        let ready = poll_until(START_DEADLINE, || {
            assert!(agent.process.restarts() == 0, "the agent ends at once:\n{}", agent.log());
            TcpStream::connect(address).ok()
        });
        assert!(ready.is_some(), "the agent does not listen on {address}:\n{}", agent.log());
        agent
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks it questions.
    pub fn probe(&self) -> Probe {
        Probe::new(self.address)
    }

    /// Kill -9; when it was dead. It is started again by itself.
    pub fn kill(&self) -> Instant {
        self.process.kill()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// If it does not run at this moment.
    pub fn send(&self, signal: Signal) {
        self.process.send(signal);
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u32 {
        self.process.restarts()
    }

    /// Its process id now.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
