//! Asks each server of the list who it is, and has those left out that lead back to this agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt;
use tokio::time::sleep;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::answer::Answer;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::servers::Servers;
use waypost_rocketmq_wire::code::request;
use waypost_rocketmq_wire::message::Request;

use crate::loops::{AgentId, Change, Identity, Loops};
use crate::reply;

/// How long a connect may take, as the original's clients have it.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long an answer may take. A server below 5.0 never answers a code that it does not know; a hung agent answers
/// when it goes on, and should be heard then.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// From one question to the next of an agent, whose list may change, and of a name server, which stays one as long as
/// its connection: often enough that it does not close the connection as idle.
const AGENT_PERIOD: Duration = Duration::from_secs(2);
const SERVER_PERIOD: Duration = Duration::from_secs(30);

/// Pause before the next attempt to connect: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Asks the servers of one agent. Clones share what is known.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    loops: Arc<Mutex<Loops>>,
    servers: Servers,
    dialer: Dialer,
    tasks: Tasks,
}

impl Asker {
    /// Starts to ask with tasks of `tasks`, on the current runtime.
    pub(crate) fn start(servers: Servers, dialer: Dialer, tasks: &Tasks) -> Self {
        let loops = Arc::new(Mutex::new(Loops::new(AgentId::random())));
        let asker = Self { loops, servers, dialer, tasks: tasks.child() };
        let (asking, stop) = (asker.clone(), tasks.stop());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.requested() => {}
                () = asking.follow() => {}
            }
        });
        asker
    }

    /// What this agent answers who asks it.
    pub(crate) fn answer(&self) -> Answer {
        let fields = self.loops().identity().fields().map(|(name, value)| (name.to_owned(), value));
        Answer { ext: Some(fields.to_vec()), ..reply::success() }
    }

    /// The servers that are left out.
    pub(crate) fn left_out(&self) -> Vec<String> {
        self.loops().left_out().iter().map(ToString::to_string).collect()
    }

    async fn follow(&self) {
        let mut list = self.servers.subscribe_to_all();
        let mut asked: HashMap<Endpoint, Tasks> = HashMap::new();
        loop {
            let now = Arc::clone(&list.borrow_and_update());
            self.change(|loops| loops.follow(&now));
            asked.retain(|server, tasks| {
                let stays = now.contains(server);
                if !stays {
                    tasks.cancel();
                }
                stays
            });
            for server in now.iter() {
                asked.entry(server.clone()).or_insert_with(|| self.spawn(server.clone()));
            }
            if list.changed().await.is_err() {
                return;
            }
        }
    }

    fn spawn(&self, server: Endpoint) -> Tasks {
        let tasks = self.tasks.child();
        let (asker, own, stop) = (self.clone(), tasks.clone(), tasks.stop());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.requested() => {}
                () = asker.ask(&server, &own) => {}
            }
        });
        tasks
    }

    /// Asks one server again and again, and at once when its connection is made anew: another process may be there.
    async fn ask(&self, server: &Endpoint, tasks: &Tasks) {
        let mut pause = PAUSE_FIRST;
        loop {
            if let Ok(connection) = Connection::open(&self.dialer, server, CONNECT_LIMIT, tasks).await
                && self.ask_over(&connection, server).await
            {
                pause = PAUSE_FIRST;
            }
            // So that the agents of many machines do not come all at once.
            let wait = pause.mul_f64(rand::rng().random_range(0.8..=1.0));
            sleep(wait).await;
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    /// Asks until the connection ends; whether it lasted from one question to the next.
    async fn ask_over(&self, connection: &Connection, server: &Endpoint) -> bool {
        let mut lasted = false;
        let question = Request::new(request::IDENTIFY_AGENT);
        while let Ok(answer) = connection.call(&question, ANSWER_LIMIT).await {
            let identity = Identity::of(&answer);
            let period = if identity.is_some() { AGENT_PERIOD } else { SERVER_PERIOD };
            self.change(|loops| loops.heard(server, identity));
            tokio::select! {
                () = connection.closed() => return lasted,
                () = sleep(period) => lasted = true,
            }
        }
        lasted
    }

    /// Under one lock with what follows for the list, so that it never is an older state that is published last.
    fn change(&self, change: impl FnOnce(&mut Loops) -> Vec<Change>) {
        let mut loops = self.loops();
        for change in change(&mut loops) {
            log(&change);
        }
        self.servers.leave_out(loops.addresses_left_out());
    }

    fn loops(&self) -> MutexGuard<'_, Loops> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(change: &Change) {
    match change {
        Change::LeadsBack(server) => {
            tracing::warn!(%server, "name server left out: it is an agent that leads back to this one");
        }
        Change::LeadsOn(server) => {
            tracing::info!(%server, "name server is used again: it leads back to this agent no longer");
        }
        Change::NobodyLeft => tracing::error!(
            "no name server is left: each of the list is an agent that leads back to this one; give the list of the \
             cluster"
        ),
    }
}
