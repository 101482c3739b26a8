//! Which connections are served, and which one goes when another comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use waypost_net::accept::Slot;
use waypost_net::clock::{Clock, Millis};
use waypost_net::tasks::Stop;
use waypost_net::throttle::Throttle;

/// One line in this time about connections that gave way.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

static GAVE_WAY: Throttle = Throttle::new(COMPLAINT_PERIOD);

/// How much a peer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once: a few scrapers, a few people, and probes.
    pub(crate) places: usize,
    /// How long a request may take to arrive, from the connection or its first byte on.
    pub(crate) head: Duration,
    /// How long nothing may move otherwise: a scraper comes every minute at least, and one that reads nothing holds
    /// memory.
    pub(crate) silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { places: 64, head: Duration::from_secs(10), silence: Duration::from_secs(75) }
    }
}

/// The connections that are served.
#[derive(Debug)]
pub(crate) struct Places {
    taken: Mutex<HashMap<u64, Taken>>,
    limits: Limits,
    clock: Clock,
}

#[derive(Debug)]
struct Taken {
    turn: Arc<Turn>,
    /// Given back as soon as the connection has to go, not when it has gone.
    _slot: Slot,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(crate) turn: Arc<Turn>,
}

/// What one connection is at.
#[derive(Debug)]
pub(crate) struct Turn {
    at: Mutex<(Phase, Millis)>,
    limits: Limits,
    clock: Clock,
    /// It has to give way.
    pub(crate) leave: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A request has begun to arrive, or the first is awaited, since then.
    Arriving,
    /// The last request was answered; bytes last moved then.
    Resting,
    /// A request is worked on since then.
    Answering,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), limits, clock: Clock::system() })
    }

    /// Takes a place for connection `number`. If there is none, the connection that has been idle for longest gives
    /// way; if none is idle, the one that has been answered for longest.
    pub(crate) fn take(self: &Arc<Self>, number: u64, slot: Slot) -> Place {
        let turn = Arc::new(Turn::new(self.limits, self.clock.clone()));
        let mut taken = self.taken();
        if taken.len() >= self.limits.places {
            // Arriving is idle, too: a request that is long in coming is no better than none.
            let order = |turn: &Turn, number: u64| {
                let (phase, since) = *turn.at();
                (phase == Phase::Answering, since, number)
            };
            let oldest = taken.iter().map(|(number, taken)| order(&taken.turn, *number)).min();
            if let Some(gone) = oldest.and_then(|(_, _, number)| taken.remove(&number)) {
                gone.turn.leave.request();
                if let Some(suppressed) = GAVE_WAY.pass(self.clock.now()) {
                    tracing::warn!(
                        places = self.limits.places,
                        suppressed,
                        "all connections of the admin side are taken: the one that was idle for longest gave way"
                    );
                }
            }
        }
        taken.insert(number, Taken { turn: Arc::clone(&turn), _slot: slot });
        Place { places: Arc::clone(self), number, turn }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u64, Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(&self.number);
    }
}

impl Turn {
    fn new(limits: Limits, clock: Clock) -> Self {
        let at = Mutex::new((Phase::Arriving, clock.now()));
        Self { at, limits, clock, leave: Stop::new() }
    }

    fn at(&self) -> MutexGuard<'_, (Phase, Millis)> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes were read. Says whether they begin a request.
    pub(crate) fn read(&self) -> bool {
        let mut at = self.at();
        let begins = at.0 == Phase::Resting;
        if begins {
            *at = (Phase::Arriving, self.clock.now());
        }
        begins
    }

    /// Bytes were written.
    pub(crate) fn wrote(&self) {
        let mut at = self.at();
        if at.0 != Phase::Arriving {
            at.1 = self.clock.now();
        }
    }

    /// A whole request has arrived.
    pub(crate) fn begin(&self) {
        *self.at() = (Phase::Answering, self.clock.now());
    }

    /// Its answer is made; what follows is to write it.
    pub(crate) fn end(&self) {
        *self.at() = (Phase::Resting, self.clock.now());
    }

    /// How long it may go on like this; zero if it has gone on for too long.
    pub(crate) fn left(&self) -> Duration {
        let (phase, since) = *self.at();
        let limit = match phase {
            Phase::Arriving => self.limits.head,
            Phase::Resting | Phase::Answering => self.limits.silence,
        };
        limit.saturating_sub(self.clock.now().since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_time_to_arrive_that_bytes_do_not_extend() {
        let limits = Limits { places: 1, head: Duration::from_secs(10), silence: Duration::from_secs(75) };
        let (clock, hands) = Clock::set_by_hand(Millis::ZERO);
        let turn = Turn::new(limits, clock);
        assert_eq!(turn.left(), limits.head, "the first request is awaited from the beginning");
        for _ in 0..9 {
            hands.advance(Duration::from_secs(1));
            assert!(!turn.read());
            turn.wrote();
        }
        assert_eq!(turn.left(), Duration::from_secs(1));
        turn.begin();
        turn.end();
        hands.advance(Duration::from_secs(70));
        assert_eq!(turn.left(), Duration::from_secs(5));
        turn.wrote();
        assert_eq!(turn.left(), limits.silence);
        hands.advance(Duration::from_secs(70));
        assert!(turn.read());
        assert_eq!(turn.left(), limits.head, "the next request has begun");
        hands.advance(Duration::from_secs(11));
        assert_eq!(turn.left(), Duration::ZERO);
    }
}
