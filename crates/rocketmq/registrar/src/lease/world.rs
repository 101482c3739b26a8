//! A server and a network that a lease meets in tests: time is a number, links stall, break and are refused.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use waypost_net::clock::Millis;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::body::{BodyForm, BodyLimits, DataVersion, RegisterBrokerBody, inflate};
use waypost_rocketmq_wire::code::{request, response};
use waypost_rocketmq_wire::version::V5_5_0;

use crate::announcement::{Announcement, Outgoing};
use crate::identity::{Identity, Role};
use crate::lease::{Lease, LinkId, Step, Ticket};
use crate::options::{Form, Timing};

/// One way through the network, in milliseconds.
const LATENCY: u64 = 1;

/// What a server of these tests is.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Nobody listens.
    pub(super) down: bool,
    /// It takes connections and requests, and answers nothing.
    pub(super) hung: bool,
    /// The version in its answers; below 5.0 it knows neither 217 nor 904 and never answers them.
    pub(super) version: i32,
    pub(super) reads_compressed: bool,
    /// Requests with this code are refused so often.
    pub(super) refuses: (i32, u32, i32),
    /// Fields of its answers to registrations.
    pub(super) master: Option<String>,
    pub(super) registered: Option<Registered>,
    /// How often a broker left its routes, and when and why at last.
    pub(super) removals: Vec<String>,
}

/// The broker as the server has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Registered {
    pub(super) link: u64,
    pub(super) id: String,
    pub(super) version: DataVersion,
    pub(super) topics: BTreeMap<String, i32>,
}

#[derive(Debug, Default)]
struct Line {
    open: bool,
    /// Nothing goes through before.
    stalled_until: u64,
    to_server: VecDeque<(u64, Parcel)>,
    to_lease: VecDeque<(u64, Parcel)>,
    /// Requests that a hung server has taken.
    taken: VecDeque<Parcel>,
}

#[derive(Clone, Debug)]
enum Parcel {
    Opened,
    Refused,
    Request(Ticket, Outgoing),
    Answer(Ticket, Answer),
    Fin,
}

/// The whole of it.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) lease: Lease,
    pub(super) broker: Announcement,
    pub(super) server: Server,
    lines: BTreeMap<u64, Line>,
    /// What happened, a line each, since it was last taken.
    trace: String,
    /// Chance of a stall with each parcel, and its longest time.
    pub(super) stalls: Option<(f64, u64)>,
    pub(super) chance: StdRng,
}

impl World {
    pub(super) fn new(timing: Timing, form: Form) -> Self {
        let identity = Identity::new("C", "b", "10.0.0.1:10911".parse().expect("an address"));
        let form = Form { own_topics: false, ..form };
        let server = Endpoint::from(std::net::SocketAddr::from(([10, 0, 0, 9], 9876)));
        let mut broker = Announcement::new(identity, Role::Master, timing, form, 0);
        broker.topics.set(["a", "b"].map(|name| crate::topics::Topic::new(name, 4)), Millis::ZERO, 0);
        Self {
            now: 1_000,
            lease: Lease::new(server, 1, Millis::new(1_000)),
            broker,
            server: Server {
                down: false,
                hung: false,
                version: V5_5_0,
                reads_compressed: true,
                refuses: (0, 0, 0),
                master: None,
                registered: None,
                removals: Vec::new(),
            },
            lines: BTreeMap::new(),
            trace: String::new(),
            stalls: None,
            chance: StdRng::seed_from_u64(1),
        }
    }

    pub(super) fn set(&mut self, name: &str, queues: i32) {
        let topic = crate::topics::Topic::new(name, queues);
        self.broker.topics.set([topic], Millis::new(self.now), i64::try_from(self.now).expect("small"));
    }

