//! The servers that are measured: started, awaited, watched, ended.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::frame::{FIRST_OPAQUE, code, request};
use crate::link::Link;

/// A JVM on a busy machine needs some seconds; what takes longer than this is broken.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries to connect: short beside the 50 ms that a start may take.
const START_POLL: Duration = Duration::from_micros(500);
/// The heap and collector flags of the original's `runserver.sh`.
const JAVA_OPTIONS: &str = "-server -Xms4g -Xmx4g -XX:MetaspaceSize=128m -XX:MaxMetaspaceSize=320m -XX:+UseG1GC \
     -XX:G1HeapRegionSize=16m -XX:G1ReservePercent=25 -XX:InitiatingHeapOccupancyPercent=30 \
     -XX:SoftRefLRUPolicyMSPerMB=0";
/// Warnings only, to standard error: the shipped configuration writes a dozen files.
const JAVA_LOGGING: &str = r#"<configuration>
  <statusListener class="org.apache.rocketmq.logging.ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="stderr" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="stderr"/></root>
</configuration>
"#;

/// Which servers take part.
#[derive(Args, Clone, Debug)]
pub(crate) struct Servers {
    /// The Waypost binary, run as `PATH serve -c FILE`
    #[arg(long, value_name = "PATH")]
    pub(crate) waypost: Option<PathBuf>,
    /// The folder with the jars of org.apache.rocketmq:rocketmq-namesrv and all it needs
    #[arg(long, value_name = "DIR")]
    pub(crate) java_lib: Option<PathBuf>,
    /// Flags of the JVM [default: those of the original's runserver.sh, a heap of 4 GB]
    #[arg(long, value_name = "FLAGS", default_value = JAVA_OPTIONS, hide_default_value = true, allow_hyphen_values = true)]
    java_options: String,
    /// A line for Waypost's configuration file, besides listenPort and kvConfigPath
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Servers {
    /// Those that were named, Waypost first.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let waypost = self.waypost.clone().map(Kind::Waypost);
        let java = self.java_lib.clone().map(Kind::Java);
        waypost.into_iter().chain(java).collect()
    }

    /// As `kinds`, and an error that says what to do if there is none.
    pub(crate) fn some_kinds(&self) -> Result<Vec<Kind>> {
        let kinds = self.kinds();
        if kinds.is_empty() {
            bail!("no server to measure: give --waypost PATH, --java-lib DIR, or both");
        }
        Ok(kinds)
    }
}

/// What can be started.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The floor, with answers of so many bytes.
    Floor(usize),
    /// A Waypost binary.
    Waypost(PathBuf),
    /// The Java NameServer of these jars.
    Java(PathBuf),
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Floor(_) => "floor",
            Self::Waypost(_) => "waypost",
            Self::Java(_) => "java",
        }
    }
}

/// A server that runs until this value is dropped.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// From the start of the process to its first answer.
    pub(crate) first_answer: Duration,
    child: Child,
    home: PathBuf,
}

impl Server {
    /// Starts a server on a free port and waits for its first answer.
    pub(crate) fn start(kind: &Kind, servers: &Servers) -> Result<Self> {
        let home = new_home()?;
        let port = free_port()?;
        let mut command = kind.command(&home, port, servers)?;
        let log = File::create(home.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("{} does not start", kind.name()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { name: kind.name(), address, first_answer: Duration::ZERO, child, home };
        server.await_answer(started)?;
        Ok(server)
    }

    /// The process to watch.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn await_answer(&mut self, started: Instant) -> Result<()> {
        let query = request(code::CLUSTER_INFO, &[], FIRST_OPAQUE);
        loop {
            // A refused connection means "not yet"; so does one that is closed before the answer.
            let answered =
                Link::try_connect(self.address).and_then(|mut link| link.call(&[&query]).map(|_| ()));
            if answered.is_ok() {
                self.first_answer = started.elapsed();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} before its first answer:\n{}", self.name, self.last_words());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("{} gave no answer within {START_TIMEOUT:?}:\n{}", self.name, self.last_words());
            }
            std::thread::sleep(START_POLL);
        }
    }

    /// The end of what the server wrote.
    fn last_words(&self) -> String {
        let text = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself, and a folder in the way harms nobody: nothing to report.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}

impl Kind {
    fn command(&self, home: &Path, port: u16, servers: &Servers) -> Result<Command> {
        let kv = home.join("kvConfig.json");
        let properties = format!("listenPort={port}\nkvConfigPath={}\n", kv.display());
        let file = home.join("namesrv.properties");
        match self {
            Self::Floor(answer_length) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["floor", "--port", &port.to_string()]);
                command.args(["--answer-bytes", &answer_length.to_string()]);
                Ok(command)
            }
            Self::Waypost(path) => {
                fs::write(&file, properties + &servers.settings.join("\n") + "\n")?;
                let mut command = Command::new(path);
                command.args(["serve", "-c"]).arg(&file).env("ROCKETMQ_HOME", home).env("HOME", home);
                Ok(command)
            }
            Self::Java(lib) => {
                fs::write(&file, properties)?;
                let logging = home.join("logback.xml");
                fs::write(&logging, JAVA_LOGGING)?;
                let mut command = Command::new("java");
                command
                    .args(servers.java_options.split_whitespace())
                    .arg(format!("-Duser.home={}", home.display()))
                    .arg(format!("-Drmq.logback.configurationFile={}", logging.display()))
                    .args(["--add-exports=java.base/sun.nio.ch=ALL-UNNAMED"])
                    .args(["--add-opens=java.base/java.nio=ALL-UNNAMED"])
                    .args(["--add-opens=java.base/java.lang=ALL-UNNAMED"])
                    .arg("-cp")
                    .arg(lib.join("*"))
                    .args(["org.apache.rocketmq.namesrv.NamesrvStartup", "-c"])
                    .arg(&file)
                    .env("ROCKETMQ_HOME", home);
                Ok(command)
            }
        }
    }
}

/// A new folder for one server's files.
fn new_home() -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let home = std::env::temp_dir().join(format!("waypost-bench-{}-{number}", std::process::id()));
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    Ok(home)
}

/// A port that nobody listened on a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
