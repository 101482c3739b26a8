//! Java name servers and brokers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::process::{Process, Scratch, Signal};
use super::{PeerError, Settings, Version, Workshop, free_broker_port, free_port};

/// A JVM on a busy machine with two cores.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// A broker flushes and unregisters when it stops.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// A `java` command with the class path and the flags that every peer of `version` needs, in `home`.
pub(super) fn java(workshop: &Workshop, version: Version, home: &Path) -> Result<Command, PeerError> {
    let (jars, drivers) = (workshop.jars(version)?, workshop.drivers(version)?);
    let logback = workshop.logback(version);
    let conf = home.join("conf");
    std::fs::create_dir_all(&conf).map_err(|source| PeerError::File { path: conf.clone(), source })?;
    if version == Version::V4 {
        // 4.x reads its logging configuration from its home and insists on finding it.
        for program in ["namesrv", "broker", "tools"] {
            let copy = conf.join(format!("logback_{program}.xml"));
            std::fs::copy(&logback, &copy).map_err(|source| PeerError::File { path: copy, source })?;
        }
    }
    let mut command = mortal("java");
    command
        .env("ROCKETMQ_HOME", home)
        .env_remove("NAMESRV_ADDR")
        .current_dir(home)
        // Starts sooner and takes less of the two cores than the server compiler does.
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"])
        .arg(format!("-Duser.home={}", home.display()))
        .arg(format!("-Drmq.logback.configurationFile={}", logback.display()))
        .args([
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
        ])
        .arg("--add-opens=java.base/java.lang=ALL-UNNAMED")
        .arg("-cp")
        .arg(format!("{}:{}/*", drivers.display(), jars.display()));
    Ok(command)
}

