//! One broker as the agent heard it, and what each name server knows of it.

use std::collections::BTreeMap;
use std::time::Duration;

use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::DataVersion;
use waypost_rocketmq_wire::code::{request, response};

use crate::fence::Fence;
use crate::heard::{Beat, Identity, Registration, Table};
use crate::outbox::{Cursor, Frame, Lost, Next, Outbox, ROUND_MAX, Said, Topics};

/// After which silence a NameServer drops a broker that names no time of its own (section 5).
pub(crate) const EXPIRE: Duration = Duration::from_secs(120);

/// A master as a server named it to a slave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Master {
    /// Where it serves.
    pub address: Option<String>,
    /// Where it replicates from.
    pub ha_address: Option<String>,
}

/// What one name server knows of the broker, as far as the agent can tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstream {
    pub(crate) cursor: Cursor,
    /// The last frame that it answered with success.
    confirmed: u64,
    /// Whether there is a connection.
    pub connected: bool,
    /// When it last accepted a registration.
    pub accepted_at: Option<Millis>,
    /// The version of the topics in it.
    pub accepted_version: Option<DataVersion>,
    /// What went wrong since.
    pub error: Option<String>,
    /// The master that it named last, and when, counted by answers.
    named: Option<(u64, Master)>,
    /// Frames up to this one were repeated on its demand, once.
    repeated: u64,
}

/// What to do after an answer of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Go on with the next frame.
    GoOn,
    /// The server cannot take it at present: put the same frame again, after a pause and over a new connection.
    Retry,
}

/// A broker.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) identity: Identity,
    /// The version that it announced last; `None` makes it register again when it asks.
    pub(crate) version: Option<DataVersion>,
    /// The connection that carried its last frame.
    pub(crate) connection: Option<u64>,
    fence: Fence,
    pub(crate) heard_at: Millis,
    /// It asks before it registers (`forceRegister=false`, part C 6), so it does not repeat its table.
    asks: bool,
    /// Its last question was answered with "unchanged".
    told_current: bool,
    /// Read from disk and not heard since: withdrawn at this time.
    pub(crate) restored_until: Option<Millis>,
    /// Its connection is gone: withdrawn at this time.
    pub(crate) orphan_until: Option<Millis>,
    /// The last of its connections that ended: tells the losses of a broker that flaps apart.
    pub(crate) lost: Option<u64>,
    /// Another address took its name and id, and the servers' entry with it, until it registers again.
    is_replaced: bool,
    /// It said goodbye with the frame of this number: forgotten when all servers took it, or at this time.
    pub(crate) leaving: Option<(u64, Millis)>,
    pub(crate) outbox: Outbox,
    pub(crate) servers: BTreeMap<Endpoint, Upstream>,
    answers: u64,
}

impl Broker {
    pub(crate) fn new(identity: Identity, servers: &[Endpoint], now: Millis) -> Self {
        Self {
            identity,
            version: None,
            connection: None,
            fence: Fence::default(),
            heard_at: now,
            asks: false,
            told_current: false,
            restored_until: None,
            orphan_until: None,
            lost: None,
            is_replaced: false,
            leaving: None,
            outbox: Outbox::default(),
            servers: servers.iter().map(|server| (server.clone(), Upstream::default())).collect(),
            answers: 0,
        }
    }

    /// Its own timeout, or the NameServer's.
    #[must_use]
    pub(crate) fn timeout(&self) -> Duration {
        self.identity.timeout.unwrap_or(EXPIRE)
    }

    /// It spoke: its lease runs from now.
    fn spoke(&mut self, connection: Option<u64>, now: Millis) {
        self.heard_at = now;
        self.connection = connection.or(self.connection);
        self.orphan_until = None;
        if connection.is_some() {
            self.restored_until = None;
        }
    }

