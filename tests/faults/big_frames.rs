//! A thousand connections that each send 15 of 16 MiB and stop: the memory of unfinished frames is bounded, the
//! others are served, and who holds memory without going on loses it.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{Beside, Broker, Client, Server, Settings, envelope, files_allow, poll_until};

const CONNECTIONS: usize = 1_000;
const MIB: usize = 1 << 20;

/// A frame of 16 MiB less a little, of a request that is not known: cheap to answer.
fn big_frame() -> Vec<u8> {
    envelope(0, br#"{"code":999,"opaque":16}"#, &vec![b'x'; 16 * MIB - 100])
}

/// Sends the first 15 MiB of `frame` on every connection, as far as the server takes them, until it has taken
/// nothing from any for two seconds.
fn push(connections: &[TcpStream], frame: &[u8]) -> usize {
    let part = &frame[..15 * MIB];
    let mut sent = vec![0; connections.len()];
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_secs(2) {
        let mut moved = false;
        for (mut stream, sent) in connections.iter().zip(&mut sent) {
            match stream.write(&part[*sent..]) {
                Ok(count) => {
                    *sent += count;
                    moved |= count > 0;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("the connection broke: {error}"),
            }
        }
        if moved {
            last = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    sent.iter().sum()
}

#[test]
fn a_thousand_unfinished_frames_take_bounded_memory_and_disturb_nobody() {
    if !files_allow("a thousand unfinished frames", CONNECTIONS as u64 + 4_000) {
        return;
    }
    let mut server = Server::with_defaults();
    let _broker = server.register(&Broker::new("broker-a", "10.9.0.1:10911", &["TopicA"]));
    let before = server.table(&["TopicA"]);
    let resident = server.memory().now;
    server.forget_peak();
    let frame = big_frame();
    let beside = Beside::start(&server, "TopicA");

    std::thread::scope(|scope| {
        let connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| stalled_connection(&server)).collect();
        let begun = Instant::now();
        let sent = push(&connections, &frame);
        assert!(sent > 256 * MIB, "only {sent} bytes were taken");
        let peak = server.memory().peak.saturating_sub(resident) as usize;
        assert!(peak < 1_024 * MIB, "unfinished frames took {peak} bytes");
        let metrics = server.metrics();
        let promised = metrics.sum("unfinished_frame_bytes", "");
        assert!((1.0..=(1_024 * MIB) as f64).contains(&promised), "{promised} bytes are promised");
        assert!(metrics.sum("waiting_frames", "") >= 900.0, "few frames wait");

        // A registration of 5 MB comes in all the same.
        let broker = Broker::with_topics("broker-b", "10.9.0.2:10911", "Topic-with-a-longer-name", 34_000);
        let body = broker.body();
        assert!((5_000_000..6_500_000).contains(&body.len()), "{} bytes", body.len());
        let mut client = server.client();
        let start = Instant::now();
        broker.send_registration(&mut client, &body);
        let answer = client.next().expect("the registration is answered");
        assert_eq!(answer.code, 0, "{answer:?}");
        eprintln!("the registration of {} bytes took {:?}", body.len(), start.elapsed());
        client.call(&Request {
            ext: &[
                ("brokerAddr", "10.9.0.2:10911"),
                ("brokerId", "0"),
                ("brokerName", "broker-b"),
                ("clusterName", "C"),
            ],
            ..Request::new(104)
        });

        // One as big as theirs waits, and gets in when they have lost their places.
        let mut big = server.client();
        let mut sending = big.stream().try_clone().expect("a second handle");
        sending.set_write_timeout(Some(Duration::from_secs(60))).expect("a time-out can be set");
        big.stream().set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out can be set");
        let patience = Duration::from_secs(20).saturating_sub(begun.elapsed());
        std::thread::sleep(patience);
        let frame = &frame;
        scope.spawn(move || sending.write_all(frame));
        let answer = big.next().expect("the frame is finished after the others are gone");
        assert_eq!((answer.code, answer.opaque), (3, 16));
        assert!(begun.elapsed() > Duration::from_secs(25), "it got in at once: nobody was waiting");
    });

    beside.finish();

    let gone = poll_until(Duration::from_secs(40), || {
        (server.metrics().sum("unfinished_frame_bytes", "") == 0.0).then_some(())
    });
    assert!(gone.is_some(), "memory is still promised to frames of closed connections");
    server.expect_count("connections_ended_total", "reason=\"frame_stalled\"", 1);
    assert_eq!(server.table(&["TopicA"]), before);
    server.assert_alive();
}

#[test]
fn a_frame_that_waits_for_memory_is_finished_when_others_close() {
    let mut server = Server::start(&Settings::new().with("unfinishedFrameMemory", 64 * MIB));
    let frame = big_frame();
    let connections: Vec<TcpStream> = (0..20).map(|_| stalled_connection(&server)).collect();
    push(&connections, &frame);
    assert!(server.metrics().sum("waiting_frames", "") > 10.0);
    let mut client = server.client();
    let mut sending = client.stream().try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        scope.spawn(move || sending.write_all(&frame));
        let waits = !client.is_answered_within(Duration::from_secs(1));
        assert!(waits, "it got in beside the others");
        drop(connections);
        let answer = client.next().expect("an answer");
        assert_eq!((answer.code, answer.opaque), (3, 16));
    });
    server.expect_count("connections_ended_total", "reason=\"peer_closed\"", 1);
    assert_eq!(server.metrics().sum("unfinished_frame_bytes", ""), 0.0);
    server.assert_alive();
}

/// A connection whose kernel keeps little of what the server does not take.
fn stalled_connection(server: &Server) -> TcpStream {
    let stream = Client::to(server.address()).into_stream();
    let small = SockRef::from(&stream).set_send_buffer_size(64 * 1_024);
    small.and_then(|()| stream.set_nonblocking(true)).expect("a socket takes its options");
    stream
}
