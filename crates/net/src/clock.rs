//! The one place that reads the time.
//!
//! State machines take a [`Millis`] as an argument; whoever drives them asks a [`Clock`]. The [`Pulse`]
//! is a time that costs one atomic load, and the memory of whether the process stood still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread};

use crate::watchdog::Watchdog;

/// How often the pulse's thread stores the time. Coarse enough to cost nothing, fine enough for idle and
/// lease decisions, which are made in seconds.
pub const PULSE_PERIOD: Duration = Duration::from_millis(100);

/// Two ticks of the pulse further apart than this mean that the process stood still (`SIGSTOP`, a paused
/// machine, a starved host): what waits in the sockets may be older than anybody still wants to know.
pub const FREEZE_THRESHOLD: Duration = Duration::from_secs(3);

/// A point of monotonic time, in milliseconds since the process first asked for the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

impl Millis {
    /// The start of the process's time.
    pub const ZERO: Self = Self(0);

    /// The point that is `milliseconds` after the start.
    pub const fn new(milliseconds: u64) -> Self {
        Self(milliseconds)
    }

    /// Milliseconds since the start.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this point is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The point `duration` later, at most the end of time. Parts of a millisecond are dropped.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ms", self.0)
    }
}

/// Tells the time. All system clocks of a process share one start, so their [`Millis`] compare.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    System(Instant),
    /// Milliseconds that only [`Hands`] move.
    Set(Arc<AtomicU64>),
}

/// Moves a clock that was made by [`Clock::set_by_hand`].
#[derive(Clone, Debug)]
pub struct Hands(Arc<AtomicU64>);

impl Hands {
    /// Puts the clock `duration` forward.
    pub fn advance(&self, duration: Duration) {
        let step = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(step, Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The clock of the operating system.
    #[allow(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn system() -> Self {
        static START: OnceLock<Instant> = OnceLock::new();
        Self { source: Source::System(*START.get_or_init(Instant::now)) }
    }

    /// A clock that stands at `start` until its hands are moved: for tests and simulations.
    pub fn set_by_hand(start: Millis) -> (Self, Hands) {
        let milliseconds = Arc::new(AtomicU64::new(start.get()));
        (Self { source: Source::Set(Arc::clone(&milliseconds)) }, Hands(milliseconds))
    }

    /// The monotonic time. It goes on while the process is stopped.
    #[allow(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn now(&self) -> Millis {
        match &self.source {
            Source::System(start) => {
                let elapsed = Instant::now().saturating_duration_since(*start);
                Millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
            }
            Source::Set(milliseconds) => Millis(milliseconds.load(Ordering::Relaxed)),
        }
    }

