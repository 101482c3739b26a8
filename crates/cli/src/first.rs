//! Questions that one server of a list answers for all: the first that knows.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};
use waypost_net::address::HostPort;

use crate::call::{CallError, Missing, Reason};
use crate::exit::Exit;
use crate::sentences::sentences;
use crate::servers::Servers;

/// How long a server is alone before the next one is asked as well (decision 22).
const STAGGER: Duration = Duration::from_millis(200);

/// The answer of one server.
#[derive(Debug)]
pub struct First<T> {
    /// Who answered.
    pub server: HostPort,
    /// What.
    pub value: T,
    /// Servers that were asked before and did not know, did not answer, or had not answered yet.
    pub failures: Vec<CallError>,
}

/// Nobody knew.
#[derive(Debug, Error)]
pub struct NoAnswer {
    /// What became of each server, at least one.
    failures: Vec<CallError>,
}

impl NoAnswer {
    /// What became of each server.
    #[must_use]
    pub fn failures(&self) -> &[CallError] {
        &self.failures
    }

    /// The servers that could not be asked, if the message is about others, which answered.
    pub(crate) fn untold(&self) -> impl Iterator<Item = &CallError> {
        let some_answered = self.exit() != Exit::Unreachable;
        self.failures.iter().filter(move |failure| some_answered && failure.is_unanswered())
    }

    /// The servers that do not have the topic that was asked for.
    pub(crate) fn without_topic(&self) -> impl Iterator<Item = &HostPort> {
        let lacks =
            |failure: &&CallError| matches!(failure, CallError::NotFound { missing: Missing::Topic(_), .. });
        self.failures.iter().filter(lacks).map(CallError::server)
    }

    /// [`Exit::Unreachable`] if no server answered at all.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.failures.iter().all(CallError::is_unanswered) { Exit::Unreachable } else { Exit::No }
    }
}

impl From<CallError> for NoAnswer {
    fn from(failure: CallError) -> Self {
        Self { failures: vec![failure] }
    }
}

impl fmt::Display for NoAnswer {
    /// One server: its failure. Several: what those say that answered, else all of it; what is equal once.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told: Vec<&CallError> = self.failures.iter().filter(|it| !it.is_unanswered()).collect();
        if told.is_empty() {
            told = self.failures.iter().collect();
            if told.len() > 1 {
                write!(formatter, "none of {} servers answered: ", told.len())?;
            }
        }
        formatter.write_str(&sentences(told).join("; "))
    }
}

/// Asks the servers in their order. The next one is asked when one failed, or was silent for 200 ms; the
/// first success wins and the others are dropped. `limit` is for all of them together. Cancel safe.
///
/// # Errors
///
/// What became of each when none succeeded in time.
pub async fn ask_first<T, F, A>(servers: &Servers, limit: Duration, ask: F) -> Result<First<T>, NoAnswer>
where
    F: Fn(HostPort) -> A,
    A: Future<Output = Result<T, CallError>>,
{
    let mut waiting = servers.addresses().iter();
    let mut asked: Vec<Asked<A>> = Vec::new();
    let mut failures = Vec::new();
    // Each call ends by itself within the limit; this is for those that were begun later. The grace lets
    // a call that began first tell more exactly what happened.
    let mut end = Box::pin(sleep(limit.saturating_add(Duration::from_millis(50))));
    loop {
        if let Some(server) = waiting.next() {
            asked.push(Asked::new(server.clone(), ask(server.clone())));
        }
        if asked.is_empty() {
            return Err(NoAnswer { failures });
        }
        tokio::select! {
            (server, result) = next_of(&mut asked) => match result {
                Ok(value) => {
                    // One that was asked a moment ago is not slow.
                    failures.extend(asked.iter().map(Asked::late).filter(|(waited, _)| *waited >= STAGGER).map(|it| it.1));
                    return Ok(First { server, value, failures });
                }
                Err(failure) => failures.push(failure),
            },
            () = sleep(STAGGER), if waiting.len() > 0 => {}
            () = &mut end => {
                failures.extend(asked.iter().map(|asked| asked.late().1));
                return Err(NoAnswer { failures });
            }
        }
    }
}