    pub(crate) fn register(
        &mut self,
        registration: &Registration,
        table: Table,
        connection: Option<u64>,
        room: usize,
        now: Millis,
    ) -> Lost {
        self.spoke(connection, now);
        self.is_replaced = false;
        let (old, new) = (&self.identity, &registration.identity);
        if self.leaving.take().is_some() || old.name != new.name {
            // Another broker than the one that those connections carried.
            self.fence = Fence::default();
        }
        if let Some(connection) = connection {
            self.fence.bind(connection);
        }
        if (&old.cluster, &old.name, old.id) != (&new.cluster, &new.name, new.id) {
            self.outbox.forget_state();
            self.servers.values_mut().for_each(|server| server.named = None);
        }
        self.identity = registration.identity.clone();
        let (frame, digest) = (registration.frame.clone(), Some(registration.digest));
        let said = Said { frame, topics: table.topics, digest, repeats: !self.asks };
        let lost = self.outbox.table(said, room, now);
        self.version = (lost.frames == 0).then_some(table.version);
        lost
    }

    /// Adds a topic alone, which is no sign of life (1.217).
    pub(crate) fn topic(&mut self, frame: Frame, topic: u64, room: usize, now: Millis) -> Lost {
        let topics = Topics::new(vec![topic], true);
        let lost = self.outbox.table(Said { frame, topics, digest: None, repeats: !self.asks }, room, now);
        if lost.frames > 0 {
            self.version = None;
        }
        lost
    }

    /// The version to answer with, and whether it differs from the broker's.
    pub(crate) fn beat(&mut self, beat: &Beat, connection: u64, now: Millis) -> (bool, Option<DataVersion>) {
        if self.connection.is_none() {
            self.fence.bind(connection);
        }
        self.spoke(Some(connection), now);
        self.asks |= beat.frame.code == request::QUERY_DATA_VERSION && !beat.frame.oneway;
        if self.leaving.is_none() {
            self.outbox.beat(beat.frame.clone(), now);
        }
        let changed = self.version.is_none() || self.version != beat.version;
        self.told_current = !changed;
        (changed, self.version)
    }

    /// Whether a goodbye under this name that comes over this connection ends it, as a NameServer has it.
    #[must_use]
    pub(crate) fn is_ended_by(&self, name: &str, connection: u64) -> bool {
        self.identity.name == name && !self.fence.is_older(connection)
    }

    /// Whether it has this name and id.
    #[must_use]
    pub(crate) fn holds(&self, name: &str, id: i64) -> bool {
        self.identity.name == name && self.identity.id == id && self.leaving.is_none()
    }

    /// Another address took its name and id. It is asked to register again, as a NameServer asks whom it does not
    /// know.
    pub(crate) fn replaced(&mut self) {
        self.is_replaced = true;
        self.version = None;
    }

    /// Whether what it said may be said to servers: it would still speak for itself. What it said long ago is
    /// kept, but it would renew a lease that the broker does not renew; what it said before another took its place
    /// would take that back.
    fn may_be_quoted(&self, now: Millis) -> bool {
        let is_recent = now.since(self.heard_at) <= self.timeout().min(ROUND_MAX);
        self.leaving.is_some() || (is_recent && !self.is_replaced)
    }

    pub(crate) fn next(&self, server: &Endpoint, now: Millis) -> Option<Next> {
        let upstream = self.servers.get(server)?;
        if self.may_be_quoted(now) { self.outbox.next(&upstream.cursor) } else { None }
    }

    pub(crate) fn disconnected(&mut self, server: &Endpoint, error: Option<String>) {
        if let Some(upstream) = self.servers.get_mut(server) {
            Outbox::start_over(&mut upstream.cursor);
            upstream.connected = false;
            upstream.named = None;
            upstream.error = error.or_else(|| upstream.error.take());
        }
    }

    /// A server took a one-way frame: nobody knows what it made of it.
    pub(crate) fn passed_on(&mut self, server: &Endpoint, number: u64) {
        if let Some(upstream) = self.servers.get_mut(server) {
            Outbox::taken(&mut upstream.cursor, number);
        }
    }

    /// A server answered this frame with success.
    pub(crate) fn confirmed(&mut self, server: &Endpoint, number: u64) {
        if let Some(upstream) = self.servers.get_mut(server) {
            upstream.confirmed = upstream.confirmed.max(number);
        }
    }

