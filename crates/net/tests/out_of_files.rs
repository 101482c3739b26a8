//! A process that has no file descriptor left closes the connections that come, and serves again once it
//! has some. In a process of its own: the limit holds for all its threads.

use std::fs::File;
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use waypost_net::accept::{AcceptLimits, Acceptor};
use waypost_net::clock::Clock;
use waypost_net::listener::{BindAddress, ListenOptions, bind};
use waypost_net::tasks::Tasks;

/// Sends nothing and tells whether the other side closes.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match std::io::Read::read(&mut &*stream, &mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_descriptors_closes_what_comes_and_recovers() {
    let clock = Clock::system();
    let address = BindAddress::Ip("127.0.0.1".parse().unwrap());
    let listeners = bind(&address, 0, &ListenOptions::default()).unwrap();
    let target = listeners[0].address();
    let acceptor = Acceptor::new(listeners, AcceptLimits::default());
    let stats = acceptor.stats();
    let tasks = Tasks::new();
    let stop = tasks.stop();
    let (sender, mut accepted) = tokio::sync::mpsc::unbounded_channel();
    tasks.spawn(async move { acceptor.run(&stop, |accepted| drop(sender.send(accepted))).await });

    // The sockets of this side are made before the descriptors run out.
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap());
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..limit }).unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(hoard.len() > 50);

    let streams: Vec<TcpStream> = sockets
        .into_iter()
        .map(|socket| {
            socket.connect(&target.into()).unwrap();
            socket.into()
        })
        .collect();
    let closed = tokio::task::spawn_blocking(move || streams.iter().all(is_closed)).await.unwrap();
    assert!(closed, "every peer learns that it must go elsewhere");
    let counts = stats.counts();
    assert!(counts.out_of_files >= 20, "{counts:?}");
    assert!(counts.out_of_files < 200, "it does not spin: {counts:?}");
    assert_eq!(counts.accepted, 0);

    hoard.clear();
    let deadline = clock.now().after(Duration::from_secs(20));
    let _stream = loop {
        let stream = TcpStream::connect(target).unwrap();
        match tokio::time::timeout(Duration::from_secs(20), accepted.recv()).await {
            Ok(Some(_)) => break stream,
            _ => assert!(clock.now() < deadline, "it does not serve again"),
        }
    };
    tasks.cancel();
    assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
}
