//! Notices that something which should go on does not.
//!
//! Whoever must not hang owns a [`Watch`] and marks where its work begins and ends. A thread of its own
//! counts ticks; a watch that stays busy without progress for too many of them is reported, once per stall.
//! The thread counts its own ticks and not the clock, so that a stopped and continued process is no stall:
//! the thread was stopped as well.
//!
//! A thread that waits for work hangs as well if it would not wake for it. So threads that serve never count as
//! waiting: they wake every [`BEAT_PERIOD`] and mark progress. The watchdog's own thread is looked after by that
//! of the pulse ([`Pulse::start_watched`](crate::clock::Pulse::start_watched)). A process of which every thread
//! stands still needs somebody outside, who is told by [`Vitals`].

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, io, thread};

/// How often the watches are looked at by default.
pub const DEFAULT_TICK: Duration = Duration::from_millis(500);

/// How long busy without progress is a stall by default.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(5);

/// How often a thread that waits for work marks that it would wake for it.
pub const BEAT_PERIOD: Duration = Duration::from_millis(500);

/// What a watchdog goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchdogOptions {
    /// Time between two looks; at least a millisecond.
    pub tick: Duration,
    /// Busy without progress for this long is a stall; noticed at the next look.
    pub patience: Duration,
}

impl Default for WatchdogOptions {
    fn default() -> Self {
        Self { tick: DEFAULT_TICK, patience: DEFAULT_PATIENCE }
    }
}

/// The thread that looks. It ends when this and all clones are dropped.
#[derive(Clone, Debug)]
pub struct Watchdog {
    kennel: Arc<Kennel>,
}

/// What is done about a stall.
type OnStall = Box<dyn FnMut(&StallReport) + Send>;

struct Kennel {
    watched: Mutex<Vec<Watched>>,
    tick: Duration,
    patience: Duration,
    on_stall: Mutex<OnStall>,
    looks: AtomicU64,
    /// How many parties were stuck at the last look.
    stuck: AtomicUsize,
}

impl fmt::Debug for Kennel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watched, tick, patience, on_stall: _, looks, stuck } = self;
        formatter
            .debug_struct("Kennel")
            .field("watched", watched)
            .field("tick", tick)
            .field("patience", patience)
            .field("looks", looks)
            .field("stuck", stuck)
            .finish_non_exhaustive()
    }
}

/// What the watchdog knows of a watch.
#[derive(Debug)]
struct Watched {
    state: Arc<State>,
    seen: u64,
    stuck_ticks: u32,
}

/// On a cache line of its own: watches of different threads are written often.
#[derive(Debug)]
#[repr(align(64))]
struct State {
    /// Odd while busy; every change is progress.
    beat: AtomicU64,
    note: AtomicI32,
    gone: AtomicBool,
    party: &'static str,
    number: u64,
}

/// The marks of one party. One thread at a time may set them; they are relaxed stores.
#[derive(Debug)]
pub struct Watch {
    state: Arc<State>,
    beat: u64,
}

/// A party that is busy and makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallReport {
    /// What kind of party it is.
    pub party: &'static str,
    /// Which one of them, for example the number of the connection.
    pub number: u64,
    /// The note of its last [`Watch::begin`] or [`Watch::progress`], for example a request code.
    pub note: i32,
    /// For how long it stood still, in the watchdog's ticks.
    pub stalled_for: Duration,
}

impl fmt::Display for StallReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { party, number, note, stalled_for } = self;
        write!(formatter, "{party} {number} made no progress for {stalled_for:?} (note {note})")
    }
}

impl Watch {
    /// Work begins, at `note`.
    #[inline]
    pub fn begin(&mut self, note: i32) {
        self.state.note.store(note, Ordering::Relaxed);
        self.set(self.beat.wrapping_add(1) | 1);
    }

    /// Work goes on, at `note`.
    #[inline]
    pub fn progress(&mut self, note: i32) {
        self.state.note.store(note, Ordering::Relaxed);
        self.set(self.beat.wrapping_add(2) | 1);
    }

    /// Work has ended: what follows is waiting, which may take forever.
    #[inline]
    pub fn end(&mut self) {
        self.set(self.beat.wrapping_add(2) & !1);
    }

