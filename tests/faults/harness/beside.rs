//! Whether the server serves others while it is under attack.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{BEARABLE, Server};

/// Between two questions.
const PERIOD: Duration = Duration::from_millis(5);

/// Asks for a route all the time, from another connection. Beside it a message goes to and fro between two
/// threads of the test itself: what that takes is the fault of the machine and not of the server.
pub(crate) struct Beside {
    stop: Arc<AtomicBool>,
    asking: Option<JoinHandle<Duration>>,
    echoing: Option<JoinHandle<Duration>>,
}

impl Beside {
    pub(crate) fn start(server: &Server, topic: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = server.client();
        let topic = topic.to_owned();
        assert!(client.has_route(&topic));
        let asking = longest_until(&stop, move || assert!(client.has_route(&topic)));
        let mut echo = echo();
        let echoing = longest_until(&stop, move || {
            let mut byte = [1];
            let done = echo.write_all(&byte).and_then(|()| echo.read_exact(&mut byte));
            done.expect("the echo is there");
        });
        Self { stop, asking: Some(asking), echoing: Some(echoing) }
    }

    /// # Panics
    ///
    /// If a question was not answered, or one answer took longer than [`BEARABLE`] and the machine's delays.
    pub(crate) fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.asking.take().map(|asking| asking.join().expect("every route query was answered"));
        let machine = self.echoing.take().map(|echoing| echoing.join().expect("every echo came"));
        let (longest, machine) = (longest.unwrap_or_default(), machine.unwrap_or_default());
        eprintln!("the longest route query took {longest:?}, the longest echo {machine:?}");
        let limit = BEARABLE + machine * 4;
        assert!(longest < limit, "a route query took {longest:?}; the machine's own delay was {machine:?}");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Does `once` all the time; gives the longest time that it took.
fn longest_until(stop: &Arc<AtomicBool>, mut once: impl FnMut() + Send + 'static) -> JoinHandle<Duration> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            once();
            longest = longest.max(start.elapsed());
            std::thread::sleep(PERIOD);
        }
        longest
    })
}

/// A connection whose other end sends back what it gets, until it is closed.
fn echo() -> TcpStream {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
    let (mut far, _) = listener.accept().expect("its other end");
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("an option of sockets");
    }
    std::thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).and_then(|()| far.write_all(&byte)).is_ok() {}
    });
    near
}
