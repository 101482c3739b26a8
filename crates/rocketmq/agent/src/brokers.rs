//! The brokers of this machine: what they said, what they are answered, what servers get.
//!
//! Events come in with the time, [`Effect`]s go out; nothing here waits or speaks.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::time::Duration;

use bytes::Bytes;
use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::DataVersion;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::frame::DEFAULT_FRAME_MAX;

use crate::broker::{Broker, Then, Upstream};
use crate::heard::{Beat, Leave, Registration, Table, Topic, hash_of, mapping_hash_of};
use crate::outbox::{Frame, Lost, Next};
use crate::reply;
use crate::room::{BROKERS_MAX, NoRoom, TABLES_MAX, cost};

/// How long a broker without a connection may take to come back (Java closes after any slow read).
pub(crate) const ORPHAN_MAX: Duration = Duration::from_secs(5);
/// How long a broker that was read from disk may be silent: the longest period of registrations, and 5 s.
pub(crate) const RESTORED_MAX: Duration = Duration::from_secs(65);
/// How long the first master waits for the first order configuration.
pub(crate) const ORDER_WAIT: Duration = Duration::from_millis(200);
/// How long a slave waits for a server that names its master.
pub(crate) const MASTER_WAIT: Duration = Duration::from_secs(2);
/// How long the answer to a 104 waits for servers.
pub(crate) const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// How long servers that hang may take to hear of a 104 before their connections close without it.
const LEAVE_MAX: Duration = Duration::from_secs(30);

/// What the shell has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Speak for this broker with this server.
    Link(String, Endpoint),
    /// Speak no more for this broker with this server.
    Unlink(String, Endpoint),
    /// There is something to say for this broker.
    Speak(String),
    /// See whether the port of this broker refuses; if so, [`Brokers::refused`].
    Probe(String),
    /// Write the state of this broker to the disk.
    Save(String),
    /// Close this broker's connections to servers and forget what is on disk.
    End(String),
    /// Tell that something of this broker is not kept.
    NoRoom(String, NoRoom),
}

/// What a broker is answered, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    /// The broker.
    pub address: String,
    /// The frame that waits for its answer.
    pub number: u64,
    /// When the answer is given whatever servers do.
    pub until: Millis,
}

/// The order configurations that servers sent (`orderTopicConfig`, part C 8).
#[derive(Debug, Default)]
struct Orders {
    by_server: BTreeMap<Endpoint, (u64, Bytes)>,
    answers: u64,
}

impl Orders {
    fn heard(&mut self, server: &Endpoint, body: &Bytes) {
        self.answers = self.answers.saturating_add(1);
        // No broker takes a larger frame, whoever sends it.
        let body = if body.len() < DEFAULT_FRAME_MAX { body.clone() } else { Bytes::new() };
        self.by_server.insert(server.clone(), (self.answers, body));
    }

    /// The last that says something: brokers only ever add what it says.
    fn current(&self) -> Bytes {
        let said = self.by_server.values().filter(|(_, body)| !body.is_empty());
        said.max_by_key(|(answer, _)| *answer).map(|(_, body)| body.clone()).unwrap_or_default()
    }
}

/// The brokers.
#[derive(Debug, Default)]
pub(crate) struct Brokers {
    brokers: BTreeMap<String, Broker>,
    servers: Vec<Endpoint>,
    orders: Orders,
    hasher: RandomState,
    effects: Vec<Effect>,
}

