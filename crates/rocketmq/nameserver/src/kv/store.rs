//! The thread that makes KV changes durable, and the handle to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use waypost_net::clock::Clock;
use waypost_net::watchdog::{BEAT_PERIOD, Watch};

use waypost_net::durable::{self, Disk};

use waypost_rocketmq_access::audit::RateLimit;

use super::error::{KvError, KvOpenError};
use super::load::{KvReport, Loaded, backup_of, load};
use super::snapshot::{KvChange, KvSnapshot};
use super::{KvLimits, KvOptions};

/// Changes that may wait for the disk. One takes milliseconds with those that wait beside it: so
/// many wait only when the disk hangs.
const WAITING_MAX: usize = 4_096;
/// Changes that share one write: bounds how long the first of them waits.
const TOGETHER_MAX: usize = 1_024;

/// A disk that stays full is worth one line a minute.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

/// Is told the changes of each write, on the writing thread, once they are durable and visible in
/// the snapshot and before they are answered: what it waits for is done when a put is answered.
pub type OnChange = Box<dyn FnMut(&[KvChange]) + Send>;

/// Where a change is answered. The receiver may be gone.
type Reply = oneshot::Sender<Result<(), KvError>>;

/// What the store has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KvStatistics {
    /// Files written.
    pub writes: u64,
    /// Writes that failed.
    pub failures: u64,
    /// Changes that are durable.
    pub changes: u64,
}

/// The KV configuration. Reads take what is durable and never wait for the disk.
#[derive(Debug)]
pub struct KvStore {
    shared: Arc<Shared>,
    limits: KvLimits,
    jobs: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    snapshot: RwLock<Arc<KvSnapshot>>,
    writes: AtomicU64,
    failures: AtomicU64,
    changes: AtomicU64,
}

#[derive(Debug)]
struct Job {
    namespace: String,
    key: String,
    wanted: Wanted,
    reply: Reply,
}

#[derive(Debug)]
enum Wanted {
    Value(Option<String>),
    Gone,
}

impl KvStore {
    /// Reads the file and starts the writing thread. A missing file is an empty table; one that
    /// cannot be read, or a folder that cannot be written, is reported and only makes changes fail.
    ///
    /// # Errors
    ///
    /// A damaged file, a backup that was asked for and cannot be used, no thread.
    pub fn open(options: KvOptions, on_change: OnChange) -> Result<(Self, KvReport), KvOpenError> {
        Self::open_on(Box::new(durable::System), options, None, on_change)
    }

    /// As [`KvStore::open`], with a watch that notices if the thread would not wake for a change. One that waits for
    /// the disk is no stall: a disk that hangs costs changes only.
    ///
    /// # Errors
    ///
    /// As [`KvStore::open`].
    pub fn open_watched(
        options: KvOptions,
        watch: Watch,
        on_change: OnChange,
    ) -> Result<(Self, KvReport), KvOpenError> {
        Self::open_on(Box::new(durable::System), options, Some(watch), on_change)
    }

    fn open_on(
        disk: Box<dyn Disk + Send>,
        options: KvOptions,
        watch: Option<Watch>,
        on_change: OnChange,
    ) -> Result<(Self, KvReport), KvOpenError> {
        let Loaded { table, report, unreadable, differs } = load(&options)?;
        let table = Arc::new(table);
        let shared = Arc::new(Shared { snapshot: RwLock::new(Arc::clone(&table)), ..Shared::default() });
        let unreadable = unreadable.map(|reason| KvError::Unreadable { path: report.path.clone(), reason });
        let writer = Writer {
            disk,
            shared: Arc::clone(&shared),
            limits: options.limits,
            backup: backup_of(&report.path),
            path: report.path.clone(),
            unreadable,
            durable: table,
            differs,
            on_change,
            clock: Clock::system(),
            complaints: RateLimit::new(1, COMPLAINT_PERIOD),
        };
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let thread = thread::Builder::new()
            .name("kv-writer".to_owned())
            .spawn(move || writer.run(&waiting, watch))
            .map_err(KvOpenError::Thread)?;
        let store = Self {
            shared,
            limits: options.limits,
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        };
        Ok((store, report))
    }

