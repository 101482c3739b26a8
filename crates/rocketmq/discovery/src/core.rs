//! The whole strategy of discovery as one state machine without IO.
//!
//! Events come in with the time, actions go out. The shell carries questions to servers and brings back what
//! became of them; a simulation does the same with invented servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_wire::body::TopicRouteData;

use crate::error::{LookupError, Said};
use crate::fleet::{Fleet, Server, ServerId};
use crate::health::{Fault, jittered};
use crate::query::{FIRST_TRY, Query, Step, Subject, TRY_MAX};
use crate::read::request_subject;
use crate::route::RouteCache;
use crate::topic::{Judgement, Topic};

mod events;

pub use self::events::{Action, Known, Lookup, Notice, Question, Reply, Ticket, TryId};

/// How long a poll may take; the time-out of the original (spec B3).
const POLL_LIMIT: Duration = Duration::from_secs(3);

/// After a reported failure the route is asked for so often, ...
const URGENT_PERIOD: Duration = Duration::from_secs(1);

/// ... until it changes, but no longer than this.
const URGENT_MAX: Duration = Duration::from_secs(60);

/// When to poll again after nobody answered.
const RETRY_PERIOD: Duration = Duration::from_secs(5);

/// A topic that nobody watches is forgotten when it was not asked for during this.
const UNUSED_MAX: Duration = Duration::from_secs(300);

/// Whoever reads a known route without the core tells it so once in this time: far less than [`UNUSED_MAX`], far more
/// than what a reader would notice.
pub(crate) const USED_PERIOD: Duration = Duration::from_secs(10);

/// Polls under way at once. Callers' questions are not counted.
const POLLS_MAX: usize = 32;

/// How long a probe may take.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Try {
    server: ServerId,
    query: Option<u64>,
    began: Millis,
    overdue: bool,
}

#[derive(Debug, Default)]
struct Entry {
    topic: Topic,
    watchers: usize,
    used: Millis,
    poll_at: Option<Millis>,
    urgent_until: Option<Millis>,
    query: Option<u64>,
    waiters: Vec<Ticket>,
}

#[derive(Debug)]
struct Waiter {
    topic: Arc<str>,
    began: Millis,
    deadline: Millis,
    /// Whether the known route is no answer when it could not be confirmed.
    strict: bool,
    /// Whether the question was under way when it came: a server may have denied the topic before that.
    joined: bool,
}

/// The state of a discovery.
#[derive(Debug)]
pub struct Core {
    poll_period: Duration,
    fleet: Fleet,
    topics: HashMap<Arc<str>, Entry>,
    polls: BTreeSet<(Millis, Arc<str>)>,
    queries: BTreeMap<u64, Query>,
    polling: usize,
    tries: BTreeMap<TryId, Try>,
    waiters: BTreeMap<Ticket, Waiter>,
    reads: BTreeMap<Ticket, u64>,
    outage: bool,
    next_id: u64,
    cache: RouteCache,
    random: StdRng,
    actions: Vec<Action>,
}

impl Core {
    /// A core without servers. Topics in use are polled every `poll_period`, or up to a fifth earlier.
    #[must_use]
    pub fn new(poll_period: Duration, random: StdRng) -> Self {
        Self {
            poll_period,
            fleet: Fleet::default(),
            topics: HashMap::new(),
            polls: BTreeSet::new(),
            queries: BTreeMap::new(),
            polling: 0,
            tries: BTreeMap::new(),
            waiters: BTreeMap::new(),
            reads: BTreeMap::new(),
            outage: false,
            next_id: 0,
            cache: RouteCache::default(),
            random,
            actions: Vec::new(),
        }
    }