impl Brokers {
    /// What has to be done now.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// All brokers by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Broker)> {
        self.brokers.iter().map(|(address, broker)| (address.as_str(), broker))
    }

    /// Goes on with this list of servers: new ones get the state of all brokers, connections to those that
    /// left are closed.
    pub(crate) fn follow(&mut self, servers: &[Endpoint]) {
        self.servers = servers.to_vec();
        self.orders.by_server.retain(|server, _| servers.contains(server));
        for (address, broker) in &mut self.brokers {
            let (left, new) = broker.follow(servers);
            self.effects.extend(left.into_iter().map(|server| Effect::Unlink(address.clone(), server)));
            self.effects.extend(new.into_iter().map(|server| Effect::Link(address.clone(), server)));
        }
    }

    /// The table of a registration, if its body is known; else it is to be decoded with [`Brokers::hasher`].
    #[must_use]
    pub(crate) fn known_table(&self, registration: &Registration) -> Option<Table> {
        let broker = self.brokers.get(&registration.identity.address)?;
        let topics = broker.outbox.known(registration.digest)?.clone();
        Some(Table { topics, version: broker.version? })
    }

    /// Tells topics apart.
    #[must_use]
    pub(crate) fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    /// 103.
    ///
    /// # Errors
    ///
    /// The answer that refuses it (spec 2.4 step 7); it leaves nothing behind.
    pub(crate) fn register(
        &mut self,
        registration: &Registration,
        table: Table,
        connection: u64,
        now: Millis,
    ) -> Result<Pending, Box<Answer>> {
        self.announce(registration, table, Some(connection), now)?;
        let identity = &registration.identity;
        let wait = if identity.id == 0 { ORDER_WAIT } else { MASTER_WAIT };
        let number = self.brokers.get(&identity.address).map_or(0, |broker| broker.outbox.last());
        Ok(Pending { address: identity.address.clone(), number, until: now.after(wait) })
    }

    fn announce(
        &mut self,
        registration: &Registration,
        table: Table,
        connection: Option<u64>,
        now: Millis,
    ) -> Result<(), Box<Answer>> {
        let identity = &registration.identity;
        let holds = |broker: &Broker| broker.holds(&identity.name, identity.id);
        if table.topics.is_single() && !self.brokers.values().any(holds) {
            let remark = waypost_rocketmq_registry::RegistrationRefusal::SingleTopic.to_string();
            return Err(Box::new(reply::typed(reply::error(remark))));
        }
        let address = &identity.address;
        let needed = cost(registration.frame.bytes.len(), table.topics.len());
        let room = self.room(address, needed).map_err(|refusal| Box::new(reply::typed(*refusal)))?;
        if !self.brokers.contains_key(address) {
            let links = self.servers.iter().map(|server| Effect::Link(address.clone(), server.clone()));
            self.effects.extend(links);
        }
        let others = self.brokers.iter_mut().filter(|(other, broker)| *other != address && holds(broker));
        others.for_each(|(_, broker)| broker.replaced());
        let new = || Broker::new(identity.clone(), &self.servers, now);
        let broker = self.brokers.entry(address.clone()).or_insert_with(new);
        let is_known = broker.outbox.known(registration.digest).is_some();
        let lost = broker.register(registration, table, connection, room, now);
        self.effects.extend(forgotten(address, lost));
        self.effects.push(Effect::Speak(address.clone()));
        if connection.is_some() && !is_known {
            self.effects.push(Effect::Save(address.clone()));
        }
        Ok(())
    }

    /// What the tables of a broker may take, of which its next frame needs this much.
    fn room(&mut self, address: &str, needed: usize) -> Result<usize, Box<Answer>> {
        let others = self.brokers.iter().filter(|(other, _)| *other != address);
        let taken = others.fold(0_usize, |sum, (_, broker)| sum.saturating_add(broker.outbox.bytes()));
        let room = TABLES_MAX.saturating_sub(taken);
        let refusal = if self.brokers.len() >= BROKERS_MAX && !self.brokers.contains_key(address) {
            NoRoom::Brokers
        } else if needed > room {
            NoRoom::Bytes { needed }
        } else {
            return Ok(room);
        };
        self.effects.push(Effect::NoRoom(address.to_owned(), refusal));
        Err(Box::new(reply::error(refusal.to_string())))
    }

    /// A registration read from the disk. The broker must speak for itself soon.
    ///
    /// # Errors
    ///
    /// The answer that refuses it.
    pub(crate) fn restore(
        &mut self,
        registration: &Registration,
        table: Table,
        now: Millis,
    ) -> Result<(), Box<Answer>> {
        let address = &registration.identity.address;
        // It came while the disk was read, or who took its place.
        let (name, id) = (&registration.identity.name, registration.identity.id);
        let is_heard = |(other, broker): (&String, &Broker)| {
            (other == address || broker.holds(name, id)) && broker.restored_until.is_none()
        };
        if self.brokers.iter().any(is_heard) {
            return Ok(());
        }
        self.announce(registration, table, None, now)?;
        if let Some(broker) = self.brokers.get_mut(address) {
            broker.restored_until = Some(now.after(RESTORED_MAX));
        }
        Ok(())
    }

    /// The answer to a 103, once it can be given: at once for a master if any order configuration was heard,
    /// for a slave if a server named its master.
    #[must_use]
    pub(crate) fn registration_answer(&self, pending: &Pending, now: Millis) -> Option<Answer> {
        let broker = self.brokers.get(&pending.address);
        let mut answer = Answer { body: self.orders.current(), ..reply::typed(reply::success()) };
        let Some(broker) = broker else { return Some(answer) };
        let is_master = broker.identity.id == 0;
        let master = broker.master().filter(|_| !is_master);
        let heard = if is_master { !self.orders.by_server.is_empty() } else { master.is_some() };
        if !heard && now < pending.until && !broker.all_took(pending.number) {
            return None;
        }
        if let (Some(master), Some(ext)) = (master, &mut answer.ext) {
            let ha_address = master.ha_address.iter().map(|value| ("haServerAddr".to_owned(), value.clone()));
            let address = master.address.iter().map(|value| ("masterAddr".to_owned(), value.clone()));
            ext.extend(ha_address.chain(address));
        }
        Some(answer)
    }

    /// 322 and 904.
    pub(crate) fn beat(&mut self, beat: &Beat, connection: u64, now: Millis) -> Answer {
        let broker = self.brokers.get_mut(&beat.address);
        // A broker is known by its cluster and address, as in the NameServer.
        let broker = broker.filter(|broker| broker.identity.cluster == beat.cluster);
        let (changed, version) = match broker {
            Some(broker) => {
                self.effects.push(Effect::Speak(beat.address.clone()));
                broker.beat(beat, connection, now)
            }
            None => (true, None),
        };
        if beat.frame.code != request::QUERY_DATA_VERSION {
            return reply::success();
        }
        version_answer(changed, version)
    }

    /// 104. What to wait for; `None` if it ends no broker: then no server may hear of it from here.
    pub(crate) fn leave(&mut self, leave: &Leave, connection: u64, now: Millis) -> Option<Pending> {
        let broker = self.brokers.get_mut(&leave.address)?;
        if !broker.is_ended_by(&leave.name, connection) {
            return None;
        }
        let number = broker.outbox.leave(leave.frame.clone(), now);
        broker.leaving = Some((number, now.after(LEAVE_MAX)));
        broker.version = None;
        self.effects.push(Effect::Speak(leave.address.clone()));
        Some(Pending { address: leave.address.clone(), number, until: now.after(LEAVE_WAIT) })
    }

    /// Whether a 104 can be answered.
    #[must_use]
    pub(crate) fn has_left(&self, pending: &Pending, now: Millis) -> bool {
        let broker = self.brokers.get(&pending.address);
        now >= pending.until || broker.is_none_or(|broker| broker.all_took(pending.number))
    }

    /// 217 on a connection; whether it is of a broker of this connection. If not, it says nothing about what is kept
    /// here: an operator's, as far as the agent is concerned.
    ///
    /// # Errors
    ///
    /// The answer that refuses it.
    pub(crate) fn topic(&mut self, topic: &Topic, connection: u64, now: Millis) -> Result<bool, Box<Answer>> {
        let is_meant = |broker: &Broker| {
            broker.connection == Some(connection) && topic.brokers.contains(&broker.identity.name)
        };
        let Some((address, broker)) = self.brokers.iter().find(|(_, broker)| is_meant(broker)) else {
            return Ok(false);
        };
        if broker.leaving.is_some() {
            return Ok(true);
        }
        let (address, hash) = (address.clone(), hash_of(&self.hasher, &topic.topic));
        let room = self.room(&address, cost(topic.frame.bytes.len(), 1))?;
        if let Some(broker) = self.brokers.get_mut(&address) {
            let lost = broker.topic(topic.frame.clone(), hash, room, now);
            self.effects.extend(forgotten(&address, lost));
        }
        self.effects.push(Effect::Speak(address.clone()));
        self.effects.push(Effect::Save(address));
        Ok(true)
    }

    /// An operator deleted a topic on the servers (216): nobody may announce it again from here.
    pub(crate) fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let hashes = [hash_of(&self.hasher, topic), mapping_hash_of(&self.hasher, topic)];
        for (address, broker) in &mut self.brokers {
            if cluster.is_none_or(|cluster| cluster == broker.identity.cluster) {
                hashes.into_iter().for_each(|hash| broker.outbox.delete(hash));
                self.effects.push(Effect::Save(address.clone()));
            }
        }
    }

    /// Whether a broker announced the topic and no server has taken that yet.
    #[must_use]
    pub(crate) fn is_on_its_way(&self, topic: &str) -> bool {
        let hash = hash_of(&self.hasher, topic);
        self.brokers.values().any(|broker| broker.is_on_its_way(hash))
    }

    /// A connection ended.
    pub(crate) fn connection_lost(&mut self, connection: u64, now: Millis) {
        for (address, broker) in &mut self.brokers {
            if broker.connection == Some(connection) {
                broker.connection = None;
                broker.lost = Some(connection);
                if broker.leaving.is_none() {
                    broker.orphan_until = Some(now.after(ORPHAN_MAX));
                    self.effects.push(Effect::Probe(address.clone()));
                }
            }
        }
    }

    /// The broker's own port refuses connections: it is gone, unless it has a connection to the agent again.
    pub(crate) fn refused(&mut self, address: &str) {
        if self.brokers.get(address).is_some_and(|broker| broker.orphan_until.is_some()) {
            self.end(address);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Millis) {
        let mut ended = Vec::new();
        for (address, broker) in &self.brokers {
            let over = |until: Option<Millis>| until.is_some_and(|until| now >= until);
            let has_left =
                broker.leaving.is_some_and(|(number, until)| now >= until || broker.all_took(number));
            let expired = now.since(broker.heard_at) > broker.timeout();
            if has_left || expired || over(broker.restored_until) || over(broker.orphan_until) {
                ended.push(address.clone());
            }
        }
        for address in ended {
            self.end(&address);
        }
    }

    fn end(&mut self, address: &str) {
        if self.brokers.remove(address).is_some() {
            self.effects.push(Effect::End(address.to_owned()));
        }
    }

    /// A broker.
    #[must_use]
    pub(crate) fn broker(&self, address: &str) -> Option<&Broker> {
        self.brokers.get(address)
    }

    /// What the agent knows of a server's state about a broker; `None` if one of them is gone.
    #[must_use]
    pub(crate) fn upstream(&self, address: &str, server: &Endpoint) -> Option<&Upstream> {
        self.brokers.get(address)?.servers.get(server)
    }

    /// What a server is to hear next of a broker.
    #[must_use]
    pub(crate) fn next(&self, address: &str, server: &Endpoint, now: Millis) -> Option<Next> {
        self.brokers.get(address)?.next(server, now)
    }

    /// There is a connection to the server.
    pub(crate) fn connected(&mut self, address: &str, server: &Endpoint) {
        let broker = self.brokers.get_mut(address);
        if let Some(upstream) = broker.and_then(|broker| broker.servers.get_mut(server)) {
            upstream.connected = true;
        }
    }

    /// The connection to the server is gone, or there was none to be had.
    pub(crate) fn disconnected(&mut self, address: &str, server: &Endpoint, error: Option<String>) {
        if let Some(broker) = self.brokers.get_mut(address) {
            broker.disconnected(server, error);
        }
    }

    /// The server was sent a frame that wants no answer.
    pub(crate) fn passed_on(&mut self, address: &str, server: &Endpoint, number: u64) {
        if let Some(broker) = self.brokers.get_mut(address) {
            broker.passed_on(server, number);
        }
    }

    /// The server answered a frame whose answer nobody waited for.
    pub(crate) fn confirmed(&mut self, address: &str, server: &Endpoint, number: u64) {
        if let Some(broker) = self.brokers.get_mut(address) {
            broker.confirmed(server, number);
        }
    }

    /// The server answered.
    pub(crate) fn answered(
        &mut self,
        address: &str,
        server: &Endpoint,
        sent: &Next,
        answer: &Answer,
        now: Millis,
    ) -> Then {
        let Some(broker) = self.brokers.get_mut(address) else { return Then::GoOn };
        if sent.frame.code == request::REGISTER_BROKER && answer.is_success() && self.servers.contains(server)
        {
            self.orders.heard(server, &answer.body);
        }
        broker.answered(server, sent, answer, now)
    }

    /// The frames to keep on disk for a broker.
    #[must_use]
    pub(crate) fn frames(&self, address: &str) -> Vec<Frame> {
        self.brokers.get(address).map(|broker| broker.outbox.state().cloned().collect()).unwrap_or_default()
    }
}

fn forgotten(address: &str, lost: Lost) -> Option<Effect> {
    let older = NoRoom::Older { frames: lost.for_room };
    (lost.for_room > 0).then(|| Effect::NoRoom(address.to_owned(), older))
}

fn version_answer(changed: bool, version: Option<DataVersion>) -> Answer {
    let changed = if changed { "true" } else { "false" };
    let mut body = Vec::new();
    if let Some(version) = version {
        version.encode(&mut body);
    }
    let ext = Some(vec![("changed".to_owned(), changed.to_owned())]);
    Answer { ext, body: body.into(), ..reply::success() }
}

#[cfg(test)]
mod tests;
