//! What brokers ask of the agent, and what they are answered.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use waypost_net::clock::{Clock, Millis, Pulse};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
use waypost_rocketmq_wire::header::Header;

use crate::broker::Broker;
use crate::desk::Desk;
use crate::heard::{Heard, Registration};
use crate::reply;
use crate::standings::Standings;
use crate::store::Store;

/// Tables above this are decoded on a thread that may block.
const LARGE: usize = 64 * 1024;

/// One connection of a program, as the agent's sessions number it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// How a relay works.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Where the name servers are.
    pub servers: Servers,
    /// How connections to them are made.
    pub dialer: Dialer,
    /// Knows when the process stood still.
    pub pulse: Pulse,
    /// A folder for what brokers said.
    pub state: Option<PathBuf>,
}

/// How a broker of this machine stands. Times are milliseconds before now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BrokerStatus {
    /// Broker name.
    pub broker: String,
    /// Advertised address.
    pub address: String,
    /// Cluster name.
    pub cluster: String,
    /// 0 is the master.
    pub id: i64,
    /// When it last said something.
    pub heard_ms: u64,
    /// What each name server has of it.
    pub servers: Vec<UpstreamStatus>,
}

/// What a name server has of a broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UpstreamStatus {
    /// Which server.
    pub server: String,
    /// Whether the connection for this broker is up.
    pub connected: bool,
    /// When it last accepted a registration.
    pub accepted_ms: Option<u64>,
    /// Frames that wait for it.
    pub queue: usize,
    /// What went wrong last.
    pub error: Option<String>,
}

/// What became of a request of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Relayed {
    /// It was heard, or refused. The frame of the answer, empty if none is wanted.
    Answered(Vec<u8>),
    /// It changes nothing. The frame of the answer, which is a success.
    Ignored(Vec<u8>),
    /// It concerns no broker of this connection.
    NotOfBroker,
}

/// An answer, or why there is none.
enum Said {
    Answer(Answer),
    Ignored,
    NotOfBroker,
}

/// Says to every name server what the brokers of this machine say. Clones share it.
#[derive(Clone, Debug)]
pub struct Relay {
    desk: Arc<Desk>,
}

impl Relay {
    /// Starts on the current tokio runtime; brokers that were saved are spoken for as soon as their ports accept.
    #[must_use]
    pub fn start(options: RelayOptions, tasks: &Tasks) -> Self {
        Self::start_beside(options, Standings::new(Clock::system()), tasks)
    }

    /// The same; what servers do is noted in `standings`.
    pub(crate) fn start_beside(options: RelayOptions, standings: Standings, tasks: &Tasks) -> Self {
        let RelayOptions { servers, dialer, pulse, state } = options;
        let store = state.map(|folder| Store::new(folder.join("brokers")));
        let saved = store.as_ref().map(|store| store.load(&FrameLimits::default())).unwrap_or_default();
        Self { desk: Desk::start(servers, standings, dialer, store, saved, pulse, tasks) }
    }

    /// A frame of a broker (103, 104, 217, 322, 904).
    pub(crate) async fn request(&self, session: SessionId, peer: SocketAddr, frame: Bytes) -> Relayed {
        let decoded = decode_frame(&frame, &self.desk.frame_limits);
        let encoding = match decoded {
            Ok(Some((frame, _))) => frame.encoding,
            _ => HeaderEncoding::Json,
        };
        let (opaque, oneway, said) = match Heard::decode(&frame, &self.desk.frame_limits) {
            Ok(Some(heard)) => {
                let (opaque, oneway) = (heard.frame().opaque, heard.frame().oneway);
                let said = self.hear(session, heard).await.unwrap_or_else(|refusal| Said::Answer(*refusal));
                (opaque, oneway, said)
            }
            Ok(None) => return Relayed::NotOfBroker,
            Err(refusal) => {
                self.desk.tell_undecodable(peer, &refusal);
                let header = self.header_of(&frame);
                (header.0, header.1, Said::Answer(*refusal))
            }
        };
        let write = |answer: &Answer| {
            let mut bytes = Vec::new();
            if !oneway {
                answer.write(opaque, encoding, &mut bytes);
            }
            bytes
        };
        match said {
            Said::Answer(answer) => Relayed::Answered(write(&answer)),
            Said::Ignored => Relayed::Ignored(write(&reply::success())),
            Said::NotOfBroker => Relayed::NotOfBroker,
        }
    }

    /// A program's connection ended.
    pub fn session_ended(&self, session: SessionId) {
        self.desk.change(|brokers, now| brokers.connection_lost(session.0, now));
    }