/// A question under way.
struct Asked<A> {
    server: HostPort,
    since: Instant,
    answer: Pin<Box<A>>,
}

impl<A> Asked<A> {
    fn new(server: HostPort, answer: A) -> Self {
        Self { server, since: now(), answer: Box::pin(answer) }
    }

    /// For how long it has not been answered, and that as a failure.
    fn late(&self) -> (Duration, CallError) {
        let server = self.server.clone();
        let waited = now().saturating_duration_since(self.since);
        // In steps, so that servers that were asked together say the same.
        let step = STAGGER.as_millis() / 2;
        let told = waited.as_millis() / step * step;
        let told = Duration::from_millis(u64::try_from(told).unwrap_or(u64::MAX));
        let reason = Reason::Late { server: server.clone(), waited: told };
        (waited, CallError::Unanswered { server, reason })
    }
}

#[allow(clippy::disallowed_methods, reason = "the timer of tokio counts in its own instants")]
fn now() -> Instant {
    Instant::now()
}

/// The first of the running questions that ends; it is taken out.
async fn next_of<T, A>(asked: &mut Vec<Asked<A>>) -> (HostPort, T)
where
    A: Future<Output = T>,
{
    poll_fn(|context| {
        for index in 0..asked.len() {
            if let Poll::Ready(result) = asked[index].answer.as_mut().poll(context) {
                return Poll::Ready((asked.swap_remove(index).server, result));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Servers {
        text.parse().expect("a list")
    }

    fn unknown(server: &HostPort) -> CallError {
        CallError::not_found(server, Missing::Topic("T".into()))
    }

    const LIMIT: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn the_first_server_answers_alone_when_it_is_quick() {
        let found = ask_first(&servers("a;b"), LIMIT, |server| async move { Ok(server.to_string()) }).await;
        let found = found.expect("an answer");
        assert_eq!((found.value.as_str(), found.failures.len()), ("a:9876", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_costs_one_stagger() {
        let before = Instant::now();
        let found = ask_first(&servers("a;b"), LIMIT, |server| async move {
            if server.to_string() == "a:9876" {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
        .await
        .expect("an answer");
        assert_eq!(found.server.to_string(), "b:9876");
        assert_eq!(before.elapsed(), STAGGER);
        let told: Vec<String> = found.failures.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("a:9876 had not answered after 200ms"), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_asked_a_moment_ago_is_not_called_slow() {
        let found = ask_first(&servers("a;b"), LIMIT, |server| async move {
            let time = if server.to_string() == "a:9876" { STAGGER * 3 / 2 } else { STAGGER };
            sleep(time).await;
            Ok(())
        })
        .await
        .expect("an answer");
        assert_eq!((found.server.to_string().as_str(), found.failures.len()), ("a:9876", 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_knows_nothing_does_not_decide_while_others_answer() {
        let found = ask_first(&servers("a;b"), LIMIT, |server| async move {
            if server.to_string() == "a:9876" { Err(unknown(&server)) } else { Ok(7) }
        })
        .await
        .expect("an answer");
        assert_eq!((found.value, found.failures.len()), (7, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_list_of_silent_servers_ends_at_the_limit() {
        let before = Instant::now();
        let error = ask_first(&servers("a;b;c"), LIMIT, |_| std::future::pending::<Result<(), CallError>>())
            .await
            .expect_err("nobody answers");
        assert!(before.elapsed() <= LIMIT + Duration::from_millis(100), "{:?}", before.elapsed());
        assert_eq!((error.failures().len(), error.exit()), (3, Exit::Unreachable));
        // Nobody knows whether they took the connection.
        assert!(
            error.to_string().starts_with("none of 3 servers answered: a:9876 had not answered"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn not_found_tells_more_than_unreachable() {
        let error = ask_first(&servers("a;b"), LIMIT, |server| async move {
            if server.to_string() == "b:9876" {
                return Err::<(), _>(unknown(&server));
            }
            let reason = Reason::Closed { server: server.clone() };
            Err(CallError::Unanswered { server, reason })
        })
        .await
        .expect_err("nobody knows");
        assert_eq!(error.exit(), Exit::No);
        assert!(error.to_string().starts_with("b:9876 has no route for topic \"T\""), "{error}");
    }
}
