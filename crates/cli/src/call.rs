//! One question to one NameServer.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use waypost_net::address::HostPort;
use waypost_net::dialer::{DialError, Dialer};
use waypost_net::stream::Stream;
use waypost_rocketmq_wire::body::{BodyError, BodyLimits};
use waypost_rocketmq_wire::code::response;
use waypost_rocketmq_wire::frame::{FrameError, FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::{Header, HeaderError};
use waypost_rocketmq_wire::message::Request;
use waypost_rocketmq_wire::properties::PropertiesError;

use waypost_net::plain::plain;

/// The largest answer that is taken unless less is wanted, in bytes. A list of two million topics needs a tenth of it.
const ANSWER_MAX: usize = 512 * 1024 * 1024;

/// The namespace that `kv list` lists unless another is named: that of order configurations.
pub(crate) const DEFAULT_NAMESPACE: &str = "ORDER_TOPIC_CONFIG";

/// How every answer of an HTTP server begins. As the length of a frame it is above any maximum.
const HTTP: &[u8] = b"HTTP";

/// The number of the one question of a connection.
const OPAQUE: i32 = 1;

/// What a NameServer answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// One of [`response`].
    pub code: i32,
    /// Text for people.
    pub remark: Option<String>,
    /// Named fields, in their order.
    pub ext: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

/// Why a question to a server has no usable answer. The message says what to do next.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no answer from it.
    #[error("{reason}")]
    Unanswered {
        /// Whom.
        server: HostPort,
        /// Why not.
        reason: Reason,
    },
    /// It answered that it will not.
    #[error("{server} refused: {} (code {code}){}", plain(remark), next_step(*code))]
    Refused {
        /// Whom.
        server: HostPort,
        /// One of [`response`].
        code: i32,
        /// What it said.
        remark: String,
    },
    /// It does not have what was asked for.
    #[error("{server} {missing}")]
    NotFound {
        /// Whom.
        server: HostPort,
        /// What is not there.
        missing: Missing,
    },
    /// Its answer cannot be read.
    #[error("{server} sent an answer that cannot be read: {fault}; {}", fault.next_step())]
    Malformed {
        /// Whom.
        server: HostPort,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no connection.
    #[error(transparent)]
    Dial(DialError),
    /// The connection came to be, the answer did not.
    #[error(
        "{server} accepted the connection but sent no answer within {limit:?}; give it longer with --timeout, or look at its log"
    )]
    Silent {
        /// Whom.
        server: HostPort,
        /// The time that was given.
        limit: Duration,
    },
    /// It had not answered yet when another one had, or when the time of the whole command was over.
    #[error("{server} had not answered after {waited:?}; `waypost check` asks each server for itself")]
    Late {
        /// Whom.
        server: HostPort,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It closed the connection.
    #[error(
        "{server} closed the connection without an answer; it may be starting or stopping, want TLS (--tls), or be \
         no RocketMQ NameServer"
    )]
    Closed {
        /// Whom.
        server: HostPort,
    },
    /// The connection broke.
    #[error("the connection to {server} broke: {source}; try again")]
    Broken {
        /// Whom.
        server: HostPort,
        /// What the system said.
        source: io::Error,
    },
}

/// What a server does not have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Missing {
    /// A route.
    #[error(
        "has no route for topic \"{}\": no broker has registered it, or it was deleted here since; `waypost topics` lists \
         those that exist",
        plain(.0)
    )]
    Topic(String),
    /// Topics of a broker.
    #[error("changed nothing: no topic is on a broker \"{}\"; `waypost brokers` lists the brokers", plain(.0))]
    Broker(String),
    /// A cluster.
    #[error("has no cluster \"{}\"; `waypost clusters` lists them", plain(.0))]
    Cluster(String),
    /// A key of the key-value configuration.
    #[error(
        "has no key \"{}\" in namespace \"{}\"; `waypost kv list {}` lists the keys",
        plain(key),
        plain(namespace),
        plain(namespace)
    )]
    Key {
        /// Its namespace.
        namespace: String,
        /// The key.
        key: String,
    },
    /// A namespace of the key-value configuration.
    #[error("has no namespace \"{}\": no key was ever set in it; {}", plain(.0), namespace_step(.0))]
    Namespace(String),
    /// A setting.
    #[error("reports no setting \"{}\"; `waypost config get` lists them all", plain(.0))]
    Setting(String),
}

