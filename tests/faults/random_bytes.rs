//! Noise: thousands of short connections that send what nobody expects. The seeds are fixed, so a failure comes
//! back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use waypost_rocketmq_wire::message::Request;

use crate::harness::{Broker, Client, Random, Server, binary, envelope, json};

/// Connections of each kind.
const ROUNDS: u64 = 1_500;

/// Connections at the same time.
const THREADS: u64 = 4;

/// Sends `bytes` on a connection of its own, says that this is all, and waits until the server has closed it.
/// What it answers must be answers.
fn provoke(server: SocketAddr, bytes: &[u8]) {
    let mut client = Client::to(server);
    client.send(bytes);
    client.finish_sending();
    while client.next().is_some() {}
}

fn provoke_often(server: &Server, seed: u64, make: impl Fn(&mut Random) -> Vec<u8> + Sync) {
    let address = server.address();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let make = &make;
            scope.spawn(move || {
                for round in (thread..ROUNDS).step_by(THREADS as usize) {
                    provoke(address, &make(&mut Random::new(seed + round)));
                }
            });
        }
    });
}

/// Bytes without any form, or with the form of the first few.
fn noise(random: &mut Random) -> Vec<u8> {
    let length = random.below(600) + 1;
    let mut bytes = random.bytes(length);
    let begin: &[u8] = match random.below(8) {
        0 => &[0, 0, 0],
        1 => &[0, 0, 2, 0, 0, 0, 1],
        2 => &[0, 0, 0, 60, 1, 0, 0],
        3 => &[0x16, 3, 1],
        4 => b"PROXY TCP4 ",
        5 => b"\r\n\r\n\0\r\nQUIT\n",
        6 => b"\0\0\0\x40\0\0\0\x3c{\"code\":105,",
        _ => b"",
    };
    let end = begin.len().min(bytes.len());
    bytes[..end].copy_from_slice(&begin[..end]);
    bytes
}

/// `bytes` with a few bits, bytes or pieces changed.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) + 1 {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.next() as u8),
            _ => {
                let piece = bytes[at..(at + random.below(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn noise_and_damaged_questions_change_nothing() {
    let mut server = Server::with_defaults();
    let broker = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]);
    let _connection = server.register(&broker);
    let before = server.table(&["TopicA", "TBW102", "None"]);
    let resident = server.memory().now;

    provoke_often(&server, 1_000_000, noise);
    let questions = [
        Request { ext: &[("topic", "TopicA")], ..Request::new(105) },
        Request::new(106),
        Request::new(206),
        Request { ext: &[("clusterName", "C"), ("brokerName", "broker-a")], ..Request::new(901) },
    ];
    provoke_often(&server, 2_000_000, |random| {
        let question = &questions[random.below(questions.len())];
        let mut bytes = if random.below(2) == 0 { json(question) } else { binary(question) };
        damage(random, &mut bytes);
        bytes
    });

    assert_eq!(server.table(&["TopicA", "TBW102", "None"]), before);
    assert_memory_and_log(&mut server, resident);
}

#[test]
fn damaged_registrations_never_break_the_table() {
    let mut server = Server::with_defaults();
    let resident = server.memory().now;
    let body = Broker::new("broker-a", "10.9.0.1:10911", &["TopicA", "TopicB"]).body();
    let ext = [
        ("brokerAddr", "10.9.0.1:10911"),
        ("brokerId", "0"),
        ("brokerName", "broker-a"),
        ("clusterName", "C"),
        ("haServerAddr", "10.9.0.1:10912"),
    ];
    let whole = json(&Request { ext: &ext, body: &body, ..Request::new(103) });
    provoke_often(&server, 3_000_000, |random| {
        let mut bytes = whole.clone();
        if random.below(4) == 0 {
            // The lengths stay right, so that the damage reaches the readers behind them.
            let mut damaged = body.clone();
            damage(random, &mut damaged);
            let header = &whole[8..whole.len() - body.len()];
            bytes = envelope(0, header, &damaged);
        } else {
            damage(random, &mut bytes);
        }
        bytes
    });

    // All of their connections are closed, so nothing of theirs may stay.
    let start = Instant::now();
    let mut client = server.client();
    let empty = loop {
        let clusters = client.call(&Request::new(106)).text();
        let topics = client.call(&Request::new(206)).text();
        if clusters == r#"{"brokerAddrTable":{},"clusterAddrTable":{}}"# && topics == r#"{"topicList":[]}"# {
            break true;
        }
        if start.elapsed() > Duration::from_secs(10) {
            eprintln!("{clusters}\n{topics}");
            break false;
        }
    };
    assert!(empty, "brokers of closed connections are left");
    assert_memory_and_log(&mut server, resident);
}

/// Thousands of bad connections must not grow the process, nor its log.
fn assert_memory_and_log(server: &mut Server, resident: u64) {
    server.assert_alive();
    let grown = server.memory().now.saturating_sub(resident);
    assert!(grown < 32 << 20, "the process grew by {grown} bytes");
    let lines = server.log_lines("connection closed");
    assert!(lines.len() <= 40, "{} lines for {ROUNDS} bad connections", lines.len());
}