    /// What happened since the last call.
    pub(super) fn trace(&mut self) -> String {
        std::mem::take(&mut self.trace)
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.trace, "{:>6} {text}", self.now - 1_000);
    }

    /// Lets `span` milliseconds pass, with all that happens in them.
    pub(super) fn pass(&mut self, span: u64) {
        let end = self.now + span;
        loop {
            let wake = self.advance();
            let arrival = self.next_arrival();
            let next = wake.get().min(arrival);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            self.arrive();
        }
    }

    /// The process of the lease stands still for `span` milliseconds; servers and network go on.
    pub(super) fn freeze(&mut self, span: u64) {
        let end = self.now + span;
        while self.next_server_arrival() <= end {
            self.now = self.next_server_arrival();
            self.arrive_at_server();
        }
        self.now = end;
    }

    /// The server's machine is restarted: it is empty, its connections are gone.
    pub(super) fn restart_server(&mut self) {
        self.server.registered = None;
        for line in self.lines.values_mut().filter(|line| line.open) {
            line.to_server.clear();
            line.to_lease.clear();
            line.taken.clear();
            line.to_lease.push_back((self.now + LATENCY, Parcel::Fin));
        }
    }

    /// Nothing goes through the connections of now for `span` milliseconds.
    pub(super) fn stall(&mut self, span: u64) {
        let until = self.now + span;
        self.lines.values_mut().for_each(|line| line.stall(until));
    }

    /// The server goes on after it was hung.
    pub(super) fn wake_server(&mut self) {
        self.server.hung = false;
        for number in self.numbers() {
            let taken =
                self.lines.get_mut(&number).map(|line| std::mem::take(&mut line.taken)).unwrap_or_default();
            for parcel in taken {
                self.serve(number, parcel);
            }
        }
    }

    /// The connections of now; what they carry may open and close others.
    fn numbers(&self) -> Vec<u64> {
        self.lines.keys().copied().collect()
    }

    // ---- the lease's side

    fn advance(&mut self) -> Millis {
        loop {
            match self.lease.next(&self.broker, Millis::new(self.now)) {
                Step::Wait(until) => {
                    assert!(until > Millis::new(self.now), "a wait that waits for nothing");
                    return until;
                }
                Step::Open { link: LinkId(number), limit } => self.open(number, limit),
                Step::Send { link: LinkId(number), ticket, request } => {
                    let text = format!("{number} > {}", describe(&request));
                    self.note(&text);
                    self.carry(number, Parcel::Request(ticket, request), true);
                }
                Step::Close(LinkId(number)) => {
                    self.note(&format!("{number} close"));
                    self.carry(number, Parcel::Fin, true);
                    if let Some(line) = self.lines.get_mut(&number) {
                        line.open = false;
                        line.to_lease.clear();
                    }
                }
            }
        }
    }

    fn open(&mut self, number: u64, limit: Duration) {
        self.note(&format!("{number} open within {limit:?}"));
        let line = Line { open: true, ..Line::default() };
        self.lines.insert(number, line);
        let parcel = if self.server.down { Parcel::Refused } else { Parcel::Opened };
        self.carry(number, parcel, false);
    }

    /// Puts a parcel on its way; those of one direction arrive in order.
    fn carry(&mut self, number: u64, parcel: Parcel, to_server: bool) {
        let stall = match self.stalls {
            Some((chance, longest)) if self.chance.random::<f64>() < chance => {
                self.chance.random_range(0..longest)
            }
            _ => 0,
        };
        let Some(line) = self.lines.get_mut(&number) else { return };
        if stall > 0 {
            line.stall(self.now + stall);
        }
        let queue = if to_server { &mut line.to_server } else { &mut line.to_lease };
        let last = queue.back().map_or(0, |(at, _)| *at);
        let at = (self.now + LATENCY).max(line.stalled_until).max(last);
        queue.push_back((at, parcel));
    }

    // ---- time

    fn next_server_arrival(&self) -> u64 {
        let first = |line: &Line| line.to_server.front().map(|(at, _)| *at);
        self.lines.values().filter_map(first).min().unwrap_or(u64::MAX)
    }

    fn next_arrival(&self) -> u64 {
        let first = |line: &Line| line.to_lease.front().map(|(at, _)| *at);
        let lease = self.lines.values().filter_map(first).min().unwrap_or(u64::MAX);
        lease.min(self.next_server_arrival())
    }

    fn arrive(&mut self) {
        self.arrive_at_server();
        let now = Millis::new(self.now);
        for number in self.numbers() {
            while let Some(parcel) = self.due(number, false) {
                match parcel {
                    Parcel::Opened => self.lease.opened(LinkId(number), now),
                    Parcel::Refused => {
                        let endpoint = Endpoint::from(std::net::SocketAddr::from(([10, 0, 0, 9], 9876)));
                        let error = Arc::new(CallError::Closed { endpoint });
                        self.lease.open_failed(LinkId(number), error, now);
                    }
                    Parcel::Answer(ticket, answer) => {
                        self.note(&format!("{number} < {}", answer_text(&answer)));
                        self.lease.answered(ticket, &answer, &self.broker, now);
                    }
                    Parcel::Fin => {
                        self.note(&format!("{number} closed"));
                        self.lines.remove(&number);
                        self.lease.closed(LinkId(number), now);
                    }
                    Parcel::Request(..) => unreachable!("requests go to the server"),
                }
            }
        }
    }

    fn due(&mut self, number: u64, to_server: bool) -> Option<Parcel> {
        let line = self.lines.get_mut(&number)?;
        let queue = if to_server { &mut line.to_server } else { &mut line.to_lease };
        let now = self.now;
        queue.pop_front_if(|(at, _)| *at <= now).map(|(_, parcel)| parcel)
    }

    // ---- the server's side

    fn arrive_at_server(&mut self) {
        for number in self.numbers() {
            while let Some(parcel) = self.due(number, true) {
                if self.server.hung {
                    self.lines.get_mut(&number).expect("it is due").taken.push_back(parcel);
                } else {
                    self.serve(number, parcel);
                }
            }
        }
    }

    fn serve(&mut self, number: u64, parcel: Parcel) {
        match parcel {
            Parcel::Request(ticket, request) => {
                let oneway = request.oneway;
                if let Some(answer) = self.answer(number, &request)
                    && !oneway
                    && self.lines.get(&number).is_some_and(|line| line.open)
                {
                    self.carry(number, Parcel::Answer(ticket, answer), false);
                }
            }
            Parcel::Fin => {
                if self.server.registered.as_ref().is_some_and(|registered| registered.link == number) {
                    self.server.registered = None;
                    self.server.removals.push(format!("{} the end of connection {number}", self.now - 1_000));
                }
            }
            _ => unreachable!("only requests and ends go to the server"),
        }
    }

    fn answer(&mut self, number: u64, request: &Outgoing) -> Option<Answer> {
        let server = &mut self.server;
        let mut answer =
            Answer { code: 0, version: server.version, remark: None, ext: None, body: Bytes::new() };
        let (code, times, with) = &mut server.refuses;
        if *code == request.code && *times > 0 {
            *times -= 1;
            answer.code = *with;
            answer.remark = Some("no".to_owned());
            return Some(answer);
        }
        match request.code {
            request::REGISTER_BROKER => self.register(number, request, &mut answer),
            request::QUERY_DATA_VERSION => {
                let version = DataVersion::decode(&request.body, &BodyLimits::default()).expect("a version");
                let known = server.registered.as_ref().map(|registered| registered.version);
                answer.ext = Some(vec![("changed".to_owned(), (known != Some(version)).to_string())]);
            }
            request::UNREGISTER_BROKER => server.registered = None,
            request::REGISTER_TOPIC_IN_NAMESRV if server.version >= 413 => {
                if let Some(registered) = &mut server.registered {
                    registered.topics.insert(field(request, "topic"), 0);
                }
            }
            _ if server.version >= 413 => {}
            _ => return None,
        }
        Some(answer)
    }

    fn register(&mut self, number: u64, request: &Outgoing, answer: &mut Answer) {
        let server = &mut self.server;
        let compressed = field(request, "compressed") == "true";
        if compressed && !server.reads_compressed {
            answer.code = response::SYSTEM_ERROR;
            answer.remark = Some("Failed to decode RegisterBrokerBody".to_owned());
            return;
        }
        let body = body(request);
        if server.registered.is_none() && body.topics.len() == 1 && server.version >= 413 {
            answer.code = response::SYSTEM_ERROR;
            answer.remark = Some("register broker failed".to_owned());
            return;
        }
        let known = server.registered.take();
        // Servers of 4.x ignore topics that come with a version that they have.
        let ignored = server.version < 413
            && known.as_ref().is_some_and(|registered| registered.version == body.data_version);
        let mut topics = known.map(|registered| registered.topics).unwrap_or_default();
        let taken = if ignored { &[][..] } else { &body.topics[..] };
        topics.extend(taken.iter().map(|topic| (topic.key.to_string(), topic.write_queue_nums)));
        let id = field(request, "brokerId");
        server.registered = Some(Registered { link: number, id, version: body.data_version, topics });
        answer.ext = server.master.as_ref().map(|master| vec![("masterAddr".to_owned(), master.clone())]);
    }
}