/// What is wrong with an answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is of another protocol.
    #[error("it speaks HTTP")]
    Http,
    /// The header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A body that should be `.properties`.
    #[error(transparent)]
    Properties(#[from] PropertiesError),
    /// A body that should be UTF-8.
    #[error("its text is not UTF-8")]
    Text,
    /// A field that should be there.
    #[error("the field {0} is missing")]
    Field(&'static str),
}

impl Reason {
    fn kind(&self) -> &'static str {
        match self {
            Self::Dial(DialError::TlsTimedOut { .. }) | Self::Silent { .. } | Self::Late { .. } => "silent",
            Self::Dial(_) => "unreachable",
            Self::Closed { .. } | Self::Broken { .. } => "closed",
        }
    }
}

impl Fault {
    fn next_step(&self) -> &'static str {
        match self {
            Self::Http => "by default 9880 is the admin side of a Waypost, routes are on 9876",
            _ => "is it a RocketMQ NameServer?",
        }
    }
}

fn namespace_step(namespace: &str) -> &'static str {
    if namespace == DEFAULT_NAMESPACE {
        "it is the one that is listed unless `waypost kv list NAMESPACE` names another"
    } else {
        "`waypost kv put` sets one"
    }
}

fn next_step(code: i32) -> &'static str {
    match code {
        response::SYSTEM_BUSY => "; try again in a moment",
        response::REQUEST_CODE_NOT_SUPPORTED => {
            "; this version of the server cannot do it, or it is no NameServer"
        }
        response::GO_AWAY => "; it is stopping, name another server with -n",
        _ => "",
    }
}

impl CallError {
    /// The server that this is about.
    #[must_use]
    pub fn server(&self) -> &HostPort {
        match self {
            Self::Unanswered { server, .. }
            | Self::Refused { server, .. }
            | Self::NotFound { server, .. }
            | Self::Malformed { server, .. } => server,
        }
    }

    /// Whether nothing at all came back from the server: it could not be reached, was silent, or closed the
    /// connection.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered { .. })
    }

    /// A short fixed name of the cause for programs, which docs/cli.md lists.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unanswered { reason, .. } => reason.kind(),
            Self::Refused { .. } => "refused",
            Self::NotFound { .. } => "not_found",
            Self::Malformed { .. } => "malformed",
        }
    }

    pub(crate) fn malformed(server: &HostPort, fault: impl Into<Fault>) -> Self {
        Self::Malformed { server: server.clone(), fault: fault.into() }
    }

    pub(crate) fn not_found(server: &HostPort, missing: Missing) -> Self {
        Self::NotFound { server: server.clone(), missing }
    }
}

impl Answer {
    /// The text of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.ext.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The answer itself if it is one of success.
    ///
    /// # Errors
    ///
    /// [`CallError::Refused`] with what `server` said.
    pub fn success(self, server: &HostPort) -> Result<Self, CallError> {
        if self.code == response::SUCCESS {
            return Ok(self);
        }
        let remark = self.remark.filter(|remark| !remark.trim().is_empty());
        let remark = remark.unwrap_or_else(|| "it gave no reason".to_owned());
        Err(CallError::Refused { server: server.clone(), code: self.code, remark })
    }
}

/// Asks single questions, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Caller {
    /// How connections are opened.
    pub dialer: Dialer,
    /// From the first packet to the last byte of the answer.
    pub limit: Duration,
    /// The largest answer that is taken, in bytes; a larger one is [`CallError::Malformed`].
    pub answer_max: usize,
}

impl Caller {
    /// One that takes answers of any reasonable size.
    #[must_use]
    pub fn new(dialer: Dialer, limit: Duration) -> Self {
        Self { dialer, limit, answer_max: ANSWER_MAX }
    }