/// `program`, to be killed by the kernel when the thread that starts it ends, where the machine has `setpriv`: a test
/// that is itself killed leaves no JVM behind.
pub(crate) fn mortal(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.is_file() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A Java server. It keeps its home folder and its ports when it is started again.
#[derive(Debug)]
pub struct JavaPeer {
    process: Process,
    home: Scratch,
    recipe: Recipe,
}

#[derive(Debug)]
struct Recipe {
    workshop: Workshop,
    version: Version,
    name: String,
    class: &'static str,
    heap: &'static str,
    settings: Settings,
    /// Name of the file with its settings.
    file: &'static str,
    /// What it prints when it is ready.
    banner: &'static str,
}

impl JavaPeer {
    /// Starts a name server and waits until it is ready. It listens on a free port unless `settings` names one.
    ///
    /// # Errors
    ///
    /// If the jars cannot be had. A server that does not start fails the test at once.
    pub fn namesrv(workshop: &Workshop, version: Version, settings: &Settings) -> Result<Self, PeerError> {
        let mut settings = settings.clone();
        if settings.value("listenPort").is_none() {
            settings.set("listenPort", free_port());
        }
        Self::start(Recipe {
            workshop: workshop.clone(),
            version,
            name: format!("namesrv-{version}"),
            class: "org.apache.rocketmq.namesrv.NamesrvStartup",
            heap: "-Xmx512m",
            settings,
            file: "namesrv.properties",
            banner: "The Name Server boot success",
        })
    }

    /// Starts a broker and waits until it is ready, which it is after its first registration.
    ///
    /// # Errors
    ///
    /// If the jars cannot be had. A broker that does not start fails the test at once.
    pub fn broker(workshop: &Workshop, version: Version, settings: &Settings) -> Result<Self, PeerError> {
        let part = |key| settings.value(key).unwrap_or("broker");
        let name = format!("{}-{}-{version}", part("brokerName"), part("brokerId"));
        Self::start(Recipe {
            workshop: workshop.clone(),
            version,
            name,
            class: "org.apache.rocketmq.broker.BrokerStartup",
            heap: "-Xmx768m",
            settings: settings.clone(),
            file: "broker.properties",
            banner: "boot success",
        })
    }

    fn start(recipe: Recipe) -> Result<Self, PeerError> {
        let home = Scratch::new(&recipe.name);
        let process = recipe.launch(home.path())?;
        let mut peer = Self { process, home, recipe };
        peer.wait_until_ready(0);
        Ok(peer)
    }

    fn wait_until_ready(&mut self, log_from: usize) {
        let banner = self.recipe.banner;
        self.process.wait_for_log(banner, log_from, START_DEADLINE, |log| log.contains(banner).then_some(()));
    }

    /// Starts it again, after [`JavaPeer::kill`] or [`JavaPeer::stop`], with the same home and port.
    ///
    /// # Errors
    ///
    /// As when it was first started.
    pub fn start_again(&mut self) -> Result<(), PeerError> {
        let log_from = self.process.log().len();
        self.process = self.recipe.launch(self.home.path())?;
        self.wait_until_ready(log_from);
        Ok(())
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.recipe.version
    }

    /// What it listens on, as seen on its own machine.
    pub fn address(&self) -> SocketAddr {
        let port = self.recipe.settings.value("listenPort").and_then(|port| port.parse().ok());
        SocketAddr::from(([127, 0, 0, 1], port.expect("invariant: every Java peer has a listenPort")))
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until it has logged a line that satisfies `condition`, at any time since it was first started.
    ///
    /// # Panics
    ///
    /// After `deadline`, or if it ends.
    pub fn wait_for_line(&mut self, what: &str, deadline: Duration, condition: impl Fn(&str) -> bool) {
        self.process.wait_for_log(what, 0, deadline, |log| log.lines().any(&condition).then_some(()));
    }

    /// SIGSTOP, and waits until every thread stands still.
    pub fn stand_still(&mut self) {
        self.process.stand_still();
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sends it a signal.
    pub fn send(&mut self, signal: Signal) {
        self.process.send(signal);
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits until it has stopped cleanly.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.send(Signal::Terminate);
        self.wait_until_ended()
    }

    /// Waits until it has ended, after a signal that makes it.
    pub fn wait_until_ended(&mut self) -> ExitStatus {
        self.process.wait_until_ended(STOP_DEADLINE)
    }
}

impl Recipe {
    fn launch(&self, home: &Path) -> Result<Process, PeerError> {
        let file: PathBuf = home.join(self.file);
        std::fs::write(&file, self.settings.to_string())
            .map_err(|source| PeerError::File { path: file.clone(), source })?;
        let mut command = java(&self.workshop, self.version, home)?;
        command.arg(self.heap).arg(self.class).arg("-c").arg(&file);
        Ok(Process::start(&self.name, &mut command, &home.join("peer.log")))
    }
}

/// What identifies a broker.
#[derive(Debug, Clone)]
pub struct Broker<'a> {
    /// Cluster.
    pub cluster: &'a str,
    /// Name of its group.
    pub name: &'a str,
    /// Id in its group; 0 is the master.
    pub id: u32,
    /// Name servers, separated by semicolons.
    pub name_servers: &'a str,
}

/// Settings of a small broker on free ports of the loopback interface.
pub fn broker_settings(version: Version, broker: &Broker<'_>) -> Settings {
    let port = free_broker_port();
    let small_files = match version {
        Version::V5 => "mappedFileSizeCommitLog",
        Version::V4 => "mapedFileSizeCommitLog",
    };
    Settings::new()
        .with("brokerClusterName", broker.cluster)
        .with("brokerName", broker.name)
        .with("brokerId", broker.id)
        .with("namesrvAddr", broker.name_servers)
        .with("brokerIP1", "127.0.0.1")
        .with("brokerIP2", "127.0.0.1")
        .with("listenPort", port)
        .with("haListenPort", port + 1)
        .with(small_files, 64 << 20)
        .with("autoCreateTopicEnable", "true")
        // A broker refuses messages that waited longer than this; on two busy cores the default of 200 ms is short.
        .with("waitTimeMillsInSendQueue", 10_000)
        .with("osPageCacheBusyTimeOutMills", 10_000)
        .with("diskMaxUsedSpaceRatio", 95)
}