    #[inline]
    fn set(&mut self, beat: u64) {
        self.beat = beat;
        self.state.beat.store(beat, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The watchdog removes it at its next look: leaving takes no lock.
        self.state.gone.store(true, Ordering::Relaxed);
    }
}

/// Tells whether everything that is watched goes on, for somebody outside the process who would end it.
#[derive(Debug)]
pub struct Vitals {
    kennel: Weak<Kennel>,
    looks: u64,
}

impl Vitals {
    /// Whether the watchdog has looked since the last time that this was asked and nobody was stuck then; `None`
    /// once there is no watchdog any more.
    pub fn are_good(&mut self) -> Option<bool> {
        let kennel = self.kennel.upgrade()?;
        let looks = kennel.looks.load(Ordering::Acquire);
        let has_looked = std::mem::replace(&mut self.looks, looks) != looks;
        Some(has_looked && kennel.stuck.load(Ordering::Relaxed) == 0)
    }
}

/// Looks after the watchdog's own thread, in ticks of another one.
#[derive(Debug)]
pub(crate) struct Companion {
    kennel: Weak<Kennel>,
    looks: u64,
    without_look: Duration,
}

impl Companion {
    /// One tick, `period` after the last one.
    pub(crate) fn tick(&mut self, period: Duration) {
        let Some(kennel) = self.kennel.upgrade() else { return };
        let looks = kennel.looks.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.looks, looks) != looks {
            self.without_look = Duration::ZERO;
            return;
        }
        let before = self.without_look;
        self.without_look = before.saturating_add(period);
        if before < kennel.patience && self.without_look >= kennel.patience {
            kennel.report(&StallReport {
                party: "watchdog thread",
                number: 0,
                note: 0,
                stalled_for: self.without_look,
            });
        }
    }
}

impl Watchdog {
    /// Starts the thread. It calls `on_stall` for each stall; a server's closure logs and aborts.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread.
    pub fn start(
        options: WatchdogOptions,
        on_stall: impl FnMut(&StallReport) + Send + 'static,
    ) -> io::Result<Self> {
        let watchdog = Self::asleep(options, on_stall);
        let (kennel, tick) = (Arc::downgrade(&watchdog.kennel), watchdog.kennel.tick);
        thread::Builder::new().name("watchdog".into()).spawn(move || keep_looking(&kennel, tick))?;
        Ok(watchdog)
    }

    fn asleep(options: WatchdogOptions, on_stall: impl FnMut(&StallReport) + Send + 'static) -> Self {
        Self {
            kennel: Arc::new(Kennel {
                watched: Mutex::default(),
                tick: options.tick.max(Duration::from_millis(1)),
                patience: options.patience,
                on_stall: Mutex::new(Box::new(on_stall)),
                looks: AtomicU64::new(0),
                stuck: AtomicUsize::new(0),
            }),
        }
    }

    /// What tells somebody outside whether everything goes on.
    pub fn vitals(&self) -> Vitals {
        Vitals { kennel: Arc::downgrade(&self.kennel), looks: 0 }
    }

    /// What another thread looks after the watchdog with.
    pub(crate) fn companion(&self) -> Companion {
        Companion { kennel: Arc::downgrade(&self.kennel), looks: 0, without_look: Duration::ZERO }
    }

    /// Watches one more party, until its [`Watch`] is dropped. It starts as waiting.
    pub fn watch(&self, party: &'static str, number: u64) -> Watch {
        let state = Arc::new(State {
            beat: AtomicU64::new(0),
            note: AtomicI32::new(0),
            gone: AtomicBool::new(false),
            party,
            number,
        });
        let watched = Watched { state: Arc::clone(&state), seen: 0, stuck_ticks: 0 };
        self.kennel.watched.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
        Watch { state, beat: 0 }
    }