    /// What is to be done, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The servers and their health.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        self.fleet.servers()
    }

    /// The list of servers is another.
    pub fn replace_servers(&mut self, endpoints: &Arc<[Endpoint]>, now: Millis) {
        for left in self.fleet.replace(endpoints, now, &mut self.random) {
            self.actions.push(Action::Leave(left.id));
        }
        self.note_outage();
        self.advance_all(now);
    }

    /// Somebody watches the topic from now on.
    pub fn watch(&mut self, topic: &Arc<str>, now: Millis) {
        let entry = self.entry(topic, now);
        entry.watchers += 1;
        if entry.topic.checked.is_none() && entry.query.is_none() {
            self.poll_at(topic, now);
            self.tick(now);
        }
    }

    /// Somebody does not watch it any more.
    pub fn unwatch(&mut self, topic: &Arc<str>, now: Millis) {
        if let Some(entry) = self.topics.get_mut(topic) {
            entry.watchers = entry.watchers.saturating_sub(1);
            entry.used = entry.used.max(now);
        }
    }

    /// Somebody read the known route of the topic, and may go on for 10 s without another word.
    pub fn used(&mut self, topic: &str, now: Millis) {
        if let Some(entry) = self.topics.get_mut(topic) {
            entry.used = entry.used.max(now.after(USED_PERIOD));
        }
    }

    /// Takes over a route from an earlier life. It is stale until a server confirms it.
    pub fn restore(&mut self, topic: &Arc<str>, data: TopicRouteData, now: Millis) {
        let route = self.cache.share(data);
        let entry = self.entry(topic, now);
        if entry.topic.route.is_none() {
            entry.topic.route = Some(route);
            entry.topic.stale = true;
            self.publish(topic, true);
            self.poll_at(topic, now);
        }
    }

    /// Somebody wants a route; [`Action::Found`] ends it.
    pub fn lookup(&mut self, ticket: Ticket, lookup: Lookup, now: Millis) {
        let Lookup { topic, max_age, strict, deadline } = lookup;
        self.entry(&topic, now);
        let known = self.known(&topic);
        if known.route.is_some() && known.is_young(max_age, now) {
            self.actions.push(Action::Found(ticket, Ok(known)));
            return;
        }
        let entry = self.entry(&topic, now);
        entry.waiters.push(ticket);
        // A known route is given when the caller's time is over, and the question goes on.
        let until = if entry.topic.route.is_some() { deadline.max(now.after(POLL_LIMIT)) } else { deadline };
        let running = entry.query;
        let joined = running.is_some();
        self.waiters
            .insert(ticket, Waiter { topic: Arc::clone(&topic), began: now, deadline, strict, joined });
        match running.and_then(|id| self.queries.get_mut(&id)) {
            Some(query) => query.extend(until),
            None => self.start_query(&topic, until, true, now),
        }
    }

    /// Somebody wants to read something else, a request of this `code`, from any healthy server; [`Action::Read`] ends it. `persistent`
    /// asks again and again until the deadline when no server can answer.
    pub fn read(&mut self, ticket: Ticket, code: i32, deadline: Millis, persistent: bool, now: Millis) {
        let id = self.new_id();
        self.queries
            .insert(id, Query::new(Subject::Read { ticket: ticket.0, code }, now, deadline, persistent));
        self.reads.insert(ticket, id);
        self.advance(id, now);
    }

    /// The caller of a lookup or a read went away.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(query) = self.reads.remove(&ticket) {
            self.queries.remove(&query);
        }
        // The query of a topic goes on: its answer is of use.
        if let Some(waiter) = self.waiters.remove(&ticket)
            && let Some(entry) = self.topics.get_mut(&waiter.topic)
        {
            entry.waiters.retain(|other| *other != ticket);
        }
    }

    /// A caller saw a broker of the topic fail: the route is asked for at once, then every second until it
    /// changes, for a minute at most.
    pub fn report_failure(&mut self, topic: &Arc<str>, now: Millis) {
        let Some(entry) = self.topics.get_mut(topic) else { return };
        let fresh = entry.urgent_until.is_none_or(|until| now >= until);
        entry.urgent_until = Some(now.after(URGENT_MAX));
        if fresh && entry.query.is_none() {
            self.poll_at(topic, now);
            self.tick(now);
        }
    }

    /// What became of a question.
    pub fn replied(&mut self, id: TryId, reply: Reply, now: Millis) {
        let Some(tried) = self.tries.remove(&id) else { return };
        let server = tried.server;
        if tried.query.is_none() {
            self.fleet.probed(server);
        }
        self.note_health(&tried, &reply, now);
        let Some(query) = tried.query.and_then(|id| self.queries.get_mut(&id)) else {
            self.note_outage();
            return;
        };
        let failed = matches!(reply, Reply::Failed(..));
        query.ended(server, failed, now);
        let what = match &reply {
            Reply::Route(_) => "it has a route".to_owned(),
            Reply::NotExist => "it has no route for the topic".to_owned(),
            Reply::Answer(answer) => format!("code {}", answer.code),
            Reply::Failed(_, what) => what.clone(),
        };
        if let Some(known) = self.fleet.server(server) {
            query.note(Said { server: known.endpoint.clone(), what, after: now.since(query.began) });
        }
        match reply {
            Reply::Route(data) => query.heard.hear(server, Some(self.cache.share(data))),
            Reply::NotExist => query.heard.hear(server, None),
            Reply::Answer(answer) => {
                if let Subject::Read { ticket, .. } = query.subject {
                    self.end_read(Ticket(ticket), Ok(answer));
                }
            }
            Reply::Failed(..) => {}
        }
        self.note_outage();
        if let Some(id) = tried.query {
            self.advance(id, now);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        self.fleet.redraw(now, &mut self.random);
        self.note_overdue(now);
        self.advance_all(now);
        self.expire_waiters(now);
        self.start_polls(now);
        for server in self.fleet.start_probes(now) {
            self.start_try(server, None, Question::Probe, PROBE_LIMIT, now);
        }
    }

    /// When [`Core::tick`] has something to do, if nothing else happens.
    #[must_use]
    pub fn next_wakeup(&self, now: Millis) -> Option<Millis> {
        let (ranked, healthy) = (self.fleet.ranked(), self.fleet.healthy());
        let mut next = self.fleet.next_probe();
        let mut sooner = |at: Millis| next = Some(next.map_or(at, |other: Millis| other.min(at)));
        if self.polling < POLLS_MAX {
            let due = self.polls.first().filter(|_| !self.outage);
            let urgent = self.outage.then(|| self.polls.iter().find(|(_, topic)| self.is_urgent(topic, now)));
            if let Some((at, _)) = due.or_else(|| urgent.flatten()) {
                sooner(*at);
            }
        }
        for waiter in self.waiters.values() {
            sooner(waiter.deadline);
        }
        for tried in self.tries.values().filter(|tried| !tried.overdue) {
            sooner(tried.began.after(FIRST_TRY));
        }
        for query in self.queries.values() {
            sooner(query.wakes_at(&ranked, healthy));
        }
        next
    }

    fn entry(&mut self, topic: &Arc<str>, now: Millis) -> &mut Entry {
        let entry = self.topics.entry(Arc::clone(topic)).or_default();
        entry.used = entry.used.max(now);
        entry
    }

    fn known(&self, topic: &str) -> Known {
        let topic = self.topics.get(topic).map(|entry| &entry.topic);
        topic.map_or_else(Known::default, |topic| Known {
            route: topic.route.clone(),
            checked: topic.checked,
            stale: topic.stale || self.outage,
        })
    }

    fn new_id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    fn poll_at(&mut self, topic: &Arc<str>, at: Millis) {
        let Some(entry) = self.topics.get_mut(topic) else { return };
        if let Some(old) = entry.poll_at.replace(at) {
            self.polls.remove(&(old, Arc::clone(topic)));
        }
        self.polls.insert((at, Arc::clone(topic)));
    }

    fn is_urgent(&self, topic: &str, now: Millis) -> bool {
        self.topics.get(topic).is_some_and(|entry| entry.urgent_until.is_some_and(|until| now < until))
    }

    fn start_polls(&mut self, now: Millis) {
        while self.polling < POLLS_MAX {
            // While nobody answers, probes find out who is back; only what a caller needs is asked for.
            let mut due = self.polls.range(..=(now, Arc::from("\u{10FFFF}")));
            let next = due.find(|(_, topic)| !self.outage || self.is_urgent(topic, now)).cloned();
            let Some((at, topic)) = next else { return };
            self.polls.remove(&(at, Arc::clone(&topic)));
            let Some(entry) = self.topics.get_mut(&topic) else { continue };
            entry.poll_at = None;
            let unused =
                entry.watchers == 0 && entry.waiters.is_empty() && now.since(entry.used) > UNUSED_MAX;
            if unused && entry.query.is_none() {
                self.topics.remove(&topic);
                self.actions.push(Action::Forget(topic));
            } else if entry.query.is_none() {
                self.start_query(&topic, now.after(POLL_LIMIT), false, now);
            }
        }
    }

    fn start_query(&mut self, topic: &Arc<str>, deadline: Millis, persistent: bool, now: Millis) {
        let id = self.new_id();
        let Some(entry) = self.topics.get_mut(topic) else { return };
        entry.query = Some(id);
        self.polling += usize::from(!persistent);
        self.queries.insert(id, Query::new(Subject::Route(Arc::clone(topic)), now, deadline, persistent));
        self.advance(id, now);
    }

    fn start_try(
        &mut self,
        server: ServerId,
        query: Option<u64>,
        question: Question,
        limit: Duration,
        now: Millis,
    ) {
        let id = TryId(self.new_id());
        let Some(endpoint) = self.fleet.server(server).map(|server| server.endpoint.clone()) else { return };
        self.tries.insert(id, Try { server, query, began: now, overdue: false });
        self.actions.push(Action::Ask { id, server, endpoint, question, limit });
    }

    fn advance_all(&mut self, now: Millis) {
        let ids: Vec<u64> = self.queries.keys().copied().collect();
        for id in ids {
            self.advance(id, now);
        }
    }

    /// Drives a query as far as it goes without another event.
    fn advance(&mut self, id: u64, now: Millis) {
        let ranked = self.fleet.ranked();
        let healthy = self.fleet.healthy();
        loop {
            let Some(query) = self.queries.get_mut(&id) else { return };
            let subject = query.subject.clone();
            if let Subject::Route(topic) = &subject
                && !query.heard.is_empty()
                && self.judge(id, topic, false, now)
            {
                return;
            }
            let Some(query) = self.queries.get_mut(&id) else { return };
            match query.step(&ranked, healthy, now) {
                Step::Wait(_) => return,
                Step::Ask(server) => {
                    let limit = query.deadline.since(now).min(TRY_MAX);
                    let question = match subject {
                        Subject::Route(topic) => Question::Route(topic),
                        Subject::Read { ticket, .. } => Question::Read(Ticket(ticket)),
                    };
                    self.start_try(server, Some(id), question, limit, now);
                }
                Step::Complete => return self.complete(id, &subject, now),
            }
        }
    }

    /// Judges what a query heard. Returns whether that ended it.
    fn judge(&mut self, id: u64, name: &Arc<str>, complete: bool, now: Millis) -> bool {
        let alone = self.fleet.servers().len() == 1;
        let (Some(query), Some(entry)) = (self.queries.get_mut(&id), self.topics.get_mut(name)) else {
            return false;
        };
        // Two addresses of one list that is one server: whoever is asked alone decides alone.
        let complete = complete || alone;
        let judgement = entry.topic.judge(&query.heard, complete, alone, now);
        let changed = match &judgement {
            Judgement::Confirm => {
                query.confirm(now);
                return false;
            }
            Judgement::Changed(_) | Judgement::Gone => true,
            Judgement::Doubted => {
                self.actions.push(Action::Notice(Notice::RouteDoubted { topic: Arc::clone(name) }));
                false
            }
            Judgement::Same | Judgement::NotExist | Judgement::Missing => false,
        };
        if changed {
            entry.urgent_until = None;
            self.actions.push(Action::Notice(Notice::RouteChanged { topic: Arc::clone(name) }));
        }
        self.publish(name, changed);
        self.end_query(id, name, now);
        true
    }

    fn complete(&mut self, id: u64, subject: &Subject, now: Millis) {
        match subject {
            Subject::Read { ticket, code } => {
                let said = self.queries.get(&id).map(|query| (query.said.clone(), now.since(query.began)));
                let (said, limit) = said.unwrap_or_default();
                self.end_read(Ticket(*ticket), Err(self.no_answer(&request_subject(*code), limit, said)));
            }
            Subject::Route(name) => {
                let heard = self.queries.get(&id).is_some_and(|query| !query.heard.is_empty());
                if heard && self.judge(id, name, true, now) {
                    return;
                }
                if let Some(entry) = self.topics.get_mut(name) {
                    entry.topic.stale = true;
                }
                self.publish(name, false);
                self.end_query(id, name, now);
            }
        }
    }

    fn publish(&mut self, topic: &Arc<str>, changed: bool) {
        let known = self.known(topic);
        self.actions.push(Action::Publish { topic: Arc::clone(topic), known, changed });
    }

    /// Takes the query of a topic down: answers who waits and plans the next poll.
    fn end_query(&mut self, id: u64, name: &Arc<str>, now: Millis) {
        let Some(query) = self.queries.remove(&id) else { return };
        self.polling = self.polling.saturating_sub(usize::from(query.polled));
        let Some(entry) = self.topics.get_mut(name) else { return };
        entry.query = None;
        let urgent = entry.urgent_until.is_some_and(|until| now < until) || entry.topic.is_doubted();
        let failed = query.heard.is_empty();
        let wait = match (urgent, failed) {
            (true, _) => URGENT_PERIOD.min(self.poll_period),
            (false, true) => jittered(RETRY_PERIOD.min(self.poll_period), &mut self.random),
            // Never later than the period: who relies on it counts from the last poll.
            (false, false) => self.poll_period.mul_f64(self.random.random_range(0.8..=1.0)),
        };
        if self.answer_waiters(name, &query.said, failed, now) {
            return;
        }
        // A name that nobody has and nobody watches is not remembered: names come from peers.
        let unknown =
            self.topics.get(name).is_some_and(|entry| entry.topic.route.is_none() && entry.watchers == 0);
        if unknown {
            self.topics.remove(name);
            self.actions.push(Action::Forget(Arc::clone(name)));
        } else {
            self.poll_at(name, now.after(wait));
        }
    }

    /// Answers who waits for the topic. Who came while the question was under way takes its route but not its denial,
    /// which may be older than the caller's own question, in which the topic may have been created: for those all is
    /// asked again. Returns whether it is.
    fn answer_waiters(&mut self, name: &Arc<str>, said: &[Said], failed: bool, now: Millis) -> bool {
        let Some(entry) = self.topics.get_mut(name) else { return false };
        let mut again = None;
        for ticket in std::mem::take(&mut entry.waiters) {
            let Some(waiter) = self.waiters.get(&ticket) else { continue };
            let result = self.result_for(waiter, said, failed, now);
            if waiter.joined && matches!(result, Err(LookupError::NotExist { .. })) {
                let (tickets, until) = again.get_or_insert_with(|| (Vec::new(), waiter.deadline));
                tickets.push(ticket);
                *until = waiter.deadline.max(*until);
                continue;
            }
            self.waiters.remove(&ticket);
            self.actions.push(Action::Found(ticket, result));
        }
        let Some((tickets, until)) = again else { return false };
        for ticket in &tickets {
            if let Some(waiter) = self.waiters.get_mut(ticket) {
                waiter.joined = false;
            }
        }
        if let Some(entry) = self.topics.get_mut(name) {
            entry.waiters = tickets;
        }
        self.start_query(name, until, true, now);
        true
    }

    fn result_for(
        &self,
        waiter: &Waiter,
        said: &[Said],
        failed: bool,
        now: Millis,
    ) -> Result<Known, LookupError> {
        let known = self.known(&waiter.topic);
        if known.route.is_some() && !(failed && waiter.strict) {
            return Ok(known);
        }
        if failed {
            let subject = format!("topic \"{}\"", waiter.topic);
            return Err(self.no_answer(&subject, now.since(waiter.began), said.to_vec()));
        }
        Err(LookupError::NotExist { topic: waiter.topic.to_string(), said: said.to_vec() })
    }

    fn no_answer(&self, subject: &str, limit: Duration, mut said: Vec<Said>) -> LookupError {
        let subject = subject.to_owned();
        if self.fleet.servers().is_empty() {
            return LookupError::NoServers { subject };
        }
        let unheard = self.fleet.servers().iter();
        let unheard = unheard.filter(|server| !said.iter().any(|other| other.server == server.endpoint));
        let unheard: Vec<Said> = unheard
            .map(|server| Said {
                server: server.endpoint.clone(),
                what: "no answer yet".to_owned(),
                after: limit,
            })
            .collect();
        said.extend(unheard);
        LookupError::NoAnswer { subject, limit, said }
    }

    fn end_read(&mut self, ticket: Ticket, result: Result<Answer, LookupError>) {
        if let Some(id) = self.reads.remove(&ticket) {
            self.queries.remove(&id);
            self.actions.push(Action::Read(ticket, result));
        }
    }

    fn expire_waiters(&mut self, now: Millis) {
        let expired = self.waiters.iter().filter(|(_, waiter)| now >= waiter.deadline);
        let expired: Vec<Ticket> = expired.map(|(ticket, _)| *ticket).collect();
        for ticket in expired {
            let Some(waiter) = self.waiters.remove(&ticket) else { continue };
            let mut said = Vec::new();
            if let Some(entry) = self.topics.get_mut(&waiter.topic) {
                entry.waiters.retain(|other| *other != ticket);
                let query = entry.query.and_then(|id| self.queries.get(&id));
                said = query.map(|query| query.said.clone()).unwrap_or_default();
            }
            let result = self.result_for(&waiter, &said, true, now);
            self.actions.push(Action::Found(ticket, result));
        }
    }

    fn note_health(&mut self, tried: &Try, reply: &Reply, now: Millis) {
        let endpoint = self.fleet.server(tried.server).map(|server| server.endpoint.clone());
        let notice = match reply {
            Reply::Failed(fault, what) => {
                self.fleet.failed(tried.server, *fault, now, &mut self.random);
                endpoint.map(|server| Notice::Failed { server, fault: *fault, what: what.clone() })
            }
            _ => {
                let latency = now.since(tried.began);
                self.fleet.answered(tried.server, latency, now);
                endpoint.map(|server| Notice::Answered { server, latency })
            }
        };
        self.actions.extend(notice.map(Action::Notice));
    }

    /// A server that is silent for longer than the first-try budget counts as failing already.
    fn note_overdue(&mut self, now: Millis) {
        for tried in self.tries.values_mut() {
            if !tried.overdue && now.since(tried.began) >= FIRST_TRY {
                tried.overdue = true;
                self.fleet.failed(tried.server, Fault::Silent, now, &mut self.random);
            }
        }
        self.note_outage();
    }

    fn note_outage(&mut self) {
        let servers = self.fleet.servers();
        let outage = servers.iter().all(|server| server.health.is_suspect());
        let outage = outage && !servers.is_empty();
        if outage != self.outage {
            self.outage = outage;
            self.actions.push(Action::Outage(outage));
        }
    }
}

#[cfg(test)]
mod tests;
