//! The servers that scenarios are played to.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ScenarioError;
use super::step::Scenario;

/// A running NameServer with a folder of its own.
pub trait Server {
    /// Where it listens.
    fn address(&self) -> SocketAddr;
    /// Its folder: `rocketmqHome`, the configuration and the KV file.
    fn home(&self) -> &Path;
    /// The line that it printed when it was ready.
    fn banner(&self) -> &str;
    /// Stops it and starts it again in the same folder; the address changes.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Server`] if it does not come up.
    fn restart(&mut self) -> Result<(), ScenarioError>;
}

/// How long a server may take to start: a JVM on a busy machine.
const START: Duration = Duration::from_secs(60);
/// What the Java NameServer ends with when it cannot start (-1).
const JAVA_REFUSED: i32 = 255;
/// The program that runs Java NameServers inside one JVM.
const HOST: &str = include_str!("NamesrvHost.java");
const LOGBACK: &str = include_str!("logback.xml");

/// A folder that goes away with its owner.
struct Home(PathBuf);

impl Home {
    fn new(what: &str) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("waypost-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// Lays out what a scenario starts from; the path of the configuration file.
    fn furnish(&self, scenario: &Scenario, more: &[(String, String)]) -> io::Result<PathBuf> {
        let home = self.0.display().to_string();
        let own = [
            ("listenPort", "0".to_owned()),
            ("rocketmqHome", home.clone()),
            ("kvConfigPath", format!("{home}/kvConfig.json")),
        ];
        let mut text = String::new();
        let given = more.iter().chain(&scenario.config).map(|(key, value)| (key.as_str(), value.clone()));
        for (key, value) in own.into_iter().chain(given) {
            text.push_str(&format!("{key}={}\n", value.replace("{home}", &home)));
        }
        for (name, content) in &scenario.files {
            fs::write(self.0.join(name), content)?;
        }
        let file = self.0.join("namesrv.properties");
        fs::write(&file, text)?;
        Ok(file)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fault(server: &str, reason: impl std::fmt::Display) -> ScenarioError {
    ScenarioError::Server { server: server.to_owned(), reason: reason.to_string() }
}

/// A JVM in which Java NameServers run, each started by its own main class.
#[derive(Clone)]
pub struct JavaHost {
    process: Arc<Mutex<HostProcess>>,
}

struct HostProcess {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
    home: Home,
}

impl HostProcess {
    /// Why there was no answer: whether it refused to start a server, and the last lines of its log.
    fn explain(&mut self, line: &str) -> ScenarioError {
        let log = fs::read_to_string(self.home.0.join("stderr.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().filter(|line| !line.starts_with("\tat ")).rev().take(3).collect();
        let ended = ending(&mut self.child);
        let reason = match ended {
            Some(status) if status.code() == Some(JAVA_REFUSED) => {
                return ScenarioError::Refused { server: "java".to_owned(), reason: last.join(" / ") };
            }
            Some(status) => format!("the JVM ended at `{line}` with {status}: {}", last.join(" / ")),
            None => format!("no answer to `{line}`: {}", last.join(" / ")),
        };
        fault("java", reason)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl JavaHost {
    /// Starts the JVM with the jars of RocketMQ 5.5.0 in `jars`. Its servers know no TLS: as shipped,
    /// each start makes a certificate, which takes a second.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Server`] if there is no `java` or the folder cannot be written.
    pub fn start(jars: &Path) -> Result<Self, ScenarioError> {
        Self::start_with(jars, &["-Dtls.server.mode=disabled"])
    }

    /// The same with the TLS mode as shipped: for scenarios that have a JVM of their own.
    ///
    /// # Errors
    ///
    /// As [`JavaHost::start`].
    pub fn start_as_shipped(jars: &Path) -> Result<Self, ScenarioError> {
        Self::start_with(jars, &[])
    }

    fn start_with(jars: &Path, flags: &[&str]) -> Result<Self, ScenarioError> {
        let broken = |error: io::Error| fault("java", error);
        let home = Home::new("java-host").map_err(broken)?;
        let (source, logback) = (home.0.join("NamesrvHost.java"), home.0.join("logback.xml"));
        fs::write(&source, HOST).and_then(|()| fs::write(&logback, LOGBACK)).map_err(broken)?;
        let log = File::create(home.0.join("stderr.log")).map_err(broken)?;
        let mut child = Command::new("java")
            .args(flags)
            .args(["-Xmx384m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg(format!("-Duser.home={}", home.0.display()))
            .arg(format!("-Drmq.logback.configurationFile={}", logback.display()))
            .args([
                "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
            ])
            .args(["--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp"])
            .arg(format!("{}/*", jars.display()))
            .arg(&source)
            .env("ROCKETMQ_HOME", &home.0)
            .env_remove("ROCKETMQ_SERIALIZE_TYPE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(broken)?;
        let commands = child.stdin.take().ok_or_else(|| fault("java", "no standard input"))?;
        let answers = child.stdout.take().map(lines_of).ok_or_else(|| fault("java", "no standard output"))?;
        Ok(Self { process: Arc::new(Mutex::new(HostProcess { child, commands, answers, home })) })
    }

    /// Starts a NameServer for a scenario.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Server`] if it does not come up; the whole JVM is gone then.
    pub fn serve(&self, scenario: &Scenario) -> Result<JavaServer, ScenarioError> {
        let home = Home::new("java").map_err(|error| fault("java", error))?;
        let config = home.furnish(scenario, &[]).map_err(|error| fault("java", error))?;
        let (id, address, banner) = self.launch(&config)?;
        Ok(JavaServer { host: self.clone(), id, address, banner, config, home })
    }

    fn launch(&self, config: &Path) -> Result<(u32, SocketAddr, String), ScenarioError> {
        let answer = self.command(&format!("start {}", config.display()))?;
        let mut words = answer.splitn(4, ' ');
        let started = (|| {
            let (word, id, port) =
                (words.next()?, words.next()?.parse().ok()?, words.next()?.parse::<u16>().ok()?);
            (word == "started").then_some((
                id,
                SocketAddr::from(([127, 0, 0, 1], port)),
                words.next()?.to_owned(),
            ))
        })();
        started.ok_or_else(|| fault("java", answer))
    }

    fn command(&self, line: &str) -> Result<String, ScenarioError> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let answer =
            writeln!(process.commands, "{line}").ok().and_then(|()| process.answers.recv_timeout(START).ok());
        answer.ok_or_else(|| process.explain(line))
    }
}

/// A Java NameServer.
pub struct JavaServer {
    host: JavaHost,
    id: u32,
    address: SocketAddr,
    banner: String,
    config: PathBuf,
    home: Home,
}

impl Server for JavaServer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn home(&self) -> &Path {
        &self.home.0
    }

    fn banner(&self) -> &str {
        &self.banner
    }

    fn restart(&mut self) -> Result<(), ScenarioError> {
        self.host.command(&format!("stop {}", self.id))?;
        // It may have to listen on the same port again (a 318 writes the real one into the file).
        for _ in 0..200 {
            if TcpStream::connect(self.address).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        (self.id, self.address, self.banner) = self.host.launch(&self.config)?;
        Ok(())
    }
}

impl Drop for JavaServer {
    fn drop(&mut self) {
        let _ = self.host.command(&format!("stop {}", self.id));
    }
}

/// The `waypost` binary, serving.
pub struct WaypostServer {
    binary: PathBuf,
    child: Child,
    address: SocketAddr,
    banner: String,
    config: PathBuf,
    home: Home,
}

impl WaypostServer {
    /// Starts `waypost serve` for a scenario; `more` are configuration lines of the test's own.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Server`] with the last line of its log if it does not come up.
    pub fn serve(
        binary: &Path,
        scenario: &Scenario,
        more: &[(String, String)],
    ) -> Result<Self, ScenarioError> {
        let home = Home::new("waypost").map_err(|error| fault("waypost", error))?;
        let config = home.furnish(scenario, more).map_err(|error| fault("waypost", error))?;
        let (child, address, banner) = launch(binary, &config, &home.0)?;
        Ok(Self { binary: binary.to_owned(), child, address, banner, config, home })
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(binary: &Path, config: &Path, home: &Path) -> Result<(Child, SocketAddr, String), ScenarioError> {
    let broken = |error: io::Error| fault("waypost", error);
    let log_file = home.join("stderr.log");
    let mut child = Command::new(binary)
        .args(["serve", "-c"])
        .arg(config)
        .env("HOME", home)
        .env("ROCKETMQ_HOME", home)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log_file).map_err(broken)?)
        .spawn()
        .map_err(broken)?;
    let lines = child.stdout.take().map(lines_of).ok_or_else(|| fault("waypost", "no standard output"))?;
    loop {
        let Ok(line) = lines.recv_timeout(START) else {
            let ended = ending(&mut child).is_some();
            let _ = child.kill();
            let _ = child.wait();
            let log = fs::read_to_string(&log_file).unwrap_or_default();
            let reason = log.lines().last().unwrap_or("no log").to_owned();
            let server = "waypost".to_owned();
            return Err(if ended {
                ScenarioError::Refused { server, reason }
            } else {
                ScenarioError::Server { server, reason }
            });
        };
        if line.starts_with("The Name Server boot success.") {
            let port = line.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            let port = port.ok_or_else(|| fault("waypost", format!("no port in `{line}`")))?;
            // Whatever it prints later must not fill the pipe.
            std::thread::spawn(move || lines.into_iter().for_each(drop));
            return Ok((child, SocketAddr::from(([127, 0, 0, 1], port)), line));
        }
    }
}

impl Server for WaypostServer {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn home(&self) -> &Path {
        &self.home.0
    }

    fn banner(&self) -> &str {
        &self.banner
    }

    fn restart(&mut self) -> Result<(), ScenarioError> {
        self.stop();
        (self.child, self.address, self.banner) = launch(&self.binary, &self.config, &self.home.0)?;
        Ok(())
    }
}

impl Drop for WaypostServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a process ended that has just closed its output; `None`: it still runs after a second.
fn ending(child: &mut Child) -> Option<ExitStatus> {
    (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        child.try_wait().ok().flatten()
    })
}

fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
