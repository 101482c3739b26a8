//! A TCP proxy with bad habits.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What waits for its time in a connection's direction: bytes, or their end.
type Item = (Instant, Option<Vec<u8>>);

/// How a [`Proxy`] treats connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Passes everything on at once.
    Pass,
    /// Passes everything on, in each direction so much later.
    Delay(Duration),
    /// Accepts and then touches nothing: bytes wait, and go on when the behaviour changes.
    Stall,
    /// Takes what is sent and throws it away, ends included; what it threw away does not come back.
    Blackhole,
    /// Closes every new connection as soon as it is accepted; the others pass.
    Refuse,
}

/// A proxy on a loopback port for one upstream address. It goes on drop, with its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    stopping: bool,
    /// Handles to both ends of each connection, to end them.
    open: Vec<TcpStream>,
    accepted: u64,
}

impl Proxy {
    /// Starts it in front of `upstream`, which need not be there yet.
    ///
    /// # Panics
    ///
    /// If no port is to be had.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = State { behaviour: Behaviour::Pass, stopping: false, open: Vec::new(), accepted: 0 };
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.lock().stopping {
                    return;
                }
                if let Ok(stream) = stream {
                    let _ = accepting.accept(stream);
                }
            }
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes how it treats all connections.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.lock().behaviour = behaviour;
        self.shared.changed.notify_all();
    }

    /// Closes all connections on both sides.
    pub fn cut(&self) {
        for stream in self.shared.lock().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.cut();
        // Wakes the acceptor, which then ends.
        let _ = TcpStream::connect(self.address);
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, near: TcpStream) -> io::Result<()> {
        {
            let mut state = self.lock();
            state.accepted += 1;
            if state.behaviour == Behaviour::Refuse {
                return near.shutdown(Shutdown::Both);
            }
        }
        let far = TcpStream::connect_timeout(&self.upstream, Duration::from_secs(3))?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        self.lock().open.extend([near.try_clone()?, far.try_clone()?]);
        for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
            let (sender, receiver) = channel();
            let (reading, writing) = (Arc::clone(self), Arc::clone(self));
            std::thread::spawn(move || reading.read(from, &sender));
            std::thread::spawn(move || writing.write(to, &receiver));
        }
        Ok(())
    }

    /// Waits while everything stalls; the behaviour then, or `None` when all ends.
    fn behaviour(&self) -> Option<Behaviour> {
        let state = self.lock();
        let waited =
            self.changed.wait_while(state, |state| state.behaviour == Behaviour::Stall && !state.stopping);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.stopping).then_some(state.behaviour)
    }

    fn read(&self, mut from: TcpStream, sender: &Sender<Item>) {
        let mut chunk = [0; 65_536];
        loop {
            let bytes = match from.read(&mut chunk) {
                Ok(count) if count > 0 => Some(chunk[..count].to_vec()),
                _ => None,
            };
            let ended = bytes.is_none();
            let Some(behaviour) = self.behaviour() else { return };
            let delay = match behaviour {
                Behaviour::Delay(delay) => delay,
                Behaviour::Blackhole if !ended => continue,
                _ => Duration::ZERO,
            };
            let hidden = ended && behaviour == Behaviour::Blackhole;
            if hidden || sender.send((Instant::now() + delay, bytes)).is_err() || ended {
                // A direction whose end is not told must stay open: its writer's socket is in `open`.
                return;
            }
        }
    }

    fn write(&self, mut to: TcpStream, receiver: &Receiver<Item>) {
        while let Ok((due, bytes)) = receiver.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.behaviour().is_none() {
                return;
            }
            let done = match bytes {
                Some(bytes) => to.write_all(&bytes),
                None => to.shutdown(Shutdown::Write),
            };
            if done.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_millis(150);

    /// Sends back what comes.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        address
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// What comes back within `limit`: a byte, the end, or nothing.
    fn heard(stream: &mut TcpStream, limit: Duration) -> Option<usize> {
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.read(&mut [0]).ok()
    }

    #[test]
    fn bytes_pass_late_or_wait() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        stream.write_all(b"a").unwrap();
        assert_eq!(heard(&mut stream, SOON), Some(1));
        proxy.behave(Behaviour::Delay(SHORT));
        let start = Instant::now();
        stream.write_all(b"b").unwrap();
        assert_eq!(heard(&mut stream, SOON), Some(1));
        assert!(start.elapsed() >= SHORT * 2, "late in both directions");
        proxy.behave(Behaviour::Stall);
        stream.write_all(b"c").unwrap();
        assert_eq!(heard(&mut stream, SHORT), None);
        proxy.behave(Behaviour::Pass);
        assert_eq!(heard(&mut stream, SOON), Some(1), "what waited goes on");
        assert_eq!(proxy.accepted(), 1);
    }

    #[test]
    fn a_black_hole_keeps_connections_and_nothing_else() {
        let proxy = Proxy::start(echo());
        let mut stream = connect(&proxy);
        proxy.behave(Behaviour::Blackhole);
        stream.write_all(b"a").unwrap();
        assert_eq!(heard(&mut stream, SHORT), None);
        proxy.behave(Behaviour::Pass);
        assert_eq!(heard(&mut stream, SHORT), None, "it is gone");
        stream.write_all(b"b").unwrap();
        assert_eq!(heard(&mut stream, SOON), Some(1));
    }

    #[test]
    fn connections_are_refused_and_cut() {
        let proxy = Proxy::start(echo());
        let mut old = connect(&proxy);
        old.write_all(b"a").unwrap();
        assert_eq!(heard(&mut old, SOON), Some(1));
        proxy.behave(Behaviour::Refuse);
        assert_eq!(heard(&mut connect(&proxy), SOON), Some(0));
        old.write_all(b"b").unwrap();
        assert_eq!(heard(&mut old, SOON), Some(1));
        proxy.cut();
        assert_eq!(heard(&mut old, SOON), Some(0));
    }
}
