//! Signals.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::harness::{DEADLINE, Server, exchange};

#[test]
fn sigterm_drains_within_two_seconds_and_closes_connections() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        let mut idle = TcpStream::connect(server.address).expect("a connection");
        // Once it is answered it is accepted: the kernel connects to a server that has not looked yet, and resets what
        // is still unaccepted when that server ends.
        assert_eq!(exchange(&mut idle, Request::new(request::GET_BROKER_CLUSTER_INFO)).0, 0);
        idle.set_read_timeout(Some(DEADLINE)).expect("a live socket");
        let before = Instant::now();
        server.send(signal);
        let status = server.wait();
        assert!(before.elapsed() < Duration::from_secs(2), "{signal:?} took {:?}", before.elapsed());
        assert!(status.success(), "{signal:?}: {status:?}");
        assert_eq!(idle.read(&mut [0; 1]).expect("a clean close"), 0);
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once_and_readiness_ends_with_the_first() {
    let graceful = ["--set", "enableShutdownGracefully=true", "--set", "shutdownWaitTimeSeconds=600"];
    let mut server = Server::start(&graceful);
    let open = TcpStream::connect(server.address).expect("a connection");
    assert_eq!(server.get("/readyz").0, 200);
    // A connection counts once it has sent something.
    let _registered = server.register("b", "127.0.0.1:1", &["T1", "T2"]);
    server.send(Signal::TERM);
    server.wait_until("it is not ready any more", |server| server.get("/readyz").0 == 503);
    assert_eq!(server.get("/healthz").0, 200);
    server.send(Signal::INT);
    let status = server.wait();
    assert_eq!((status.code(), status.signal()), (Some(130), None), "{}", server.err());
    drop(open);
}

#[test]
fn sighup_changes_nothing() {
    let mut server = Server::start(&[]);
    server.send(Signal::HUP);
    server.wait_until("it says so", |server| server.err().contains("SIGHUP changes nothing"));
    assert_eq!(server.ask("check").code, 0);
}
