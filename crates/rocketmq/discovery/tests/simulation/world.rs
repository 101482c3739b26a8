//! Servers, clients, the faults of servers, and the time in which everything happens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use waypost_net::clock::Millis;
use waypost_rocketmq_discovery::core::{Action, Question, Reply, TryId};
use waypost_rocketmq_discovery::health::Fault;
use waypost_rocketmq_remoting::endpoint::Endpoint;

use crate::client::Client;
use crate::server::{Mode, Server};

pub(crate) const SERVERS: usize = 3;
const CLIENTS: usize = 20;
const TOPICS: [&str; 3] = ["orders", "bills", "mails"];

/// Faults and changes end here, ...
const LAST_FAULT: Millis = Millis::new(90_000);

/// ... calls go on, and this is when everybody must know everything.
const CONVERGED: Millis = Millis::new(125_000);

/// How long after a restart brokers need to register again.
const REGISTERED_AFTER: u64 = 2_000;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    /// A question reaches the end of its time.
    Expire(usize, TryId),
    /// A server gets to a question.
    Serve(usize, TryId),
    /// What a server said arrives.
    Arrive(usize, TryId),
    Call(usize),
    Change,
    Fault(usize),
    Mend(usize),
    Register(usize),
}

struct Asked {
    server: usize,
    question: Question,
    reply: Option<Reply>,
}

/// What a seed came to.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) broken: Vec<String>,
    pub(crate) calls: usize,
    pub(crate) changes_seen: usize,
    /// How many clients asked each server first.
    pub(crate) first_asked: [usize; SERVERS],
}

