//! Whether the server serves others while it is under attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::machine::longest_until;
use super::{BEARABLE, Machine, Server};

/// Asks for a route all the time, from another connection.
pub(crate) struct Beside {
    stop: Arc<AtomicBool>,
    asking: Option<JoinHandle<Duration>>,
    machine: Option<Machine>,
}

impl Beside {
    pub(crate) fn start(server: &Server, topic: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = server.client();
        let topic = topic.to_owned();
        assert!(client.has_route(&topic));
        let asking = longest_until(&stop, move || assert!(client.has_route(&topic)));
        Self { stop, asking: Some(asking), machine: Some(Machine::watch()) }
    }

    /// # Panics
    ///
    /// If a question was not answered, or one answer took longer than [`BEARABLE`] and the machine's delays.
    pub(crate) fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.asking.take().map(|asking| asking.join().expect("every route query was answered"));
        let longest = longest.unwrap_or_default();
        let machine = self.machine.take().map(Machine::allowance).unwrap_or_default();
        eprintln!("the longest route query took {longest:?}, the machine excuses {machine:?}");
        let limit = BEARABLE + machine;
        assert!(longest < limit, "a route query took {longest:?}; the machine excuses {machine:?}");
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
