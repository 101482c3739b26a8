//! Peers that ask and do not read: what waits for them is bounded, others are served, and they are closed in
//! time unless they go on reading.

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Beside, Broker, Client, SOON, Server, Settings, json, poll_until, route_query};

/// The idle time of these tests, in seconds.
const IDLE: u64 = 5;

/// Readers that do not read, of each kind.
const EACH: usize = 6;

/// Topics, so that a list of them (206) has about 400 KB.
const TOPICS: usize = 20_000;

/// Bytes of requests that no kernel holds for a reader: what is not taken of them is held back.
const FLOOD: usize = 192 << 20;

/// Repeats `request` until the server has taken nothing for a second; gives how many bytes it took.
fn flood(client: &Client, request: &[u8]) -> usize {
    let mut stream = client.stream();
    let block = request.repeat(65_536 / request.len());
    stream.set_nonblocking(true).expect("a socket can be made so");
    let (mut sent, mut last) = (0, Instant::now());
    while sent < FLOOD && last.elapsed() < Duration::from_secs(1) {
        match stream.write(&block[sent % block.len()..]) {
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("the connection broke: {error}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket can be made so");
    sent
}

#[test]
fn readers_that_do_not_read_are_stalled_bounded_and_closed() {
    let mut server = Server::start(&Settings::new().with("serverChannelMaxIdleTimeSeconds", IDLE));
    let broker = Broker::with_topics("broker-a", "10.9.0.1:10911", "Topic", TOPICS);
    let _broker = Keeper::start(&server, &broker);
    let questions = [
        ("105", route_query("Topic-1", 1)),
        ("206", json(&Request::new(206))),
        ("106", json(&Request::new(106))),
    ];
    assert_eq!(server.client().call(&Request::new(206)).code, 0);
    let resident = server.memory().now;
    server.forget_peak();

    let beside = Beside::start(&server, "Topic-2");
    let stalled = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (name, request) in questions.iter().flat_map(|question| std::iter::repeat_n(question, EACH)) {
            let (client, stalled) = (Client::with_small_window(server.address()), &stalled);
            scope.spawn(move || {
                let sent = flood(&client, request);
                stalled.lock().expect("no thread panics with it").push((*name, client, sent));
            });
        }
    });
    let mut slow = stalled.into_inner().expect("no thread panics with it");
    assert_eq!(slow.len(), EACH * questions.len());
    for (name, _, sent) in &slow {
        assert!(*sent < FLOOD, "all {sent} bytes of {name} were read although no answer was");
    }
    let grown = server.memory().peak.saturating_sub(resident);
    // Each may hold what one read gave, one batch of answers and one answer over.
    assert!(grown < 64 << 20, "{} slow readers took {grown} bytes", slow.len());

    for (name, client, _) in &mut slow {
        // Its socket still has answers to read; the server's end is what counts.
        let closed = poll_until(Duration::from_secs(IDLE) + SOON, || is_broken(client).then_some(()));
        assert!(closed.is_some(), "a reader of {name} that does not read stays connected");
    }
    beside.finish();
    server.expect_count("connections_ended_total", "reason=\"idle\"", slow.len() as u64);
    server.assert_alive();
}

/// Whether the server has closed the connection: what is written meets a reset.
fn is_broken(client: &Client) -> bool {
    let mut stream = client.stream();
    stream.set_nonblocking(true).expect("a socket can be made so");
    let written = stream.write(&[0]);
    stream.set_nonblocking(false).expect("a socket can be made so");
    matches!(written, Err(error) if error.kind() != io::ErrorKind::WouldBlock)
        || stream.take_error().is_ok_and(|error| error.is_some())
}

#[test]
fn a_reader_that_goes_on_reading_gets_every_answer_in_order() {
    let mut server = Server::with_defaults();
    let broker = Broker::with_topics("broker-a", "10.9.0.1:10911", "Topic", 2_000);
    let _broker = server.register(&broker);
    let resident = server.memory().now;
    server.forget_peak();
    let mut client = Client::with_small_window(server.address());
    let mut writing = client.stream().try_clone().expect("a second handle");
    let count = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for opaque in 0..count {
                let request = match opaque % 10 {
                    0 => json(&Request { opaque, ..Request::new(206) }),
                    _ => route_query(&format!("Topic-{}", opaque % 2_000), opaque),
                };
                writing.write_all(&request).expect("the server reads on");
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        for opaque in 0..count {
            let answer = client.next().expect("every answer comes");
            assert_eq!((answer.opaque, answer.code), (opaque, 0));
        }
    });
    let grown = server.memory().peak.saturating_sub(resident);
    assert!(grown < 32 << 20, "a late reader took {grown} bytes");
    server.assert_alive();
}

/// Keeps a broker registered where idle connections are closed.
struct Keeper {
    stop: std::sync::mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Keeper {
    fn start(server: &Server, broker: &Broker) -> Self {
        let mut client = server.register(broker);
        let (broker, (stop, stopped)) = (broker.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            while stopped
                .recv_timeout(Duration::from_secs(1))
                .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                broker.beat(&mut client);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}