    /// How many parties were watched at the last look or have come since.
    pub fn watched(&self) -> usize {
        self.kennel.watched.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn keep_looking(kennel: &Weak<Kennel>, tick: Duration) {
    loop {
        thread::sleep(tick);
        let Some(kennel) = kennel.upgrade() else { return };
        for report in kennel.look() {
            kennel.report(&report);
        }
    }
}

/// Marks progress from a task on an event loop, until it is dropped: a loop that hangs no longer runs the task, and
/// one that never runs has hung from the beginning.
pub fn keep_beating(mut watch: Watch) -> impl Future<Output = ()> + Send {
    watch.begin(0);
    async move {
        loop {
            watch.progress(0);
            tokio::time::sleep(BEAT_PERIOD).await;
        }
    }
}

/// Waits for `awaited`, and shows meanwhile that this thread would go on.
pub async fn beating<T>(mut watch: Watch, awaited: impl Future<Output = T>) -> T {
    let mut awaited = pin!(awaited);
    loop {
        watch.progress(0);
        if let Ok(value) = tokio::time::timeout(BEAT_PERIOD, &mut awaited).await {
            return value;
        }
    }
}

impl Kennel {
    /// One tick: forgets who has gone and tells who has been stuck for exactly as long as patience lasts.
    fn look(&self) -> Vec<StallReport> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|watched| !watched.state.gone.load(Ordering::Relaxed));
        if watched.len() < watched.capacity() / 4 {
            watched.shrink_to_fit();
        }
        let ticks = self.patience.as_nanos().div_ceil(self.tick.as_nanos().max(1));
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).max(1);
        let reports = watched.iter_mut().filter_map(|watched| watched.look(self.tick, ticks)).collect();
        let stuck = watched.iter().filter(|watched| watched.stuck_ticks >= ticks).count();
        self.stuck.store(stuck, Ordering::Relaxed);
        // Release: who sees the look sees what it found.
        self.looks.fetch_add(1, Ordering::Release);
        reports
    }

    fn report(&self, report: &StallReport) {
        // Whoever holds it is telling of another stall already.
        if let Ok(mut on_stall) = self.on_stall.try_lock() {
            on_stall(report);
        }
    }
}

