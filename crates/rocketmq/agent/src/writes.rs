//! Writes of operators: they go to every server, or the caller hears which server has not got them.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::code::request;

use crate::remark;
use crate::reply;

/// How long all servers together have.
const LIMIT: Duration = Duration::from_secs(4);

/// Puts writes to every server.
#[derive(Debug)]
pub(crate) struct Writes {
    servers: watch::Receiver<std::sync::Arc<[Endpoint]>>,
    dialer: Dialer,
    tasks: Tasks,
}

/// Whether `code` is a write of operators.
pub(crate) fn is_write(code: i32) -> bool {
    matches!(
        code,
        request::PUT_KV_CONFIG
            | request::DELETE_KV_CONFIG
            | request::WIPE_WRITE_PERM_OF_BROKER
            | request::DELETE_TOPIC_IN_NAMESRV
            | request::REGISTER_TOPIC_IN_NAMESRV
            | request::ADD_WRITE_PERM_OF_BROKER
    )
}

impl Writes {
    pub(crate) fn new(
        servers: watch::Receiver<std::sync::Arc<[Endpoint]>>,
        dialer: Dialer,
        tasks: Tasks,
    ) -> Self {
        Self { servers, dialer, tasks }
    }

    /// Sends the frame as it is to every server: success only if all accepted it, else code 1 with the names of
    /// those that did not. `accepted` is called when the first server has accepted: others may hang for long.
    pub(crate) async fn put(&self, frame: Bytes, opaque: i32, accepted: impl FnOnce() + Send) -> Answer {
        let servers = std::sync::Arc::clone(&self.servers.borrow());
        let mut calls = JoinSet::new();
        for (number, server) in servers.iter().cloned().enumerate() {
            let (dialer, tasks, frame) = (self.dialer.clone(), self.tasks.clone(), frame.clone());
            calls.spawn(async move {
                let call = async {
                    let connection = Connection::open(&dialer, &server, LIMIT, &tasks).await?;
                    connection.exchange(frame, opaque, LIMIT).await
                };
                let said = match timeout(LIMIT, call).await {
                    Ok(Ok(answer)) if answer.is_success() => Ok(answer),
                    Ok(Ok(answer)) => {
                        let remark = answer.remark.as_deref().unwrap_or("it gave no reason").trim();
                        Err(format!("{server} refused: {remark} (code {})", answer.code))
                    }
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("{server} sent no answer within {LIMIT:?}")),
                };
                (number, said)
            });
        }
        let mut accepted = Some(accepted);
        let mut said: Vec<(usize, Result<Answer, String>)> = Vec::new();
        while let Some(call) = calls.join_next().await {
            let failed =
                |error: JoinError| (usize::MAX, Err(format!("the call to a name server ended: {error}")));
            let call = call.unwrap_or_else(failed);
            if call.1.is_ok()
                && let Some(accepted) = accepted.take()
            {
                accepted();
            }
            said.push(call);
        }
        said.sort_unstable_by_key(|(number, _)| *number);
        summary(said.into_iter().map(|(_, said)| said).collect())
    }
}

fn summary(said: Vec<Result<Answer, String>>) -> Answer {
    let total = said.len();
    let failures: Vec<&str> =
        said.iter().filter_map(|said| said.as_ref().err().map(String::as_str)).collect();
    let remark = match failures.len() {
        0 if total > 0 => None,
        0 => Some("the agent knows no name server yet; check its list".to_owned()),
        failed => {
            let next = if failed == total {
                "mend that and repeat it"
            } else {
                "the others did, so repeat it when all answer"
            };
            let head = format!("{failed} of {total} name servers did not take it: ");
            Some(remark::listed(&head, &failures, &format!("; {next}")))
        }
    };
    if let Some(remark) = remark {
        return reply::error(remark);
    }
    said.into_iter().find_map(Result::ok).unwrap_or_else(|| reply::error("no name server answered"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn success() -> Answer {
        Answer { body: Bytes::from_static(b"1"), ..reply::success() }
    }

    #[test]
    fn all_have_to_accept() {
        assert_eq!(summary(vec![Ok(success()), Ok(success())]), success());
        let partly = summary(vec![Ok(success()), Err("b:9876 refused: no (code 16)".to_owned())]);
        assert_eq!(partly.code, 1);
        let remark = partly.remark.expect("a reason");
        assert!(remark.starts_with("1 of 2 name servers did not take it: b:9876 refused"), "{remark}");
    }

    #[test]
    fn that_others_accepted_is_said_only_if_some_did() {
        let refused = || Err("b:9876 refused: no (code 16)".to_owned());
        let remark = |said| summary(said).remark.expect("a reason");
        assert!(
            remark(vec![refused(), Ok(success())])
                .ends_with("; the others did, so repeat it when all answer")
        );
        assert_eq!(
            remark(vec![refused()]),
            "1 of 1 name servers did not take it: b:9876 refused: no (code 16); mend that and repeat it"
        );
    }

    #[test]
    fn every_server_is_named_however_much_each_says() {
        let said = (1..=7).map(|number| Err(format!("10.0.0.{number}:9876 refused: {}", "no ".repeat(900))));
        let remark = summary(said.collect()).remark.expect("a reason");
        assert!(remark.len() <= remark::MAX, "{remark}");
        for number in 1..=7 {
            assert!(remark.contains(&format!("10.0.0.{number}:9876 refused")), "{remark}");
        }
        assert!(remark.ends_with("; mend that and repeat it"), "{remark}");
    }

    #[test]
    fn without_a_server_nothing_is_accepted() {
        assert_eq!(summary(Vec::new()).code, 1);
    }
}