    /// What is durable now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<KvSnapshot> {
        Arc::clone(&self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was done so far.
    #[must_use]
    pub fn statistics(&self) -> KvStatistics {
        KvStatistics {
            writes: self.shared.writes.load(Ordering::Relaxed),
            failures: self.shared.failures.load(Ordering::Relaxed),
            changes: self.shared.changes.load(Ordering::Relaxed),
        }
    }

    /// Sets a key (request 100). A missing value makes the key unfindable (spec 1.3). Does not
    /// wait: `reply` hears when the change is durable, or why it was refused.
    pub fn put(&self, namespace: Option<&str>, key: Option<&str>, value: Option<&str>, reply: Reply) {
        let (namespace, key) = match self.names(namespace, key) {
            Ok(names) => names,
            Err(refusal) => return answer(reply, Err(refusal)),
        };
        let (length, limit) = (value.map_or(0, str::len), self.limits.value);
        if length > limit {
            return answer(reply, Err(KvError::ValueTooLong { length, limit }));
        }
        self.send(Job { namespace, key, wanted: Wanted::Value(value.map(str::to_owned)), reply });
    }

    /// Removes a key (request 102). One that is missing, or named by nothing, is a success.
    pub fn delete(&self, namespace: Option<&str>, key: Option<&str>, reply: Reply) {
        match (namespace, key) {
            (Some(namespace), Some(key)) => {
                let (namespace, key) = (namespace.to_owned(), key.to_owned());
                self.send(Job { namespace, key, wanted: Wanted::Gone, reply });
            }
            _ => answer(reply, Ok(())),
        }
    }

    /// Takes no further changes, and waits until those that were taken are answered.
    pub fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the KV configuration had failed");
        }
    }

    fn names(&self, namespace: Option<&str>, key: Option<&str>) -> Result<(String, String), KvError> {
        match (namespace, key) {
            (Some(namespace), Some(key)) if !namespace.is_empty() && !key.is_empty() => {
                let (length, limit) = (namespace.len().max(key.len()), self.limits.name);
                if length > limit {
                    return Err(KvError::NameTooLong { length, limit });
                }
                Ok((namespace.to_owned(), key.to_owned()))
            }
            _ => Err(KvError::MissingName),
        }
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(jobs) = jobs.as_ref() else { return answer(job.reply, Err(KvError::Closed)) };
        let (job, refusal) = match jobs.try_send(job) {
            Ok(()) => return,
            Err(TrySendError::Full(job)) => (job, KvError::Busy),
            Err(TrySendError::Disconnected(job)) => (job, KvError::Closed),
        };
        answer(job.reply, Err(refusal));
    }
}

fn answer(reply: Reply, result: Result<(), KvError>) {
    // Whoever asked may have gone; the change stands all the same.
    let _ = reply.send(result);
}

struct Writer {
    disk: Box<dyn Disk + Send>,
    shared: Arc<Shared>,
    limits: KvLimits,
    path: std::path::PathBuf,
    backup: std::path::PathBuf,
    /// Why nothing may be written.
    unreadable: Option<KvError>,
    /// What the file holds, unless `differs`.
    durable: Arc<KvSnapshot>,
    /// The file may hold something else: a write failed on the way.
    differs: bool,
    on_change: OnChange,
    clock: Clock,
    complaints: RateLimit,
}

impl Writer {
    fn run(mut self, waiting: &Receiver<Job>, mut watch: Option<Watch>) {
        loop {
            if let Some(watch) = &mut watch {
                watch.progress(0);
            }
            let first = match waiting.recv_timeout(BEAT_PERIOD) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // What follows waits for the disk.
            if let Some(watch) = &mut watch {
                watch.end();
            }
            let mut together = vec![first];
            together.extend(waiting.try_iter().take(TOGETHER_MAX - 1));
            self.commit(together);
        }
    }

    /// Makes changes durable together and answers them in order.
    fn commit(&mut self, jobs: Vec<Job>) {
        let mut next = KvSnapshot::clone(&self.durable);
        let mut changes = Vec::new();
        let mut accepted = Vec::new();
        for job in jobs {
            match self.apply(&mut next, &job) {
                Ok(change) => {
                    changes.extend(change);
                    accepted.push(job.reply);
                }
                Err(refusal) => answer(job.reply, Err(refusal)),
            }
        }
        let result = self.make_durable(next, &changes);
        for reply in accepted {
            answer(reply, result.clone());
        }
    }

    /// Applies one change to the table to be; gives it if it changes anything.
    fn apply(&self, next: &mut KvSnapshot, job: &Job) -> Result<Option<KvChange>, KvError> {
        let Job { namespace, key, wanted, .. } = job;
        let change = |value: Option<&str>| KvChange {
            namespace: Arc::from(namespace.as_str()),
            key: Arc::from(key.as_str()),
            value: value.map(Arc::from),
        };
        let Wanted::Value(value) = wanted else {
            return Ok(next.remove(namespace, key).then(|| change(None)));
        };
        let value = value.as_deref();
        if next.holds(namespace, key, value) {
            return Ok(None);
        }
        let KvLimits { entries, total, name: _, value: _ } = self.limits;
        // What replaces a longer value always fits, also above the limit.
        let grows = next.entries_with(namespace, key) > next.keys() + next.namespaces().count();
        if grows && next.entries_with(namespace, key) > entries {
            return Err(KvError::Full { what: "keys and namespaces (kvEntriesMax)", limit: entries });
        }
        let bytes = next.bytes_with(namespace, key, value);
        if bytes > total && bytes > next.bytes() {
            return Err(KvError::Full { what: "bytes (kvTotalMax)", limit: total });
        }
        next.insert(namespace, key, value);
        Ok(Some(change(value)))
    }

    fn make_durable(&mut self, next: KvSnapshot, changes: &[KvChange]) -> Result<(), KvError> {
        if let Some(refusal) = &self.unreadable {
            return Err(refusal.clone());
        }
        if changes.is_empty() && !self.differs {
            return Ok(());
        }
        let content = next.to_file_content();
        if let Err(error) = durable::replace_on(&*self.disk, &self.path, &content, Some(&self.backup)) {
            self.differs = true;
            self.shared.failures.fetch_add(1, Ordering::Relaxed);
            if let Some(suppressed) = self.complaints.admit(self.clock.now()) {
                tracing::error!(%error, suppressed, "the KV configuration could not be written");
            }
            return Err(KvError::NotDurable { reason: error.to_string() });
        }
        self.differs = false;
        self.durable = Arc::new(next);
        *self.shared.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.durable);
        self.shared.writes.fetch_add(1, Ordering::Relaxed);
        self.shared.changes.fetch_add(u64::try_from(changes.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if !changes.is_empty() {
            (self.on_change)(changes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
