//! How one name server stands, by everything that the agent says to it: brokers' frames, clients' questions, and
//! questions of the agent's own.
//!
//! 1. Without any news it is unknown.
//! 2. It is silent once something has waited for its answer for [`SILENT_AFTER`] and nothing else was answered since:
//!    a server that is busy with one large frame answers others.
//! 3. It is silent or refusing if the agent's own question failed so; until such a question is answered.
//! 4. Else it is healthy.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use waypost_net::clock::Millis;
use waypost_net::dialer::DialError;
use waypost_rocketmq_discovery::health::Fault;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::response;

/// After which time without any answer a server counts as silent: far above what a busy one takes, below the 3 s
/// that clients wait.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// After which time something that waits makes the agent ask for itself.
const DOUBT_AFTER: Duration = Duration::from_millis(500);

/// How a name server stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Nothing was heard of it yet.
    #[default]
    Unknown,
    /// It answers.
    Healthy,
    /// It takes questions and answers none, or its address takes no connection and refuses none.
    Silent,
    /// It refuses the connection, closes it, or answers that it will not.
    Refusing,
}

impl State {
    /// All, in the order of metrics.
    pub(crate) const ALL: [Self; 4] = [Self::Unknown, Self::Healthy, Self::Silent, Self::Refusing];

    /// A short fixed name for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Silent => "silent",
            Self::Refusing => "refusing",
        }
    }
}

/// Why a question of the agent's own was not answered as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) state: State,
    pub(crate) fault: Fault,
    /// For people.
    pub(crate) what: String,
}

impl Failure {
    /// There is no answer.
    pub(crate) fn of_error(error: &CallError) -> Self {
        let (state, fault) = match error {
            CallError::Connect(DialError::Refused { .. }) => (State::Refusing, Fault::Connect),
            CallError::Connect(
                DialError::TimedOut { .. }
                | DialError::TlsTimedOut { .. }
                | DialError::UnknownName { .. }
                | DialError::Connect { .. },
            ) => (State::Silent, Fault::Connect),
            // TLS: somebody is there and does not agree.
            CallError::Connect(_) => (State::Refusing, Fault::Connect),
            CallError::TimedOut { .. } | CallError::Full { .. } => (State::Silent, Fault::Silent),
            CallError::Broken { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => {
                (State::Silent, Fault::Silent)
            }
            CallError::Malformed { .. } => (State::Refusing, Fault::Nonsense),
            // Closed, broken, and what a later version of the library knows.
            _ => (State::Refusing, Fault::Closed),
        };
        Self { state, fault, what: error.to_string() }
    }

    /// There is one that says no. That it does not have what was asked for is an answer as good as any.
    pub(crate) fn of_answer(answer: &Answer) -> Option<Self> {
        let refuses = matches!(
            answer.code,
            response::SYSTEM_ERROR | response::SYSTEM_BUSY | response::GO_AWAY | response::NO_PERMISSION
        );
        let remark = answer.remark.as_deref().unwrap_or("it gave no reason").trim();
        refuses.then(|| Self {
            state: State::Refusing,
            fault: Fault::Refused,
            what: format!("it refused: {remark} (code {})", answer.code),
        })
    }
}

/// Something that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Asked(u64);

/// A change of state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) before: State,
    /// How long that had lasted.
    pub(crate) lasted: Duration,
    pub(crate) now: State,
    /// Why it is not healthy, for people.
    pub(crate) why: Option<String>,
}

/// One name server.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    state: State,
    since: Millis,
    answered: Option<Millis>,
    /// Of the last answer to a question of the agent's own.
    latency: Option<Duration>,
    last_fault: Option<(Fault, Millis)>,
    /// Since the last answer.
    failures: u32,
    waiting: BTreeMap<Asked, Millis>,
    number: u64,
    /// What became of the agent's own last question, if it was no answer, and since when that is so.
    failure: Option<(Failure, Millis)>,
    doubtful: bool,
}

