use super::*;
use crate::listener::{BindAddress, ListenOptions, bind};
use crate::tasks::Tasks;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

struct Running {
    tasks: Tasks,
    addresses: Vec<SocketAddr>,
    stats: Arc<AcceptStats>,
    accepted: mpsc::UnboundedReceiver<Accepted>,
}

fn run(limits: AcceptLimits, listeners: usize) -> Running {
    let address = BindAddress::Ip("127.0.0.1".parse().unwrap());
    let listeners: Vec<Listener> =
        (0..listeners).flat_map(|_| bind(&address, 0, &ListenOptions::default()).unwrap()).collect();
    let addresses = listeners.iter().map(Listener::address).collect();
    let acceptor = Acceptor::new(listeners, limits);
    let stats = acceptor.stats();
    let tasks = Tasks::new();
    let stop = tasks.stop();
    let (sender, accepted) = mpsc::unbounded_channel();
    tasks.spawn(async move { acceptor.run(&stop, |accepted| drop(sender.send(accepted))).await });
    Running { tasks, addresses, stats, accepted }
}

async fn closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

async fn eventually(stats: &AcceptStats, what: impl Fn(AcceptCounts) -> bool) {
    let wait = async {
        while !what(stats.counts()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("in time");
}

#[tokio::test]
async fn connections_of_all_listeners_are_handed_over_with_rising_numbers() {
    let mut running = run(AcceptLimits::default(), 3);
    let mut last = 0;
    for turn in 0..12 {
        let target = running.addresses[turn % 3];
        let dialled = TcpStream::connect(target).await.unwrap();
        let accepted = running.accepted.recv().await.unwrap();
        assert_eq!(accepted.peer, dialled.local_addr().unwrap());
        assert_eq!(accepted.local, target);
        assert!(accepted.number > last);
        assert!(accepted.stream.nodelay().unwrap());
        last = accepted.number;
    }
    assert_eq!(running.stats.counts().accepted, 12);
    eventually(&running.stats, |counts| counts.open == 0).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_until_one_leaves() {
    let mut running = run(AcceptLimits { connections: 2, ..AcceptLimits::default() }, 1);
    let target = running.addresses[0];
    let _first = TcpStream::connect(target).await.unwrap();
    let _second = TcpStream::connect(target).await.unwrap();
    let first = running.accepted.recv().await.unwrap();
    let _second_accepted = running.accepted.recv().await.unwrap();
    let mut third = TcpStream::connect(target).await.unwrap();
    assert!(closed(&mut third).await);
    let counts = running.stats.counts();
    assert_eq!((counts.accepted, counts.open, counts.over_limit), (2, 2, 1));
    drop(first);
    let _fourth = TcpStream::connect(target).await.unwrap();
    assert_eq!(running.accepted.recv().await.unwrap().number, 3);
}

#[tokio::test]
async fn connections_from_one_address_can_be_limited() {
    let mut running = run(AcceptLimits { per_address: Some(1), ..AcceptLimits::default() }, 1);
    let target = running.addresses[0];
    let _first = TcpStream::connect(target).await.unwrap();
    let first = running.accepted.recv().await.unwrap();
    let mut second = TcpStream::connect(target).await.unwrap();
    assert!(closed(&mut second).await);
    assert_eq!(running.stats.counts().over_address_limit, 1);

    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let _other = other.connect(target).await.unwrap();
    let other = running.accepted.recv().await.unwrap();
    assert_eq!(other.peer.ip().to_string(), "127.0.0.2");

    drop((first, other));
    assert!(first_address_is_free(&running).await);
    let _again = TcpStream::connect(target).await.unwrap();
    assert!(running.accepted.recv().await.is_some());
}

async fn first_address_is_free(running: &Running) -> bool {
    eventually(&running.stats, |counts| counts.open == 0).await;
    running.stats.counts().over_address_limit == 1
}

#[tokio::test]
async fn stopping_closes_the_listeners_and_leaves_connections_alone() {
    let mut running = run(AcceptLimits::default(), 1);
    let mut dialled = TcpStream::connect(running.addresses[0]).await.unwrap();
    let accepted = running.accepted.recv().await.unwrap();
    running.tasks.cancel();
    assert_eq!(running.tasks.drain(Duration::from_secs(20)).await, 0);
    let refused = TcpStream::connect(running.addresses[0]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    accepted.stream.try_write(b"x").unwrap();
    assert_eq!(dialled.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn ipv4_on_a_dual_stack_socket_is_reported_as_ipv4() {
    let listeners = bind(&BindAddress::Any, 0, &ListenOptions::default()).unwrap();
    let target = SocketAddr::new("127.0.0.1".parse().unwrap(), listeners[0].address().port());
    let acceptor = Acceptor::new(listeners, AcceptLimits::default());
    let tasks = Tasks::new();
    let stop = tasks.stop();
    let (sender, mut accepted) = mpsc::unbounded_channel();
    tasks.spawn(async move { acceptor.run(&stop, |accepted| drop(sender.send(accepted))).await });
    let dialled = TcpStream::connect(target).await.unwrap();
    let accepted = accepted.recv().await.unwrap();
    assert_eq!(accepted.peer, dialled.local_addr().unwrap());
    assert_eq!(accepted.local, target);
}