impl Line {
    fn stall(&mut self, until: u64) {
        self.stalled_until = self.stalled_until.max(until);
        for (at, _) in self.to_server.iter_mut().chain(&mut self.to_lease) {
            *at = (*at).max(until);
        }
    }
}

fn field(request: &Outgoing, name: &str) -> String {
    request.ext.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

fn body(request: &Outgoing) -> RegisterBrokerBody<'static> {
    let limits = BodyLimits::default();
    if field(request, "compressed") == "true" {
        let inflated = inflate(&request.body, 1 << 20).expect("a zlib stream");
        let form = BodyForm::Binary { mappings: true };
        RegisterBrokerBody::decode(&inflated, form, &limits).expect("a body").into_owned()
    } else {
        RegisterBrokerBody::decode(&request.body, BodyForm::Json, &limits).expect("a body").into_owned()
    }
}

fn describe(request: &Outgoing) -> String {
    let mut text = format!("{}{}", request.code, if request.oneway { " one-way" } else { "" });
    match request.code {
        request::REGISTER_BROKER => {
            let body = body(request);
            let names: Vec<_> = body.topics.iter().map(|topic| topic.key.as_ref()).collect();
            let packed = if field(request, "compressed") == "true" { " deflated" } else { "" };
            let (id, counter) = (field(request, "brokerId"), body.data_version.counter);
            let _ = write!(text, " id={id} v{counter} [{}]{packed}", names.join(" "));
        }
        request::QUERY_DATA_VERSION => {
            let version = DataVersion::decode(&request.body, &BodyLimits::default()).expect("a version");
            let _ = write!(text, " v{}", version.counter);
        }
        request::REGISTER_TOPIC_IN_NAMESRV => {
            let _ = write!(text, " {}", field(request, "topic"));
        }
        request::UNREGISTER_BROKER => {
            let _ = write!(text, " id={}", field(request, "brokerId"));
        }
        _ => {}
    }
    text
}

fn answer_text(answer: &Answer) -> String {
    let mut text = answer.code.to_string();
    for (key, value) in answer.ext.iter().flatten() {
        let _ = write!(text, " {key}={value}");
    }
    if let Some(remark) = &answer.remark {
        let _ = write!(text, " {remark}");
    }
    text
}