impl Standing {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            state: State::Unknown,
            since: now,
            answered: None,
            latency: None,
            last_fault: None,
            failures: 0,
            waiting: BTreeMap::new(),
            number: 0,
            failure: None,
            doubtful: false,
        }
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) const fn since(&self) -> Millis {
        self.since
    }

    pub(crate) const fn answered_at(&self) -> Option<Millis> {
        self.answered
    }

    pub(crate) const fn latency(&self) -> Option<Duration> {
        self.latency
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) const fn last_fault(&self) -> Option<(Fault, Millis)> {
        self.last_fault
    }

    /// Something was said to it that it has to answer.
    pub(crate) fn asked(&mut self, now: Millis) -> Asked {
        self.number = self.number.wrapping_add(1);
        let asked = Asked(self.number);
        self.waiting.insert(asked, now);
        asked
    }

    /// It is not waited for any more.
    pub(crate) fn given_up(&mut self, asked: Asked) {
        self.waiting.remove(&asked);
    }

    /// It answered something.
    pub(crate) fn answered(&mut self, now: Millis) {
        self.answered = Some(now);
        self.doubtful = false;
        if self.failure.is_none() {
            self.failures = 0;
        }
    }

    /// It answered the agent's own question after `latency`.
    pub(crate) fn answered_us(&mut self, latency: Duration, now: Millis) {
        self.failure = None;
        self.latency = Some(latency);
        self.answered(now);
    }

    /// It did not answer the agent's own question as it should.
    pub(crate) fn failed_us(&mut self, failure: Failure, now: Millis) {
        self.doubtful = false;
        self.last_fault = Some((failure.fault, now));
        self.failures = self.failures.saturating_add(1);
        let since = match self.failure.take() {
            Some((earlier, since)) if earlier.state == failure.state => since,
            _ => now,
        };
        self.failure = Some((failure, since));
    }

    /// It failed somebody else: the agent should ask for itself.
    pub(crate) fn failed_others(&mut self, fault: Fault, now: Millis) {
        self.last_fault = Some((fault, now));
        self.doubtful = true;
    }

    /// Whether the agent should ask now rather than later. Of one that it found failing itself nobody can make it doubt
    /// more.
    pub(crate) fn is_doubtful(&self, now: Millis) -> bool {
        self.failure.is_none() && (self.doubtful || self.unanswered_since(DOUBT_AFTER, now).is_some())
    }

    /// Looks at the time; gives the change, if the state is another.
    pub(crate) fn look(&mut self, now: Millis) -> Option<Change> {
        let silent = self.unanswered_since(SILENT_AFTER, now);
        let (state, since, why) = match (silent, &self.failure) {
            (Some(since), _) => {
                let waited = now.since(since).as_secs();
                (State::Silent, since, Some(format!("it answered nothing for {waited} s")))
            }
            (None, Some((failure, since))) => (failure.state, *since, Some(failure.what.clone())),
            (None, None) if self.answered.is_some() => (State::Healthy, now, None),
            (None, None) => (State::Unknown, self.since, None),
        };
        if state == self.state {
            return None;
        }
        if silent.is_some() {
            self.last_fault = Some((Fault::Silent, now));
            self.failures = self.failures.saturating_add(1);
        }
        let lasted = since.since(self.since);
        let before = std::mem::replace(&mut self.state, state);
        self.since = since;
        Some(Change { before, lasted, now: state, why })
    }

    /// Since when something waits, if that is `limit` ago and nothing was answered since.
    fn unanswered_since(&self, limit: Duration, now: Millis) -> Option<Millis> {
        let is_late =
            |at: &&Millis| now.since(**at) >= limit && self.answered.is_none_or(|answered| answered <= **at);
        self.waiting.values().filter(is_late).min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Millis {
        Millis::ZERO.after(Duration::from_millis(milliseconds))
    }

    fn healthy() -> Standing {
        let mut standing = Standing::new(at(0));
        assert_eq!((standing.look(at(0)), standing.state()), (None, State::Unknown));
        let asked = standing.asked(at(0));
        standing.given_up(asked);
        standing.answered_us(Duration::from_millis(1), at(1));
        let change = standing.look(at(1)).expect("a change");
        assert_eq!((change.before, change.now, change.why), (State::Unknown, State::Healthy, None));
        standing
    }

    fn refused() -> Failure {
        Failure { state: State::Refusing, fault: Fault::Connect, what: "connection refused".to_owned() }
    }

    #[test]
    fn what_waits_for_an_answer_makes_a_server_silent_since_it_waits() {
        let mut standing = healthy();
        let asked = standing.asked(at(1_000));
        assert!(!standing.is_doubtful(at(1_499)) && standing.is_doubtful(at(1_500)));
        assert_eq!(standing.look(at(2_999)), None);
        let change = standing.look(at(3_000)).expect("a change");
        assert_eq!((change.before, change.now), (State::Healthy, State::Silent));
        assert_eq!(standing.since(), at(1_000));
        assert_eq!((standing.failures(), standing.last_fault()), (1, Some((Fault::Silent, at(3_000)))));
        // Said once, however long it lasts.
        assert_eq!(standing.look(at(60_000)), None);
        standing.given_up(asked);
        standing.answered(at(61_000));
        let change = standing.look(at(61_000)).expect("a change");
        assert_eq!((change.before, change.now), (State::Silent, State::Healthy));
        assert_eq!(change.lasted, Duration::from_secs(60));
        assert_eq!((standing.since(), standing.failures()), (at(61_000), 0));
    }

    #[test]
    fn a_server_that_is_busy_with_one_frame_and_answers_others_is_healthy() {
        let mut standing = healthy();
        standing.asked(at(1_000));
        standing.answered(at(1_600));
        assert!(!standing.is_doubtful(at(9_000)));
        assert_eq!(standing.look(at(9_000)), None);
        // It stops after that: the next question shows it.
        standing.asked(at(10_000));
        assert_eq!(standing.look(at(12_000)).map(|change| change.now), Some(State::Silent));
        assert_eq!(standing.since(), at(10_000));
    }

    #[test]
    fn a_failure_of_an_own_question_holds_until_one_is_answered() {
        let mut standing = healthy();
        standing.failed_us(refused(), at(5_000));
        let change = standing.look(at(5_000)).expect("a change");
        assert_eq!((change.now, change.why.as_deref()), (State::Refusing, Some("connection refused")));
        // An answer that was under way to somebody else is not believed more, nor is another failure news.
        standing.answered(at(5_100));
        standing.failed_others(Fault::Connect, at(5_200));
        assert!(!standing.is_doubtful(at(5_200)));
        standing.failed_us(refused(), at(7_000));
        assert_eq!(standing.look(at(7_000)), None);
        assert_eq!((standing.since(), standing.failures()), (at(5_000), 2));
        standing.answered_us(Duration::from_millis(1), at(9_000));
        assert_eq!(standing.look(at(9_000)).map(|change| change.now), Some(State::Healthy));
        assert_eq!(standing.last_fault(), Some((Fault::Connect, at(7_000))), "it is kept");
    }

    #[test]
    fn failures_of_others_are_a_doubt_and_no_verdict() {
        let mut standing = healthy();
        standing.failed_others(Fault::Silent, at(2_000));
        assert!(standing.is_doubtful(at(2_000)));
        assert_eq!(standing.look(at(2_000)), None);
        standing.answered_us(Duration::from_millis(1), at(2_001));
        assert!(!standing.is_doubtful(at(2_001)));
    }

    #[test]
    fn one_that_was_never_heard_is_unknown_and_then_silent() {
        let mut standing = Standing::new(at(0));
        standing.asked(at(0));
        assert_eq!((standing.look(at(1_999)), standing.state()), (None, State::Unknown));
        let change = standing.look(at(2_000)).expect("a change");
        assert_eq!((change.before, change.now), (State::Unknown, State::Silent));
    }
}