    /// The numbers of the connections that carry brokers.
    pub(crate) fn connections(&self) -> BTreeSet<u64> {
        self.desk.look(|brokers, _| brokers.iter().filter_map(|(_, broker)| broker.connection).collect())
    }

    /// An operator deleted a topic on a name server: it is not announced again from here.
    pub fn topic_deleted(&self, topic: &str, cluster: Option<&str>) {
        self.desk.change(|brokers, _| brokers.delete_topic(topic, cluster));
    }

    /// Waits until a name server took the topic, if a broker of this machine is announcing it to them, for `limit` at
    /// most.
    pub(crate) async fn topic_taken(&self, topic: &str, limit: Duration) {
        let taken = |brokers: &crate::brokers::Brokers, _| (!brokers.is_on_its_way(topic)).then_some(());
        self.desk.wait_for(self.desk.clock.now().after(limit), taken).await;
    }

    /// How each broker stands, by address.
    #[must_use]
    pub fn status(&self) -> Vec<BrokerStatus> {
        self.desk.look(|brokers, now| {
            brokers.iter().map(|(address, broker)| status_of(address, broker, now)).collect()
        })
    }

    /// Ends the connections to name servers, which they take as the end of the brokers; nobody is unregistered. What
    /// brokers said stays on disk for the next agent.
    pub async fn close(&self, limit: Duration) {
        self.desk.close(limit).await;
    }

    async fn hear(&self, session: SessionId, heard: Heard) -> Result<Said, Box<Answer>> {
        let answer = match heard {
            Heard::Registration(registration) => self.register(session, registration).await?,
            Heard::Beat(beat) => self.desk.change(|brokers, now| brokers.beat(&beat, session.0, now)),
            Heard::Leave(leave) => {
                let pending = self.desk.change(|brokers, now| brokers.leave(&leave, session.0, now));
                let Some(pending) = pending else { return Ok(Said::Ignored) };
                let has_left =
                    |brokers: &crate::brokers::Brokers, now| brokers.has_left(&pending, now).then_some(());
                self.desk.wait_for(pending.until, has_left).await;
                reply::success()
            }
            Heard::Topic(topic) => {
                if !self.desk.change(|brokers, now| brokers.topic(&topic, session.0, now))? {
                    return Ok(Said::NotOfBroker);
                }
                reply::success()
            }
        };
        Ok(Said::Answer(answer))
    }

    async fn register(&self, session: SessionId, registration: Registration) -> Result<Answer, Box<Answer>> {
        let (known, hasher) =
            self.desk.look(|brokers, _| (brokers.known_table(&registration), brokers.hasher()));
        let (registration, table) = match known {
            Some(table) => (registration, table),
            None if registration.frame.bytes.len() < LARGE => {
                let table = registration.table(&self.desk.frame_limits, &self.desk.body_limits, &hasher)?;
                (registration, table)
            }
            None => {
                let desk = Arc::clone(&self.desk);
                let decoded = tokio::task::spawn_blocking(move || {
                    let table = registration.table(&desk.frame_limits, &desk.body_limits, &hasher);
                    table.map(|table| (registration, table))
                });
                let failed = |_| Box::new(reply::error("the agent is stopping"));
                decoded.await.map_err(failed)??
            }
        };
        let pending =
            self.desk.change(|brokers, now| brokers.register(&registration, table, session.0, now))?;
        let answer = self
            .desk
            .wait_for(pending.until, |brokers, now| brokers.registration_answer(&pending, now))
            .await;
        Ok(answer.unwrap_or_else(|| reply::typed(reply::success())))
    }

    /// Opaque of a frame and whether it wants no answer, for the answer that refuses it.
    fn header_of(&self, frame: &Bytes) -> (i32, bool) {
        let limits = &self.desk.frame_limits;
        let Ok(Some((frame, _))) = decode_frame(frame, limits) else { return (0, true) };
        Header::decode(&frame, limits).map_or((0, true), |header| (header.opaque, header.is_oneway()))
    }
}

fn status_of(address: &str, broker: &Broker, now: Millis) -> BrokerStatus {
    let age = |at: Millis| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
    let servers = broker.servers.iter().map(|(server, upstream)| UpstreamStatus {
        server: server.to_string(),
        connected: upstream.connected,
        accepted_ms: upstream.accepted_at.map(age),
        queue: broker.waiting(upstream, now),
        error: upstream.error.clone(),
    });
    BrokerStatus {
        broker: broker.identity.name.clone(),
        address: address.to_owned(),
        cluster: broker.identity.cluster.clone(),
        id: broker.identity.id,
        heard_ms: age(broker.heard_at),
        servers: servers.collect(),
    }
}
