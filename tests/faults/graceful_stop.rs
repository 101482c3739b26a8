//! SIGTERM: the server stops listening, finishes what it has begun, and ends.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, SOON, Server, Settings, Signal, json, poll_until};

/// Bytes of a connection that its receiver has not read yet, by the kernel's account.
fn unread(from: SocketAddr, to: SocketAddr) -> u64 {
    let port = |address: SocketAddr| format!("{:04X}", address.port());
    let (client, server) = (port(from), port(to));
    let table = fs::read_to_string("/proc/self/net/tcp").expect("the table of sockets");
    let queues = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ends = (fields.get(1)?.rsplit(':').next()?, fields.get(2)?.rsplit(':').next()?);
        let (sent, received) = fields.get(4)?.split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        if ends == (client.as_str(), server.as_str()) {
            number(sent)
        } else if ends == (server.as_str(), client.as_str()) {
            number(received)
        } else {
            None
        }
    });
    queues.sum()
}

/// Waits until new connections are refused.
fn wait_until_not_listening(server: &Server, limit: Duration) -> Option<()> {
    poll_until(limit, || Client::try_to(server.address()).is_err().then_some(()))
}

#[test]
fn a_stop_answers_what_was_read_and_ends() {
    let mut server = Server::with_defaults();
    let broker = Broker::with_topics("broker-a", "10.9.0.1:10911", "Topic", 15_000);
    let body = broker.body();
    let mut idle: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.call(&Request::new(106)).code, 0);
    }
    let mut working = server.client();
    broker.send_registration(&mut working, &body);
    let read = poll_until(SOON, || (unread(working.local(), server.address()) == 0).then_some(()));
    assert!(read.is_some(), "the registration is not read");

    server.send(Signal::Terminate);
    let start = Instant::now();
    let answer = working.next().expect("what was read is answered");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(working.next(), None);
    for client in &mut idle {
        assert_eq!(client.next(), None);
    }
    assert!(wait_until_not_listening(&server, SOON).is_some(), "it still listens");
    let status = server.ends_within(SOON).expect("it ends");
    assert!(status.success(), "{status}");
    assert!(start.elapsed() < Duration::from_secs(8), "it took {:?}", start.elapsed());
}

#[test]
fn a_stop_does_not_wait_for_peers_that_do_not_finish() {
    let mut server = Server::with_defaults();
    let query = json(&Request { ext: &[("topic", "TopicA")], ..Request::new(105) });
    let mut half = server.client();
    half.send(&query[..20]);
    let mut large = server.client();
    large.send(&[&[0, 0x40, 0, 0][..], &[0; 100_000]].concat());
    let mut silent = server.client();
    assert_eq!(silent.call(&Request::new(106)).code, 0);
    let unread_answers = Client::with_small_window(server.address());
    let mut flooding = unread_answers;
    for _ in 0..50 {
        flooding.send(&query.repeat(100));
    }
    server.send(Signal::Terminate);
    let start = Instant::now();
    let status = server.ends_within(SOON).expect("it ends");
    assert!(status.success(), "{status}");
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
}

#[test]
fn a_graceful_stop_sends_newer_peers_away_first_and_goes_on_serving_older_ones() {
    const WAIT: u64 = 12;
    let settings =
        Settings::new().with("enableShutdownGracefully", true).with("shutdownWaitTimeSeconds", WAIT);
    let mut server = Server::start(&settings);
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let mut client = server.client();
    let query = |version| Request { version, ext: &[("topic", "TopicA")], ..Request::new(105) };
    assert_eq!(client.call(&query(513)).code, 0);

    server.send(Signal::Terminate);
    let start = Instant::now();
    let told = poll_until(Duration::from_secs(WAIT), || {
        let answer = client.call(&query(476));
        (answer.code != 0).then_some(answer)
    });
    let told = told.expect("newer peers are told to go away");
    assert_eq!((told.code, told.remark()), (1500, "please go away"));
    // The process goes on, as the questions below show.
    assert!(wait_until_not_listening(&server, Duration::from_secs(WAIT)).is_some(), "it still listens");
    assert_eq!(client.call(&query(475)).code, 0, "5.3.1 does not know the code: it is served");
    assert_eq!(client.call(&Request { version: 0, ..Request::new(106) }).code, 0);
    client.send(&json(&Request { oneway: true, ..query(513) }));
    assert_eq!(client.call(&query(475)).code, 0, "a one-way request gets no answer, not even this one");

    let status = server.ends_within(SOON).expect("it ends");
    assert!(status.success(), "{status}");
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(WAIT - 1), "it ended after only {took:?}, with a client connected");
    assert!(took < Duration::from_secs(WAIT + 8), "it took {took:?}");
    assert_eq!(client.next(), None);
}

#[test]
fn a_second_signal_ends_a_server_whose_disk_hangs() {
    let mut server = Server::with_defaults();
    let folder = server.home().join("namesrv");
    fs::create_dir_all(&folder).expect("a folder");
    // A pipe that nobody reads where the file is written before it is renamed: whoever opens it waits for ever.
    let pipe = folder.join(format!(".kvConfig.json.{}.tmp", server.id()));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let mut client = server.client();
    let ext = [("namespace", "N"), ("key", "K"), ("value", "V")];
    client.send(&json(&Request { ext: &ext, ..Request::new(100) }));
    let read = poll_until(SOON, || (unread(client.local(), server.address()) == 0).then_some(()));
    assert!(read.is_some(), "the change is not read");

    server.send(Signal::Terminate);
    let waits = || server.log().contains("the stop waits for changes of the KV configuration").then_some(());
    assert!(poll_until(SOON, waits).is_some(), "{}", server.log());
    let start = Instant::now();
    server.send(Signal::Terminate);
    let status = server.ends_within(SOON).expect("it ends");
    assert_eq!(status.code(), Some(143), "{}", server.log());
    // The last lines of the log may take two seconds, the rest takes no time.
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    assert!(server.log().contains("ended at once"), "{}", server.log());
}