    /// Sends `request` to `server` and waits for the answer. Cancel safe: the connection is dropped.
    ///
    /// # Errors
    ///
    /// [`CallError::Unanswered`] or [`CallError::Malformed`]; what the answer says is up to the caller.
    pub async fn call(&self, server: &HostPort, request: Request<'_>) -> Result<Answer, CallError> {
        let exchange = async { Channel::open(self, server).await?.ask(request).await };
        let silent = || CallError::Unanswered {
            server: server.clone(),
            reason: Reason::Silent { server: server.clone(), limit: self.limit },
        };
        // The dialer has the same limit and says more, so it is given the chance to end first.
        let limit = self.limit.saturating_add(Duration::from_millis(20));
        timeout(limit, exchange).await.unwrap_or_else(|_| Err(silent()))
    }
}

/// A connection to a NameServer, for one question.
#[derive(Debug)]
struct Channel {
    server: HostPort,
    stream: Stream,
    received: Vec<u8>,
    answer_max: usize,
}

impl Channel {
    async fn open(caller: &Caller, server: &HostPort) -> Result<Self, CallError> {
        let stream = caller
            .dialer
            .dial(server, caller.limit)
            .await
            .map_err(|error| CallError::Unanswered { server: server.clone(), reason: Reason::Dial(error) })?;
        Ok(Self { server: server.clone(), stream, received: Vec::new(), answer_max: caller.answer_max })
    }

    /// Sends `request` and waits for its answer; there is no limit of time.
    async fn ask(mut self, request: Request<'_>) -> Result<Answer, CallError> {
        let mut frame = Vec::new();
        Request { opaque: OPAQUE, ..request }.write(HeaderEncoding::Json, &mut frame);
        self.stream.write_all(&frame).await.map_err(|source| self.broken(source))?;
        self.stream.flush().await.map_err(|source| self.broken(source))?;
        loop {
            if let Some(answer) = self.take_answer()? {
                return Ok(answer);
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) => return Err(self.unanswered(Reason::Closed { server: self.server.clone() })),
                Ok(_) => {}
                Err(source) => return Err(self.broken(source)),
            }
        }
    }

    /// Takes whole frames from the front of what was received until one answers the question.
    fn take_answer(&mut self) -> Result<Option<Answer>, CallError> {
        let limits = FrameLimits { frame_max: self.answer_max, ..FrameLimits::default() };
        if self.received.starts_with(HTTP) {
            return Err(CallError::malformed(&self.server, Fault::Http));
        }
        loop {
            let frame = decode_frame(&self.received, &limits);
            let Some((frame, length)) = frame.map_err(|fault| CallError::malformed(&self.server, fault))?
            else {
                return Ok(None);
            };
            let header =
                Header::decode(&frame, &limits).map_err(|fault| CallError::malformed(&self.server, fault))?;
            let answer = (header.is_response() && header.opaque == OPAQUE).then(|| Answer {
                code: header.code,
                remark: header.remark.as_deref().map(str::to_owned),
                ext: header.ext.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
                body: frame.body.to_vec(),
            });
            drop(header);
            self.received.drain(..length);
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    fn broken(&self, source: io::Error) -> CallError {
        let server = self.server.clone();
        self.unanswered(match source.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                Reason::Closed { server }
            }
            _ => Reason::Broken { server, source },
        })
    }

    fn unanswered(&self, reason: Reason) -> CallError {
        CallError::Unanswered { server: self.server.clone(), reason }
    }
}

/// The limits of bodies in answers.
pub(crate) fn body_limits() -> BodyLimits {
    BodyLimits::default()
}

/// A request of this program: not from Java, in the newest version.
pub(crate) fn request<'a>(code: i32, ext: &'a [(&'a str, &'a str)]) -> Request<'a> {
    // `OTHER` is the one name beside Java that every version of every server knows.
    Request { language: waypost_rocketmq_wire::language::Language::Other, ext, ..Request::new(code) }
}
