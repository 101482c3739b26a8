//! The threads that serve connections: one event loop each, which share nothing.
//!
//! A connection stays with the worker that it was given to. So a request never wakes a second thread, and no
//! task moves between cores while it is hot; beside one work-stealing scheduler this saved a tenth of the CPU
//! of a small request. The price is that a connection cannot leave a busy worker, so handlers must be short.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};

use crate::tasks::{Stop, Tasks};
use crate::watchdog::{BEAT_PERIOD, Watch, Watchdog};

thread_local! {
    /// The watch of the worker that this thread is. It never rests: the event loop marks that it runs.
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Marks that the worker that this thread is makes progress, at `note`: a request code, or 0 between requests.
/// Other threads have nothing to mark.
#[inline]
pub fn mark(note: i32) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.progress(note);
        }
    });
}

/// A fixed set of event loops. They end when this and its clones are dropped.
#[derive(Clone, Debug)]
pub struct Workers {
    crew: Arc<Crew>,
}

#[derive(Debug)]
struct Crew {
    workers: Vec<Worker>,
    stop: Stop,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Connections that it serves.
    load: Arc<AtomicUsize>,
}

/// Counts a connection for its worker until it is dropped.
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.request();
    }
}

impl Workers {
    /// Starts `count` threads, at least one. The watchdog notices one that hangs, whether or not it has ever
    /// served anybody.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread or no event loop.
    pub fn start(count: usize, watchdog: &Watchdog) -> io::Result<Self> {
        let stop = Stop::new();
        let workers = (0..count.max(1))
            .map(|number| Worker::start(number, &stop, watchdog))
            .collect::<io::Result<_>>()?;
        Ok(Self { crew: Arc::new(Crew { workers, stop }) })
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.crew.workers.len()
    }

    /// Serves a connection on the worker with the fewest. `serve` is called there with the connection, which
    /// has moved to the worker's event loop; `tasks` owns the task.
    ///
    /// # Errors
    ///
    /// When the connection cannot leave the event loop that accepted it. It is closed.
    pub fn serve<F, S>(&self, tasks: &Tasks, stream: TcpStream, serve: F) -> io::Result<()>
    where
        F: FnOnce(TcpStream) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let Some(worker) = self.crew.workers.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed))
        else {
            return Ok(());
        };
        worker.load.fetch_add(1, Ordering::Relaxed);
        let load = Load(Arc::clone(&worker.load));
        let stream = stream.into_std()?;
        tasks.spawn_on(&worker.runtime, async move {
            let _load = load;
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "connection closed: no room in the event loop"),
            }
        });
        Ok(())
    }
}

impl Worker {
    fn start(number: usize, stop: &Stop, watchdog: &Watchdog) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = stop.clone();
        let mut watch = watchdog.watch("session thread", number as u64);
        watch.begin(0);
        thread::Builder::new().name(format!("session-{number}")).spawn(move || {
            WATCH.set(Some(watch));
            runtime.block_on(async {
                tokio::select! {
                    () = stop.requested() => {}
                    () = keep_marking() => {}
                }
            });
            // What is left of its connections is dropped, which nobody waits for.
            WATCH.set(None);
        })?;
        Ok(Self { runtime: handle, load: Arc::default() })
    }
}

async fn keep_marking() {
    loop {
        mark(0);
        tokio::time::sleep(BEAT_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watchdog::WatchdogOptions;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn connections_are_spread_and_served() {
        let watchdog = Watchdog::start(WatchdogOptions::default(), |report| panic!("{report}")).unwrap();
        let workers = Workers::start(2, &watchdog).unwrap();
        let tasks = Tasks::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut threads = std::collections::BTreeSet::new();
        let mut open = Vec::new();
        for _ in 0..4 {
            let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let serve = |mut stream: TcpStream| async move {
                let name = thread::current().name().unwrap_or_default().to_owned();
                stream.write_all(name.as_bytes()).await.unwrap();
                // Until the peer leaves.
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
            };
            workers.serve(&tasks, accepted, serve).unwrap();
            let mut name = [0; "session-0".len()];
            dialled.read_exact(&mut name).await.unwrap();
            threads.insert(String::from_utf8(name.to_vec()).unwrap());
            open.push(dialled);
        }
        assert_eq!(threads.into_iter().collect::<Vec<_>>(), ["session-0", "session-1"]);
        drop(open);
        assert_eq!(tasks.drain(Duration::from_secs(10)).await, 0);
    }

    #[test]
    fn a_worker_that_hangs_before_its_first_connection_is_noticed() {
        let options =
            WatchdogOptions { tick: Duration::from_millis(100), patience: Duration::from_millis(2_000) };
        let (sender, reports) = mpsc::channel();
        let watchdog = Watchdog::start(options, move |report| drop(sender.send(report.to_string()))).unwrap();
        let workers = Workers::start(2, &watchdog).unwrap();
        let (release, held) = mpsc::channel::<()>();
        let tasks = Tasks::new();
        tasks.spawn_on(&workers.crew.workers[1].runtime, async move {
            // It holds the whole event loop.
            let _ = held.recv();
        });
        let report = reports.recv_timeout(Duration::from_secs(30)).expect("a report");
        assert_eq!(report, "session thread 1 made no progress for 2s (note 0)");
        drop(release);
    }
}
