//! The task that carries events to the core and its actions to the servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use waypost_net::address::AddressList;
use waypost_net::clock::{Clock, Millis};
use waypost_net::dialer::Dialer;
use waypost_net::tasks::{Stop, Tasks};
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_wire::body::TopicRouteData;

use crate::client::Shared;
use crate::core::{Action, Core, Known, Lookup, Question, Ticket};
use crate::error::LookupError;
use crate::fleet::{Server, ServerId};
use crate::link::{self, Ask, AskSubject, Replied};
use crate::read::Read;

/// Commands and replies taken in one go before the actions are done.
const BATCH: usize = 256;

/// Where the answer to a read goes.
type ReadAnswer = oneshot::Sender<Result<Answer, LookupError>>;

/// What callers want of the core.
#[derive(Debug)]
pub(crate) enum Command {
    Lookup { ticket: Ticket, lookup: Lookup, answer: oneshot::Sender<Result<Known, LookupError>> },
    Read { ticket: Ticket, read: Arc<Read>, deadline: Millis, persistent: bool, answer: ReadAnswer },
    Abandon(Ticket),
    Watch(Arc<str>),
    Unwatch(Arc<str>),
    Used(Arc<str>),
    Restore(Arc<str>, Box<TopicRouteData>),
    ReportFailure(Arc<str>),
    Replace(AddressList),
    Servers(oneshot::Sender<Vec<Server>>),
}

/// Owns the core and everything that it speaks through.
pub(crate) struct Driver {
    pub(crate) core: Core,
    pub(crate) clock: Clock,
    pub(crate) shared: Arc<Shared>,
    pub(crate) servers: Servers,
    pub(crate) dialer: Dialer,
    pub(crate) tasks: Tasks,
    pub(crate) links: HashMap<ServerId, mpsc::UnboundedSender<Ask>>,
    pub(crate) lookups: HashMap<Ticket, oneshot::Sender<Result<Known, LookupError>>>,
    pub(crate) reads: HashMap<Ticket, (Arc<Read>, ReadAnswer)>,
    pub(crate) replies: mpsc::UnboundedSender<Replied>,
}

impl Driver {
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
        mut replied: mpsc::UnboundedReceiver<Replied>,
        stop: Stop,
    ) {
        let mut endpoints = self.servers.subscribe();
        self.follow(&mut endpoints);
        loop {
            self.act();
            let now = self.clock.now();
            // A timer may fire a little early or late; both are no harm.
            let wait = self.core.next_wakeup(now).map_or(Duration::from_secs(3600), |at| at.since(now));
            tokio::select! {
                () = stop.requested() => return,
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    self.command(command);
                    for _ in 0..BATCH {
                        let Ok(command) = commands.try_recv() else { break };
                        self.command(command);
                    }
                }
                Some((id, reply)) = replied.recv() => {
                    self.core.replied(id, reply, self.clock.now());
                    for _ in 0..BATCH {
                        let Ok((id, reply)) = replied.try_recv() else { break };
                        self.core.replied(id, reply, self.clock.now());
                    }
                }
                Ok(()) = endpoints.changed() => self.follow(&mut endpoints),
                () = tokio::time::sleep(wait) => self.core.tick(self.clock.now()),
            }
        }
    }

    fn follow(&mut self, endpoints: &mut watch::Receiver<Arc<[Endpoint]>>) {
        let list = Arc::clone(&endpoints.borrow_and_update());
        self.core.replace_servers(&list, self.clock.now());
    }

    fn command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Lookup { ticket, lookup, answer } => {
                self.lookups.insert(ticket, answer);
                self.core.lookup(ticket, lookup, now);
            }
            Command::Read { ticket, read, deadline, persistent, answer } => {
                let code = read.code;
                self.reads.insert(ticket, (read, answer));
                self.core.read(ticket, code, deadline, persistent, now);
            }
            Command::Abandon(ticket) => {
                self.lookups.remove(&ticket);
                self.reads.remove(&ticket);
                self.core.abandon(ticket);
            }
            Command::Watch(topic) => self.core.watch(&topic, now),
            Command::Unwatch(topic) => self.core.unwatch(&topic, now),
            Command::Used(topic) => self.core.used(&topic, now),
            Command::Restore(topic, route) => self.core.restore(&topic, *route, now),
            Command::ReportFailure(topic) => self.core.report_failure(&topic, now),
            Command::Replace(list) => self.servers.replace(list),
            // Fails only if the caller went away, as with all answers below.
            Command::Servers(answer) => drop(answer.send(self.core.servers().to_vec())),
        }
    }

    fn act(&mut self) {
        loop {
            let actions = self.core.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act_on(action);
            }
        }
    }

    fn act_on(&mut self, action: Action) {
        match action {
            Action::Ask { id, server, endpoint, question, limit } => {
                let subject = match question {
                    Question::Route(topic) => AskSubject::Route(topic),
                    Question::Probe => AskSubject::Probe,
                    Question::Read(ticket) => match self.reads.get(&ticket) {
                        Some((read, _)) => AskSubject::Read(Arc::clone(read)),
                        None => return,
                    },
                };
                self.ask(server, endpoint, Ask { id, subject, limit });
            }
            Action::Leave(server) => drop(self.links.remove(&server)),
            Action::Publish { topic, known, changed } => self.shared.publish(&topic, known, changed),
            Action::Outage(outage) => {
                if outage {
                    tracing::warn!("no name server answers; known routes are served and marked stale");
                } else {
                    tracing::info!("a name server answers again");
                }
                self.shared.published.set_outage(outage);
            }
            Action::Forget(topic) => self.shared.forget(&topic),
            Action::Found(ticket, result) => {
                if let Some(answer) = self.lookups.remove(&ticket) {
                    let _ = answer.send(result);
                }
            }
            Action::Read(ticket, result) => {
                if let Some((_, answer)) = self.reads.remove(&ticket) {
                    let _ = answer.send(result);
                }
            }
            Action::Notice(notice) => self.shared.observe(&notice),
        }
    }

    fn ask(&mut self, server: ServerId, endpoint: Endpoint, ask: Ask) {
        let link = self.links.entry(server).or_insert_with(|| {
            let (asks, waiting) = mpsc::unbounded_channel();
            let servers = self.servers.clone();
            self.tasks.spawn(link::serve(
                endpoint,
                self.dialer.clone(),
                waiting,
                self.replies.clone(),
                move || servers.recheck(),
                self.tasks.clone(),
            ));
            asks
        });
        // Fails only while everything stops.
        let _ = link.send(ask);
    }
}