impl Watched {
    fn look(&mut self, tick: Duration, ticks: u32) -> Option<StallReport> {
        let beat = self.state.beat.load(Ordering::Relaxed);
        if beat.is_multiple_of(2) || beat != self.seen {
            self.seen = beat;
            self.stuck_ticks = 0;
            return None;
        }
        self.stuck_ticks = self.stuck_ticks.saturating_add(1);
        (self.stuck_ticks == ticks).then(|| StallReport {
            party: self.state.party,
            number: self.state.number,
            note: self.state.note.load(Ordering::Relaxed),
            stalled_for: tick.saturating_mul(ticks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::sync::mpsc;

    const TICK: Duration = Duration::from_millis(500);

    fn looks(watchdog: &Watchdog, count: u32) -> Vec<StallReport> {
        (0..count).flat_map(|_| watchdog.kennel.look()).collect()
    }

    fn sleeping() -> Watchdog {
        Watchdog::asleep(WatchdogOptions { tick: TICK, patience: TICK * 10 }, |_| {})
    }

    #[test]
    fn a_busy_party_without_progress_is_reported_once_with_its_place() {
        let watchdog = sleeping();
        let mut watch = watchdog.watch("session", 42);
        watch.begin(103);
        assert_eq!(looks(&watchdog, 10), []);
        let reports = looks(&watchdog, 100);
        assert_eq!(reports.len(), 1);
        assert_eq!(
            reports[0].to_string(),
            "session 42 made no progress for 5s (note 103)",
            "it says who stood where"
        );
    }

    #[test]
    fn waiting_is_no_stall() {
        let watchdog = sleeping();
        let mut watch = watchdog.watch("session", 1);
        assert_eq!(looks(&watchdog, 100), []);
        watch.begin(1);
        looks(&watchdog, 9);
        watch.end();
        assert_eq!(looks(&watchdog, 100), []);
    }

    #[test]
    fn progress_and_new_work_start_the_patience_anew() {
        let watchdog = sleeping();
        let mut watch = watchdog.watch("table", 1);
        watch.begin(1);
        for note in 0..20 {
            assert_eq!(looks(&watchdog, 10), []);
            watch.progress(note);
        }
        for note in 0..20 {
            assert_eq!(looks(&watchdog, 10), []);
            watch.end();
            watch.begin(note);
        }
        // Work that begins without an end of the last is new work too.
        looks(&watchdog, 10);
        watch.begin(7);
        assert_eq!(looks(&watchdog, 10), []);
        assert_eq!(looks(&watchdog, 1).len(), 1);
    }

    #[test]
    fn each_stall_of_a_party_is_reported() {
        let watchdog = sleeping();
        let mut watch = watchdog.watch("session", 1);
        for note in 1..=2 {
            watch.begin(note);
            let notes: Vec<i32> = looks(&watchdog, 30).iter().map(|report| report.note).collect();
            assert_eq!(notes, [note]);
            watch.end();
        }
    }

    #[test]
    fn a_party_that_is_gone_is_forgotten_even_if_it_was_busy() {
        let watchdog = sleeping();
        let mut watch = watchdog.watch("session", 1);
        watch.begin(1);
        assert_eq!(watchdog.watched(), 1);
        drop(watch);
        assert_eq!(looks(&watchdog, 100), []);
        assert_eq!(watchdog.watched(), 0);
    }

    #[test]
    fn vitals_are_good_only_after_a_look_that_found_nobody_stuck() {
        let watchdog = sleeping();
        let mut vitals = watchdog.vitals();
        assert_eq!(vitals.are_good(), Some(false), "nobody has looked");
        let mut watch = watchdog.watch("session", 1);
        watch.begin(1);
        looks(&watchdog, 10);
        assert_eq!(vitals.are_good(), Some(true), "busy, but patience lasts");
        assert_eq!(vitals.are_good(), Some(false), "nobody has looked since");
        looks(&watchdog, 1);
        assert_eq!(vitals.are_good(), Some(false), "it is stuck");
        looks(&watchdog, 100);
        assert_eq!(vitals.are_good(), Some(false), "it still is");
        watch.progress(1);
        looks(&watchdog, 1);
        assert_eq!(vitals.are_good(), Some(true));
        drop(watchdog);
        assert_eq!(vitals.are_good(), None);
    }

    #[test]
    fn a_watchdog_that_does_not_look_is_reported_once_by_its_companion() {
        let (sender, reports) = mpsc::channel();
        let options = WatchdogOptions { tick: TICK, patience: TICK * 10 };
        let watchdog =
            Watchdog::asleep(options, move |report: &StallReport| drop(sender.send(report.clone())));
        let mut companion = watchdog.companion();
        for _ in 0..100 {
            looks(&watchdog, 1);
            (0..49).for_each(|_| companion.tick(TICK / 5));
        }
        assert_eq!(reports.try_recv(), Err(mpsc::TryRecvError::Empty));
        (0..500).for_each(|_| companion.tick(TICK / 5));
        let told: Vec<_> = reports.try_iter().map(|report| report.to_string()).collect();
        assert_eq!(told, ["watchdog thread 0 made no progress for 5s (note 0)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_loop_that_runs_makes_progress() {
        let watchdog = sleeping();
        let mut beating = Box::pin(keep_beating(watchdog.watch("event loop", 0)));
        for _ in 0..100 {
            let second = tokio::time::timeout(Duration::from_secs(1), &mut beating).await;
            assert!(second.is_err(), "it never ends");
            assert_eq!(looks(&watchdog, 2), []);
        }
        assert_eq!(looks(&watchdog, 100).len(), 1, "the loop has not run since");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_long_makes_progress() {
        let watchdog = sleeping();
        let awaited = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(looks(&watchdog, 2), []);
            }
            7
        };
        assert_eq!(beating(watchdog.watch("main thread", 0), awaited).await, 7);
        assert_eq!(looks(&watchdog, 100), [], "it waits no more");
    }

    #[test]
    fn the_thread_reports_and_ends_with_its_owner() {
        let (sender, reports) = mpsc::channel();
        let options = WatchdogOptions { tick: Duration::from_millis(5), patience: Duration::from_millis(20) };
        let watchdog = Watchdog::start(options, move |report| drop(sender.send(report.clone()))).unwrap();
        let mut watch = watchdog.watch("session", 7);
        watch.begin(9);
        let report = reports.recv_timeout(Duration::from_secs(20)).expect("a report");
        assert_eq!((report.number, report.note), (7, 9));
        drop((watch, watchdog));
        let clock = Clock::system();
        let deadline = clock.now().after(Duration::from_secs(20));
        while !matches!(reports.try_recv(), Err(mpsc::TryRecvError::Disconnected)) {
            assert!(clock.now() < deadline, "the thread still lives");
            thread::yield_now();
        }
    }
}