pub(crate) struct World {
    now: Millis,
    events: BinaryHeap<Reverse<(Millis, u64, Event)>>,
    sequence: u64,
    random: StdRng,
    servers: Vec<Server>,
    clients: Vec<Client>,
    asked: Vec<BTreeMap<TryId, Asked>>,
    truth: BTreeMap<String, u64>,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let truth: BTreeMap<String, u64> = TOPICS.iter().map(|topic| ((*topic).to_owned(), 1)).collect();
        let server = || Server { mode: Mode::Well, known: truth.clone() };
        let client = |number: usize| Client::new(seed * 1_000 + u64::try_from(number).expect("few"));
        Self {
            now: Millis::new(1),
            events: BinaryHeap::new(),
            sequence: 0,
            random: StdRng::seed_from_u64(seed),
            servers: (0..SERVERS).map(|_| server()).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            asked: (0..CLIENTS).map(|_| BTreeMap::new()).collect(),
            truth: truth.clone(),
            outcome: Outcome::default(),
        }
    }

    pub(crate) fn play(mut self) -> Outcome {
        let endpoints: Arc<[Endpoint]> = (1..=SERVERS)
            .map(|port| SocketAddr::from(([10, 0, 0, 1], u16::try_from(port).expect("few"))).into())
            .collect();
        for number in 0..CLIENTS {
            self.clients[number].core.replace_servers(&endpoints, self.now);
            for topic in TOPICS {
                self.clients[number].core.watch(&topic.into(), self.now);
            }
            self.after_client(number);
            self.plan_in(50, 1_500, Event::Call(number));
        }
        self.plan_in(2_000, 6_000, Event::Change);
        for server in 0..SERVERS {
            self.plan_in(1_000, 20_000, Event::Fault(server));
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > CONVERGED {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.now = CONVERGED;
        self.finish()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(client) => {
                if self.clients[client].wakes == Some(self.now) {
                    self.clients[client].wakes = None;
                    self.clients[client].woken(self.now);
                    self.clients[client].core.tick(self.now);
                    self.after_client(client);
                }
            }
            Event::Expire(client, id) => {
                let silent = Reply::Failed(Fault::Silent, "no answer in time".to_owned());
                self.reply(client, id, silent);
            }
            Event::Serve(client, id) => self.serve(client, id),
            Event::Arrive(client, id) => {
                let reply = self.asked[client].get_mut(&id).and_then(|asked| asked.reply.take());
                if let Some(reply) = reply {
                    self.reply(client, id, reply);
                }
            }
            Event::Call(client) => self.call(client),
            Event::Change => self.change(),
            Event::Fault(server) => self.fault(server),
            Event::Mend(server) => self.mend(server),
            Event::Register(server) => self.catch_up(server),
        }
    }

    fn plan(&mut self, at: Millis, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn plan_in(&mut self, least: u64, most: u64, event: Event) {
        let wait = self.random.random_range(least..=most);
        self.plan(self.now.after(Duration::from_millis(wait)), event);
    }

    /// Carries the client's questions away and plans its next wake-up.
    fn after_client(&mut self, client: usize) {
        for action in self.clients[client].take_actions(self.now) {
            let Action::Ask { id, endpoint, question, limit, .. } = action else { continue };
            let server = usize::from(endpoint.address.port()) - 1;
            if self.asked[client].is_empty() && self.now == Millis::new(1) {
                self.outcome.first_asked[server] += 1;
            }
            self.asked[client].insert(id, Asked { server, question, reply: None });
            self.plan(self.now.after(limit), Event::Expire(client, id));
            match self.servers[server].mode {
                Mode::Vanished => {}
                Mode::Slow(milliseconds) => {
                    self.plan_in(milliseconds, milliseconds + 50, Event::Serve(client, id))
                }
                _ => self.plan_in(0, 3, Event::Serve(client, id)),
            }
        }
        let wake = self.clients[client].core.next_wakeup(self.now);
        if let Some(at) = wake {
            let at = at.max(self.now);
            if self.clients[client].wakes.is_none_or(|planned| at != planned) {
                self.clients[client].wakes = Some(at);
                self.plan(at, Event::Wake(client));
            }
        } else {
            self.clients[client].wakes = None;
        }
    }

    fn serve(&mut self, client: usize, id: TryId) {
        let Some(asked) = self.asked[client].get_mut(&id) else { return };
        let server = &self.servers[asked.server];
        match server.mode {
            // It waits in the socket until the server goes on, or for ever.
            Mode::Hung | Mode::Vanished => {}
            Mode::Dead => {
                asked.reply = Some(Reply::Failed(Fault::Connect, "connection refused".to_owned()));
                self.plan_in(0, 2, Event::Arrive(client, id));
            }
            _ => {
                asked.reply = Some(server.answer(&asked.question));
                self.plan_in(0, 2, Event::Arrive(client, id));
            }
        }
    }

    fn reply(&mut self, client: usize, id: TryId, reply: Reply) {
        if self.asked[client].remove(&id).is_some() {
            self.clients[client].core.replied(id, reply, self.now);
            self.after_client(client);
        }
    }

    fn call(&mut self, client: usize) {
        let topic = TOPICS[self.random.random_range(0..TOPICS.len())];
        let limit = Duration::from_millis(self.random.random_range(100..=3_000));
        let max_age =
            self.random.random_bool(0.5).then(|| Duration::from_secs(self.random.random_range(0..20)));
        self.clients[client].call(topic, max_age, limit, self.now);
        if self.random.random_bool(0.1) {
            self.clients[client].core.report_failure(&topic.into(), self.now);
        }
        self.after_client(client);
        self.plan_in(200, 3_000, Event::Call(client));
    }

    fn change(&mut self) {
        if self.now >= LAST_FAULT {
            return;
        }
        let topic = TOPICS[self.random.random_range(0..TOPICS.len())];
        *self.truth.get_mut(topic).expect("it exists") += 1;
        for server in 0..SERVERS {
            if self.servers[server].hears() {
                self.catch_up(server);
            }
        }
        self.plan_in(2_000, 12_000, Event::Change);
    }

    /// Brokers tell the server what is true now.
    fn catch_up(&mut self, server: usize) {
        if self.servers[server].hears() {
            self.servers[server].known = self.truth.clone();
        }
    }

    fn fault(&mut self, server: usize) {
        if self.now >= LAST_FAULT {
            return;
        }
        let others_stale = self.servers.iter().any(|server| server.mode == Mode::Stale);
        let mode = match self.random.random_range(0..8) {
            0 | 1 => Mode::Hung,
            2 => Mode::Dead,
            3 => Mode::Vanished,
            4 => Mode::Slow(self.random.random_range(50..2_000)),
            5 => Mode::Busy(self.random.random_range(1..=2)),
            6 => Mode::Nonsense,
            // Two servers that agree on something old cannot be told from two that are right.
            _ if others_stale => Mode::Hung,
            _ => Mode::Stale,
        };
        self.servers[server].mode = mode;
        let lasts = Duration::from_millis(self.random.random_range(500..=15_000));
        // A restarted server is complete again before the last fault is over.
        let last = Millis::new(LAST_FAULT.get() - REGISTERED_AFTER);
        self.plan(self.now.after(lasts).min(last).max(self.now), Event::Mend(server));
    }

    fn mend(&mut self, server: usize) {
        let was = self.servers[server].mode;
        self.servers[server].mode = Mode::Well;
        if was == Mode::Dead {
            // A restarted server is empty until the brokers have registered.
            self.servers[server].known.clear();
            self.plan_in(0, REGISTERED_AFTER, Event::Register(server));
        } else {
            self.catch_up(server);
        }
        if was == Mode::Hung {
            let waiting = |(client, asked): (usize, &BTreeMap<TryId, Asked>)| {
                let here = asked.iter().filter(|(_, asked)| asked.server == server && asked.reply.is_none());
                here.map(|(id, _)| (client, *id)).collect::<Vec<_>>()
            };
            let waiting: Vec<_> = self.asked.iter().enumerate().flat_map(waiting).collect();
            for (client, id) in waiting {
                self.plan_in(0, 20, Event::Serve(client, id));
            }
        }
        self.plan_in(1_000, 30_000, Event::Fault(server));
    }

    fn finish(mut self) -> Outcome {
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.overdue(self.now);
            for (topic, version) in &self.truth {
                let seen = client.seen.get(topic.as_str()).copied();
                if seen != Some(*version) {
                    client.broken.push(format!("{topic} is {version}, known is {seen:?}"));
                }
            }
            let broken = client.broken.iter().map(|text| format!("client {number}: {text}"));
            self.outcome.broken.extend(broken);
            self.outcome.calls += client.calls_ended;
            self.outcome.changes_seen += client.changes_seen;
        }
        self.outcome
    }
}
