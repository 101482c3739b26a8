//! The connection to one server, and questions on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use waypost_net::clock::Clock;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::body::{BodyLimits, TopicRouteData};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::language::Language;
use waypost_rocketmq_wire::message::Request;

use crate::core::{Reply, TryId};
use crate::health::Fault;
use crate::read::Read;

/// The longest time to connect (spec B3).
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// One question, ready to be sent.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: TryId,
    pub(crate) subject: AskSubject,
    pub(crate) limit: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum AskSubject {
    Route(Arc<str>),
    Read(Arc<Read>),
    Probe,
}

/// What came of a question.
pub(crate) type Replied = (TryId, Reply);

/// Serves one server until `asks` ends: connects when there is something to ask, asks everything on one
/// connection, and connects again after that one closed.
pub(crate) async fn serve(
    endpoint: Endpoint,
    dialer: Dialer,
    mut asks: mpsc::UnboundedReceiver<Ask>,
    replies: mpsc::UnboundedSender<Replied>,
    failed_connect: impl Fn() + Send,
    tasks: Tasks,
) {
    let clock = Clock::system();
    let mut connection: Option<Connection> = None;
    while let Some(ask) = asks.recv().await {
        if let Some(open) = connection.as_ref().filter(|connection| connection.is_open()) {
            tasks.spawn(put(open.clone(), ask, replies.clone()));
            continue;
        }
        // Several may wait for the connection, each for its own time.
        let began = clock.now();
        let limit = ask.limit.min(CONNECT_MAX);
        let mut waiting = vec![ask];
        let mut opening = std::pin::pin!(Connection::open(&dialer, &endpoint, limit, &tasks));
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened,
                ask = asks.recv() => match ask {
                    Some(ask) => waiting.push(ask),
                    None => return,
                },
            }
        };
        let spent = clock.now().since(began);
        match opened {
            Ok(open) => {
                for mut ask in waiting {
                    ask.limit = ask.limit.saturating_sub(spent);
                    tasks.spawn(put(open.clone(), ask, replies.clone()));
                }
                connection = Some(open);
            }
            Err(error) => {
                failed_connect();
                for ask in waiting {
                    // Fails only when nobody wants replies any more.
                    let _ = replies.send((ask.id, failure(&error)));
                }
            }
        }
    }
}

async fn put(connection: Connection, ask: Ask, replies: mpsc::UnboundedSender<Replied>) {
    let answered = match &ask.subject {
        AskSubject::Route(topic) => connection.call(&route_request(&[("topic", topic)]), ask.limit).await,
        AskSubject::Read(read) => read.call(&connection, ask.limit).await,
        AskSubject::Probe => connection.call(&PROBE, ask.limit).await,
    };
    let reply = match answered {
        Ok(answer) => classify(&ask.subject, answer, &connection),
        Err(error) => failure(&error),
    };
    let _ = replies.send((ask.id, reply));
}

fn route_request<'a>(ext: &'a [(&'a str, &'a str)]) -> Request<'a> {
    // `OTHER` is the one name beside Java that every version of every server knows.
    Request { language: Language::Other, ext, ..Request::new(request::GET_ROUTEINFO_BY_TOPIC) }
}

/// Cheap for every server and logged by none: a key that nobody sets.
pub(crate) static PROBE: std::sync::LazyLock<Request<'static>> = std::sync::LazyLock::new(|| Request {
    language: Language::Other,
    ext: &[("namespace", "WAYPOST"), ("key", "probe")],
    ..Request::new(request::GET_KV_CONFIG)
});

fn classify(subject: &AskSubject, answer: Answer, connection: &Connection) -> Reply {
    let remark = || answer.remark.as_deref().unwrap_or("it gave no reason").trim().to_owned();
    let refused =
        || Reply::Failed(Fault::Refused, format!("it refused: {} (code {})", remark(), answer.code));
    if answer.code == response::GO_AWAY {
        // It is stopping; the next question has to open another connection anyway.
        connection.close();
        return refused();
    }
    if matches!(answer.code, response::SYSTEM_ERROR | response::SYSTEM_BUSY) {
        return refused();
    }
    if !matches!(subject, AskSubject::Route(_)) {
        return Reply::Answer(answer);
    }
    match answer.code {
        response::TOPIC_NOT_EXIST => Reply::NotExist,
        response::SUCCESS if answer.body.is_empty() => {
            Reply::Failed(Fault::Nonsense, "it said success but sent no route".to_owned())
        }
        response::SUCCESS => match TopicRouteData::decode(&answer.body, &BodyLimits::default()) {
            Ok(route) => Reply::Route(route),
            Err(error) => Reply::Failed(Fault::Nonsense, format!("its route cannot be read: {error}")),
        },
        _ => refused(),
    }
}

fn failure(error: &CallError) -> Reply {
    let fault = match error {
        CallError::Connect(_) => Fault::Connect,
        CallError::TimedOut { .. } | CallError::Full { .. } => Fault::Silent,
        CallError::Malformed { .. } => Fault::Nonsense,
        _ => Fault::Closed,
    };
    Reply::Failed(fault, error.to_string())
}