    /// The monotonic time in nanoseconds since the start, for measuring short spans. A clock that is set
    /// by hand has only whole milliseconds.
    #[allow(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn nanoseconds(&self) -> u64 {
        match &self.source {
            Source::System(start) => {
                let elapsed = Instant::now().saturating_duration_since(*start);
                u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
            }
            Source::Set(milliseconds) => milliseconds.load(Ordering::Relaxed).saturating_mul(1_000_000),
        }
    }

    /// The time of day of the operating system, which may jump. Only for what people and peers read.
    #[allow(clippy::disallowed_methods, reason = "the clock is where time is read")]
    pub fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    /// [`Clock::wall`] in milliseconds since 1970; zero before that.
    pub fn wall_millis(&self) -> u64 {
        let since_epoch = self.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A coarse time that a thread stores every [`PULSE_PERIOD`], readable with one relaxed load, and the
/// record of when the process stood still.
///
/// A session that reads from its socket asks two questions before it answers what it read:
///
/// 1. `stalled_for(clock.now()) > FREEZE_THRESHOLD`: the process has just been continued and the pulse's
///    thread has not run yet;
/// 2. `freeze_epoch()` differs from the value that the session saw at its last read, and
///    `thawed_at()` is recent: the thread has run, this session is among the first to read after.
///
/// If either holds, the queries that it read may be older than the threshold.
#[derive(Clone, Debug)]
pub struct Pulse {
    beat: Arc<Beat>,
}

#[derive(Debug)]
struct Beat {
    now: AtomicU64,
    freezes: AtomicU64,
    /// Milliseconds of all freezes.
    frozen: AtomicU64,
    thawed_at: AtomicU64,
}

impl Beat {
    fn tick(&self, now: Millis) {
        let stood_still = now.since(Millis(self.now.load(Ordering::Relaxed)));
        if stood_still > FREEZE_THRESHOLD {
            let milliseconds = u64::try_from(stood_still.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                milliseconds,
                "the process stood still and goes on: it was stopped, or its machine was paused or starved"
            );
            self.frozen.fetch_add(milliseconds, Ordering::Relaxed);
            self.thawed_at.store(now.get(), Ordering::Relaxed);
            // Release: who sees the new epoch sees when the freeze ended.
            self.freezes.fetch_add(1, Ordering::Release);
        }
        self.now.store(now.get(), Ordering::Release);
    }
}

impl Pulse {
    /// A pulse at `now` that only [`Pulse::tick`] moves.
    pub fn new(now: Millis) -> Self {
        let beat = Beat {
            now: AtomicU64::new(now.get()),
            freezes: AtomicU64::new(0),
            frozen: AtomicU64::new(0),
            thawed_at: AtomicU64::new(0),
        };
        Self { beat: Arc::new(beat) }
    }

    /// A pulse that a thread of its own moves. The thread ends after the last clone is dropped.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread.
    pub fn start(clock: Clock) -> io::Result<Self> {
        Self::start_with(clock, || {})
    }

    /// As [`Pulse::start`], with a watchdog that notices if the thread stops. The thread in turn looks after the
    /// watchdog's: neither can hang unseen.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread.
    pub fn start_watched(clock: Clock, watchdog: &Watchdog) -> io::Result<Self> {
        let (mut watch, mut companion) = (watchdog.watch("pulse thread", 0), watchdog.companion());
        watch.begin(0);
        Self::start_with(clock, move || {
            watch.progress(0);
            companion.tick(PULSE_PERIOD);
        })
    }

    fn start_with(clock: Clock, each: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let pulse = Self::new(clock.now());
        let beat = Arc::downgrade(&pulse.beat);
        thread::Builder::new().name("pulse".into()).spawn(move || keep_beating(&beat, &clock, each))?;
        Ok(pulse)
    }

    /// Stores `now`; notes and logs a freeze if the last tick was too long ago.
    pub fn tick(&self, now: Millis) {
        self.beat.tick(now);
    }

    /// The time of the last tick: at most [`PULSE_PERIOD`] behind while the process runs.
    pub fn now(&self) -> Millis {
        Millis(self.beat.now.load(Ordering::Relaxed))
    }

    /// How long before `now` the last tick was.
    pub fn stalled_for(&self, now: Millis) -> Duration {
        now.since(self.now())
    }

    /// How many times the process stood still for longer than [`FREEZE_THRESHOLD`].
    pub fn freeze_epoch(&self) -> u64 {
        self.beat.freezes.load(Ordering::Acquire)
    }

    /// For how long the process stood still in all these times together.
    pub fn frozen_for(&self) -> Duration {
        Duration::from_millis(self.beat.frozen.load(Ordering::Relaxed))
    }

    /// When the pulse's thread noticed that the last freeze was over; [`Millis::ZERO`] before the first.
    pub fn thawed_at(&self) -> Millis {
        Millis(self.beat.thawed_at.load(Ordering::Relaxed))
    }

    /// Whether the process stands still up to `now`, or did until less than `grace` ago. What came meanwhile
    /// waits in the sockets, so nobody may be taken for silent yet.
    pub fn is_thawing(&self, now: Millis, grace: Duration) -> bool {
        self.stalled_for(now) > FREEZE_THRESHOLD
            || (self.freeze_epoch() > 0 && now.since(self.thawed_at()) < grace)
    }
}

fn keep_beating(beat: &Weak<Beat>, clock: &Clock, mut each: impl FnMut()) {
    loop {
        thread::sleep(PULSE_PERIOD);
        let Some(beat) = beat.upgrade() else { return };
        beat.tick(clock.now());
        each();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clocks_share_one_start_and_never_go_back() {
        let first = Clock::system();
        let second = Clock::system();
        let earlier = first.now();
        let later = second.now();
        assert!(later >= earlier);
        assert!(later.since(earlier) < Duration::from_secs(10));
    }

    #[test]
    fn a_clock_set_by_hand_moves_only_with_its_hands() {
        let (clock, hands) = Clock::set_by_hand(Millis::new(5));
        assert_eq!(clock.now(), Millis::new(5));
        hands.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), Millis::new(2_005));
        assert_eq!(clock.nanoseconds(), 2_005_000_000);
    }

    #[test]
    fn the_wall_clock_is_after_2020() {
        assert!(Clock::system().wall_millis() > 1_577_836_800_000);
    }

    #[test]
    fn spans_saturate_instead_of_wrapping() {
        assert_eq!(Millis::new(1).since(Millis::new(2)), Duration::ZERO);
        assert_eq!(Millis::new(u64::MAX).after(Duration::MAX), Millis::new(u64::MAX));
    }

    #[test]
    fn ticks_close_together_are_no_freeze() {
        let pulse = Pulse::new(Millis::ZERO);
        for tenth in 1..100 {
            pulse.tick(Millis::new(tenth * 100));
        }
        pulse.tick(Millis::new(9_900 + 3_000));
        assert_eq!(pulse.freeze_epoch(), 0);
        assert_eq!(pulse.now(), Millis::new(12_900));
    }

    #[test]
    fn a_gap_of_more_than_three_seconds_counts_as_one_freeze() {
        let pulse = Pulse::new(Millis::ZERO);
        pulse.tick(Millis::new(100));
        assert_eq!(pulse.stalled_for(Millis::new(3_201)), Duration::from_millis(3_101));
        pulse.tick(Millis::new(3_201));
        pulse.tick(Millis::new(3_301));
        assert_eq!(pulse.freeze_epoch(), 1);
        assert_eq!(pulse.frozen_for(), Duration::from_millis(3_101));
        assert_eq!(pulse.thawed_at(), Millis::new(3_201));
        assert_eq!(pulse.stalled_for(Millis::new(3_301)), Duration::ZERO);
    }

    #[test]
    fn a_process_thaws_from_the_end_of_its_freeze_for_the_grace() {
        let grace = Duration::from_secs(2);
        let pulse = Pulse::new(Millis::ZERO);
        pulse.tick(Millis::new(100));
        assert!(!pulse.is_thawing(Millis::new(1_000), grace));
        assert!(pulse.is_thawing(Millis::new(5_000), grace), "before the pulse has noticed");
        pulse.tick(Millis::new(5_050));
        assert!(pulse.is_thawing(Millis::new(7_049), grace));
        pulse.tick(Millis::new(7_000));
        assert!(!pulse.is_thawing(Millis::new(7_050), grace));
    }

    #[test]
    fn a_started_pulse_follows_its_clock() {
        let (clock, hands) = Clock::set_by_hand(Millis::ZERO);
        let pulse = Pulse::start(clock).expect("a thread");
        hands.advance(Duration::from_secs(60));
        let system = Clock::system();
        let deadline = system.now().after(Duration::from_secs(20));
        while pulse.freeze_epoch() == 0 {
            assert!(system.now() < deadline, "the pulse's thread did not tick");
            thread::yield_now();
        }
        assert_eq!(pulse.now(), Millis::new(60_000));
        assert_eq!(pulse.freeze_epoch(), 1);
    }
}
