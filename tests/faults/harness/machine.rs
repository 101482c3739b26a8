//! What the machine itself costs.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two messages.
const PERIOD: Duration = Duration::from_millis(5);

/// How many times the delay of one message between two threads a few messages between processes may take.
const ALLOWANCE: u32 = 4;

/// Sends a message to and fro between two threads of the test all the time: what that takes is the fault of the
/// machine and not of the server.
pub(crate) struct Machine {
    stop: Arc<AtomicBool>,
    echoing: Option<JoinHandle<Duration>>,
}

impl Machine {
    pub(crate) fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut echo = echo();
        let echoing = longest_until(&stop, move || {
            let mut byte = [1];
            let done = echo.write_all(&byte).and_then(|()| echo.read_exact(&mut byte));
            done.expect("the echo is there");
        });
        Self { stop, echoing: Some(echoing) }
    }

    /// How much longer something may have taken because of the machine.
    pub(crate) fn allowance(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let delay = self.echoing.take().map(|echoing| echoing.join().expect("every echo came"));
        delay.unwrap_or_default() * ALLOWANCE
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Does `once` all the time; gives the longest time that it took.
pub(crate) fn longest_until(
    stop: &Arc<AtomicBool>,
    mut once: impl FnMut() + Send + 'static,
) -> JoinHandle<Duration> {
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
