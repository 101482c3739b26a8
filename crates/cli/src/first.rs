//! Questions that one server of a list answers for all: the first that knows.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::time::sleep;
use waypost_net::address::HostPort;

use crate::call::{CallError, Reason};
use crate::exit::Exit;
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
    /// Servers that were asked before and did not know or did not answer.
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
    /// One server: its failure. Several: what those say that answered, else all of it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told: Vec<&CallError> = self.failures.iter().filter(|it| !it.is_unanswered()).collect();
        if told.is_empty() {
            told = self.failures.iter().collect();
            if told.len() > 1 {
                write!(formatter, "none of {} servers answered: ", told.len())?;
            }
        }
        for (number, failure) in told.into_iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(formatter, "{separator}{failure}")?;
        }
        Ok(())
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
    let mut asked: Vec<(HostPort, Pin<Box<A>>)> = Vec::new();
    let mut failures = Vec::new();
    // Each call ends by itself within the limit; this is for those that were begun later. The grace lets
    // a call that began first tell more exactly what happened.
    let mut end = Box::pin(sleep(limit.saturating_add(Duration::from_millis(50))));
    loop {
        if let Some(server) = waiting.next() {
            asked.push((server.clone(), Box::pin(ask(server.clone()))));
        }
        if asked.is_empty() {
            return Err(NoAnswer { failures });
        }
        tokio::select! {
            (server, result) = next_of(&mut asked) => match result {
                Ok(value) => return Ok(First { server, value, failures }),
                Err(failure) => failures.push(failure),
            },
            () = sleep(STAGGER), if waiting.len() > 0 => {}
            () = &mut end => {
                let silent = |server: HostPort| CallError::Unanswered {
                    server: server.clone(),
                    reason: Reason::Silent { server, limit },
                };
                failures.extend(asked.drain(..).map(|(server, _)| silent(server)));
                return Err(NoAnswer { failures });
            }
        }
    }
}

/// The first of the running questions that ends; it is taken out.
async fn next_of<T, A>(asked: &mut Vec<(HostPort, Pin<Box<A>>)>) -> (HostPort, T)
where
    A: Future<Output = T>,
{
    poll_fn(|context| {
        for index in 0..asked.len() {
            if let Poll::Ready(result) = asked[index].1.as_mut().poll(context) {
                let (server, _) = asked.swap_remove(index);
                return Poll::Ready((server, result));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Missing;

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
        let before = tokio::time::Instant::now();
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
        let before = tokio::time::Instant::now();
        let error = ask_first(&servers("a;b;c"), LIMIT, |_| std::future::pending::<Result<(), CallError>>())
            .await
            .expect_err("nobody answers");
        assert!(before.elapsed() <= LIMIT + Duration::from_millis(100), "{:?}", before.elapsed());
        assert_eq!((error.failures().len(), error.exit()), (3, Exit::Unreachable));
        assert!(error.to_string().starts_with("none of 3 servers answered: a:9876 accepted"), "{error}");
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
