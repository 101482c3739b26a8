//! A server and commands of the binary under test, each with an environment of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use waypost_rocketmq_wire::body::{RegisterBrokerBody, TopicConfig};
use waypost_rocketmq_wire::checksum::body_crc32;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;
use waypost_rocketmq_wire::message::Request;
use waypost_testkit::peers::{Scratch, poll_until};

/// Far more than anything here needs, on a machine that is busy with other tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

const BANNER: &str = "The Name Server boot success. serializeType=JSON, address ";

pub(crate) fn waypost() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command
        .env_remove("NAMESRV_ADDR")
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null());
    command
}

/// `waypost serve` on free ports; killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) home: Scratch,
    pub(crate) address: SocketAddr,
    /// `http://…`, empty if it has no admin side.
    pub(crate) admin: String,
}

impl Server {
    /// Starts it with free ports and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut all = vec!["--set", "adminListen=127.0.0.1:0"];
        all.extend(arguments);
        Self::start_with(&all, &[])
    }

    /// Starts it with a free port, and whatever else is given.
    pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let home = Scratch::new("program");
        let log = File::create(home.path().join("stderr")).expect("a file");
        Self::launch(home, arguments, environment, log.into())
    }

    /// Starts it with its standard error going to `log`.
    pub(crate) fn start_with_log(log: Stdio) -> Self {
        Self::launch(Scratch::new("program"), &["--set", "adminListen=off"], &[], log)
    }

    fn launch(home: Scratch, arguments: &[&str], environment: &[(&str, &str)], log: Stdio) -> Self {
        let out = File::create(home.path().join("stdout")).expect("a file");
        let mut command = waypost();
        command
            .args(["serve", "--listen-port", "0"])
            .args(arguments)
            .env("HOME", home.path())
            .envs(environment.iter().copied())
            .stdout(out)
            .stderr(log);
        let child = command.spawn().expect("the binary starts");
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, home, address, admin: String::new() };
        server.wait_until("it is ready", |server| server.out().contains("\nadmin: "));
        let out = server.out();
        let port =
            out.lines().next().and_then(|line| line.strip_prefix(BANNER)?.rsplit(':').next()?.parse().ok());
        server.address.set_port(port.unwrap_or_else(|| panic!("no port in {out}")));
        let admin = out.lines().find_map(|line| line.strip_prefix("admin:  http://")?.split('/').next());
        server.admin = admin.map_or_else(String::new, |address| format!("http://{address}"));
        server
    }

    /// Its standard error, if that is a pipe.
    pub(crate) fn log(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    pub(crate) fn out(&self) -> String {
        read(&self.home.path().join("stdout"))
    }

    pub(crate) fn err(&self) -> String {
        read(&self.home.path().join("stderr"))
    }

    pub(crate) fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let met = poll_until(DEADLINE, || {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                return Some(Err(status));
            }
            condition(self).then_some(Ok(()))
        });
        assert!(matches!(met, Some(Ok(()))), "not seen: {what} ({met:?})\n{}\n{}", self.out(), self.err());
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child lives");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let ended = poll_until(DEADLINE, || self.child.try_wait().expect("the child is ours"));
        ended.unwrap_or_else(|| panic!("it does not end\n{}", self.err()))
    }

    /// Runs a command against it.
    pub(crate) fn ask(&self, command: &str) -> Told {
        ask(&format!("{command} -n {}", self.address))
    }

    /// Runs a command against it that knows of its admin side.
    pub(crate) fn ask_both(&self, command: &str) -> Told {
        self.ask(&format!("{command} --admin {}", self.admin))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.admin, path)
    }

    /// Registers a broker that advertises `address`; it stays as long as the connection.
    pub(crate) fn register(&self, broker: &str, address: &str, topics: &[&str]) -> TcpStream {
        register(self.address, broker, address, topics)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- server\n{}\n{}", self.out(), self.err());
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that goes on; killed on drop.
pub(crate) struct Ongoing {
    child: Child,
    home: Scratch,
}

impl Ongoing {
    /// Starts a command, words separated by blanks.
    pub(crate) fn start(command: &str) -> Self {
        let home = Scratch::new("ongoing");
        let out = File::create(home.path().join("stdout")).expect("a file");
        Self::launch(home, command, out)
    }

    /// Starts a command whose standard output goes elsewhere.
    pub(crate) fn start_with_out(command: &str, out: File) -> Self {
        Self::launch(Scratch::new("ongoing"), command, out)
    }

    fn launch(home: Scratch, command: &str, out: File) -> Self {
        let log = File::create(home.path().join("stderr")).expect("a file");
        let child = waypost()
            .args(command.split(' ').filter(|word| !word.is_empty()))
            .env("HOME", home.path())
            .stdout(out)
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        Self { child, home }
    }

    pub(crate) fn out(&self) -> String {
        read(&self.home.path().join("stdout"))
    }

    pub(crate) fn err(&self) -> String {
        read(&self.home.path().join("stderr"))
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its log has `part`: a thread of its own writes it, perhaps after what the program prints.
    pub(crate) fn wait_for_log(&self, part: &str) {
        let seen = poll_until(DEADLINE, || self.err().contains(part).then_some(()));
        assert!(seen.is_some(), "not logged: {part}\n{}", self.err());
    }

    /// Waits until it has printed `part`.
    pub(crate) fn wait_for(&self, part: &str) {
        let seen = poll_until(DEADLINE, || self.out().contains(part).then_some(()));
        assert!(seen.is_some(), "not printed: {part}\n{}\n{}", self.out(), self.err());
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child lives");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, limit: Duration) -> ExitStatus {
        let ended = poll_until(limit, || self.child.try_wait().expect("the child is ours"));
        ended.unwrap_or_else(|| panic!("it does not end\n{}\n{}", self.out(), self.err()))
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command printed and how it ended.
pub(crate) struct Told {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// The lines of standard error, but for the one about the admin side at the default port: any other program of this
    /// machine may have that.
    pub(crate) fn remarks(&self) -> Vec<&str> {
        self.err.lines().filter(|line| !line.starts_with("note: no details: ")).collect()
    }

    /// The one line of standard error, which must be a sentence without a trace of the program.
    pub(crate) fn sentence(&self) -> &str {
        let line = self.err.trim_end();
        assert!(!line.contains('\n') && line.starts_with("error: "), "{}", self.err);
        line
    }
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

/// Runs a command, words separated by blanks.
pub(crate) fn ask(command: &str) -> Told {
    let words = command.split(' ').filter(|word| !word.is_empty());
    waypost().args(words).output().expect("the binary runs").into()
}

/// Sends a request and returns code, remark and body of the answer.
pub(crate) fn exchange(stream: &mut TcpStream, request: Request<'_>) -> (i32, String, Vec<u8>) {
    stream.set_read_timeout(Some(DEADLINE)).expect("a live socket");
    let mut bytes = Vec::new();
    request.write(HeaderEncoding::Json, &mut bytes);
    stream.write_all(&bytes).expect("written");
    let limits = FrameLimits::default();
    let (mut received, mut chunk) = (Vec::new(), [0; 65_536]);
    loop {
        if let Some((frame, _)) = decode_frame(&received, &limits).expect("a frame") {
            let header = Header::decode(&frame, &limits).expect("a header");
            return (header.code, header.remark.unwrap_or_default().into_owned(), frame.body.to_vec());
        }
        let count = stream.read(&mut chunk).expect("an answer");
        assert!(count > 0, "closed without an answer");
        received.extend_from_slice(&chunk[..count]);
    }
}

/// Asks a program's admin side, `http://...`.
pub(crate) fn get(admin: &str, path: &str) -> (u16, String) {
    let address = admin.strip_prefix("http://").expect("an admin side");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a live socket");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

/// Registers a broker that advertises `address` at a server or an agent; it stays as long as the connection.
pub(crate) fn register(at: SocketAddr, broker: &str, address: &str, topics: &[&str]) -> TcpStream {
    let topic = |name: &&str| TopicConfig {
        topic_name: Some((*name).to_owned().into()),
        ..TopicConfig::empty((*name).to_owned().into())
    };
    let topics = topics.iter().map(topic).collect();
    let body =
        RegisterBrokerBody { topics, filter_servers: Some(Vec::new()), ..RegisterBrokerBody::default() };
    let mut bytes = Vec::new();
    body.encode_json(&mut bytes);
    let crc = body_crc32(&bytes).to_string();
    let ext = [
        ("brokerName", broker),
        ("brokerAddr", address),
        ("clusterName", "TestCluster"),
        ("haServerAddr", address),
        ("brokerId", "0"),
        ("bodyCrc32", crc.as_str()),
    ];
    let mut stream = TcpStream::connect(at).expect("a connection");
    let question = Request { ext: &ext, body: &bytes, ..Request::new(request::REGISTER_BROKER) };
    assert_eq!(exchange(&mut stream, question).0, 0);
    stream
}

/// A port that nobody listens on: it was free a moment ago and stays reserved for this process.
pub(crate) struct DeadPort(socket2::Socket);

impl DeadPort {
    pub(crate) fn new() -> Self {
        // Bound but not listening: connections are refused, and nobody else gets the port.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().ok().and_then(|address| address.as_socket()).expect("an address")
    }
}

/// A server that accepts and never answers.
pub(crate) fn silent_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// A server that answers one question with `bytes`, whatever it is, and closes the connection.
pub(crate) fn one_answer(bytes: &'static [u8]) -> (JoinHandle<()>, SocketAddr) {
    let (listener, address) = silent_server();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut question = [0; 4_096];
        assert!(stream.read(&mut question).expect("a question") > 0);
        stream.write_all(bytes).expect("written");
    });
    (server, address)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
