//! One broker's connection to one name server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::request;

use crate::broker::Then;
use crate::desk::Desk;
use crate::outbox::{Frame, Next};

/// How long a connect may take, as the original's clients have it.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long a server may take to answer a broker's frame, which a hung one answers when it goes on. Closing the
/// connection earlier takes the broker off its route at that moment (decision 5); and each attempt leaves a
/// registration and its end in the backlog of a stopped server, which it may read in any order when it goes on. A
/// machine that is gone is noticed by the system, much earlier.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// How long the answer to a single topic is listened for. It is of use for the first moments only, and a server below
/// 5.0 gives none.
const TOPIC_ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Pause before the next attempt to connect: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What carries a broker's frames to one server. It ends when the broker is gone or the server left the list.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) desk: Arc<Desk>,
    pub(crate) address: String,
    pub(crate) server: Endpoint,
    /// Changes when there may be something to say.
    pub(crate) said: watch::Receiver<u64>,
    /// Ends with the broker, and its connections with it.
    pub(crate) tasks: Tasks,
}

impl Link {
    pub(crate) async fn run(mut self) {
        let stop = self.tasks.stop();
        tokio::select! {
            () = stop.requested() => {}
            () = self.speak() => {}
        }
    }

    async fn speak(&mut self) {
        let mut connection: Option<Connection> = None;
        let mut pause = PAUSE_FIRST;
        loop {
            self.said.mark_unchanged();
            let (known, next) = self.desk.look(|brokers, now| {
                let known = brokers.upstream(&self.address, &self.server).is_some();
                (known, brokers.next(&self.address, &self.server, now))
            });
            if !known {
                return;
            }
            if connection.take_if(|connection| !connection.is_open()).is_some() {
                self.lost(None);
                continue;
            }
            // A server that does not read gets no more than it has not read yet: what waits here becomes superfluous,
            // and is counted.
            if let Some(open) = connection.take_if(|open| open.waiting_bytes() > 0) {
                if timeout(ANSWER_LIMIT, open.drained()).await.is_ok() {
                    connection = Some(open);
                } else {
                    open.close();
                    let (endpoint, limit) = (self.server.clone(), ANSWER_LIMIT);
                    self.lost(Some(CallError::TimedOut { endpoint, limit }.to_string()));
                }
                continue;
            }
            let Some(next) = next else {
                let closed = async {
                    match &connection {
                        Some(connection) => connection.closed().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = closed => {}
                    changed = self.said.changed() => if changed.is_err() { return },
                }
                continue;
            };
            let put = match &connection {
                Some(open) => {
                    let waiting = is_awaited(&next.frame).then(|| self.desk.standings.asked(&self.server));
                    let put = self.put(open, next).await;
                    if let Some(waiting) = waiting {
                        waiting.ended(put.as_ref().err());
                    }
                    put
                }
                None => self.connect().await.map(|open| {
                    pause = PAUSE_FIRST;
                    connection = Some(open);
                    Then::GoOn
                }),
            };
            let error = match put {
                Ok(Then::GoOn) => continue,
                // The server cannot take it now; another connection may meet it in a better state.
                Ok(Then::Retry) => None,
                Err(error) => Some(error.to_string()),
            };
            if let Some(open) = connection.take() {
                open.close();
            }
            self.lost(error);
            sleep(self.desk.jittered(pause)).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let opened = Connection::open(&self.desk.dialer, &self.server, CONNECT_LIMIT, &self.tasks).await;
        match &opened {
            Ok(_) => self.desk.change(|brokers, _| brokers.connected(&self.address, &self.server)),
            Err(error) => {
                self.desk.standings.not_connected(&self.server, error);
                self.desk.recheck();
            }
        }
        opened
    }

    async fn put(&self, connection: &Connection, next: Next) -> Result<Then, CallError> {
        let (address, server) = (&self.address, &self.server);
        if !is_awaited(&next.frame) {
            if next.frame.oneway || next.frame.code != request::REGISTER_TOPIC_IN_NAMESRV {
                connection.forward_unawaited(&next.frame.bytes)?;
            } else {
                self.put_topic(connection, &next).await?;
            }
            self.desk.change(|brokers, _| brokers.passed_on(address, server, next.number));
            return Ok(Then::GoOn);
        }
        let answer = connection.forward(&next.frame.bytes, ANSWER_LIMIT).await?;
        Ok(self.desk.change(|brokers, now| brokers.answered(address, server, &next, &answer, now)))
    }

    /// Sends a single topic without waiting for the answer. If one comes, the server has the topic, and who asks for
    /// it needs not wait any more.
    async fn put_topic(&self, connection: &Connection, next: &Next) -> Result<(), CallError> {
        let (open, bytes) = (connection.clone(), next.frame.bytes.clone());
        let mut exchange = Box::pin(async move {
            let sent = open.forward(&bytes, ANSWER_LIMIT);
            // Others may go on to hold it, but not for this answer, which an old server never gives.
            drop(bytes);
            sent.await
        });
        let answered = tokio::select! {
            biased;
            answered = &mut exchange => Some(answered?),
            // It was sent, in its place among the frames, when it was asked for the first time.
            () = std::future::ready(()) => None,
        };
        let (desk, address, server) = (Arc::clone(&self.desk), self.address.clone(), self.server.clone());
        let number = next.number;
        self.tasks.spawn(async move {
            let answer = match answered {
                Some(answer) => Some(answer),
                None => timeout(TOPIC_ANSWER_LIMIT, exchange).await.ok().and_then(Result::ok),
            };
            if answer.is_some_and(|answer| answer.is_success()) {
                desk.change(|brokers, _| brokers.confirmed(&address, &server, number));
            }
        });
        Ok(())
    }

    /// There is no connection any more.
    fn lost(&self, error: Option<String>) {
        self.desk.change(|brokers, _| brokers.disconnected(&self.address, &self.server, error));
    }
}

/// Servers below 5.0 know neither and never answer them (part C 10, 11); what others say of them changes nothing
/// here. To wait for it would keep everything that follows from such a server.
fn is_awaited(frame: &Frame) -> bool {
    !frame.oneway && !matches!(frame.code, request::REGISTER_TOPIC_IN_NAMESRV | request::BROKER_HEARTBEAT)
}