    /// Whether it announced this topic and no server has taken that yet.
    #[must_use]
    pub(crate) fn is_on_its_way(&self, topic: u64) -> bool {
        let number = self.outbox.announced(topic);
        number.is_some_and(|number| self.servers.values().all(|server| server.confirmed < number))
    }

    /// A server answered.
    pub(crate) fn answered(&mut self, server: &Endpoint, sent: &Next, answer: &Answer, now: Millis) -> Then {
        let (last, told_current) = (self.outbox.last(), self.told_current);
        let Some(upstream) = self.servers.get_mut(server) else { return Then::GoOn };
        if matches!(answer.code, response::SYSTEM_BUSY | response::GO_AWAY) {
            upstream.error = Some(said(answer));
            return Then::Retry;
        }
        Outbox::taken(&mut upstream.cursor, sent.number);
        self.answers = self.answers.saturating_add(1);
        let code = sent.frame.code;
        if answer.is_success() {
            upstream.confirmed = upstream.confirmed.max(sent.number);
        }
        if !answer.is_success() {
            upstream.error = Some(said(answer));
        } else if code == request::REGISTER_BROKER {
            upstream.accepted_at = Some(now);
            upstream.accepted_version = self.version;
            upstream.error = None;
            let master = Master {
                address: answer.field("masterAddr").map(str::to_owned),
                ha_address: answer.field("haServerAddr").map(str::to_owned),
            };
            let is_named = master.address.is_some() || master.ha_address.is_some();
            upstream.named = is_named.then_some((self.answers, master));
        }
        // It does not know what it took: a single topic of a broker that it dropped, or a version that the
        // broker was told to be current.
        let forgot = match code {
            request::REGISTER_BROKER => answer.code == response::SYSTEM_ERROR && self.outbox.len() > 1,
            request::QUERY_DATA_VERSION => {
                told_current
                    && answer.is_success()
                    && answer.field("changed").is_none_or(|changed| changed == "true")
            }
            _ => false,
        };
        if forgot && sent.number > upstream.repeated {
            upstream.repeated = last;
            Outbox::start_over(&mut upstream.cursor);
        }
        Then::GoOn
    }

    /// The master as the servers know it: a server that does not know it never overrides one that does.
    #[must_use]
    pub(crate) fn master(&self) -> Option<&Master> {
        let named = self.servers.values().filter_map(|server| server.named.as_ref());
        named.max_by_key(|(answer, _)| *answer).map(|(_, master)| master)
    }

    /// Whether every server took everything up to this frame; those that cannot be reached are not counted.
    pub(crate) fn all_took(&self, number: u64) -> bool {
        let is_down = |server: &Upstream| !server.connected && server.error.is_some();
        self.servers.values().all(|server| is_down(server) || Outbox::has_taken(&server.cursor, number))
    }

    /// How many frames wait for a server. What may not be said before the broker speaks again does not.
    #[must_use]
    pub(crate) fn waiting(&self, server: &Upstream, now: Millis) -> usize {
        if self.may_be_quoted(now) { self.outbox.waiting(&server.cursor) } else { 0 }
    }

    /// Goes on with this list of servers. Returns those that left and the new ones.
    pub(crate) fn follow(&mut self, list: &[Endpoint]) -> (Vec<Endpoint>, Vec<Endpoint>) {
        let left: Vec<Endpoint> =
            self.servers.keys().filter(|server| !list.contains(server)).cloned().collect();
        self.servers.retain(|server, _| list.contains(server));
        let new: Vec<Endpoint> =
            list.iter().filter(|server| !self.servers.contains_key(server)).cloned().collect();
        self.servers.extend(new.iter().map(|server| (server.clone(), Upstream::default())));
        (left, new)
    }
}

fn said(answer: &Answer) -> String {
    let remark = answer.remark.as_deref().unwrap_or_default();
    format!("it answered code {}: {remark}", answer.code)
}
