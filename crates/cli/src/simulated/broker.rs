//! One simulated broker: a door for clients, a registrar for servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use waypost_net::address::HostPort;
use waypost_net::dialer::Dialer;
use waypost_net::tasks::Tasks;
use waypost_rocketmq_registrar::{
    ActingMaster, Beat, Drill, Farewell, Identity, IdentityError, Options, Registrar, Role, ServerState,
    StartError,
};
use waypost_rocketmq_remoting::source::Source;

use super::door::Door;
use super::fault::Conduct;
use super::plan::BrokerPlan;

/// How long connections of clients may take to close at the end.
const END_LIMIT: Duration = Duration::from_millis(200);

/// Why a simulated broker does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// It cannot listen.
    #[error(
        "broker {broker} cannot listen on {address}: {source}; choose another address, port 0 for a free one"
    )]
    Port {
        /// The broker.
        broker: String,
        /// Where.
        address: HostPort,
        /// What the system said.
        source: io::Error,
    },
    /// Its registrar does not start.
    #[error("broker {broker}: {source}")]
    Registrar {
        /// The broker.
        broker: String,
        /// Why.
        source: StartError,
    },
}

/// A simulated broker that runs. Dropping it is like killing it: connections end, nothing is unregistered.
#[derive(Debug)]
pub struct SimulatedBroker {
    name: String,
    address: HostPort,
    role: Role,
    registrar: Registrar,
    conduct: watch::Sender<Conduct>,
    messages: Arc<AtomicU64>,
    tasks: Tasks,
}

impl Drop for SimulatedBroker {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl SimulatedBroker {
    /// Opens its port and starts to register.
    ///
    /// # Errors
    ///
    /// When the port is taken or the broker cannot be announced; nothing of it runs then.
    pub async fn start(plan: &BrokerPlan, servers: Source, dialer: Dialer) -> Result<Self, SimulationError> {
        let (conduct, conducted) = watch::channel(Conduct::default());
        let messages = Arc::new(AtomicU64::new(0));
        let door = Door::open(&plan.address, conducted, Arc::clone(&messages)).await;
        let door = door.map_err(|source| SimulationError::Port {
            broker: plan.name.clone(),
            address: plan.address.clone(),
            source,
        })?;
        let address = HostPort { host: plan.address.host.clone(), port: door.address().port() };
        let role = if plan.id == 0 { Role::Master } else { Role::Slave(plan.id) };
        let mut options = Options::new(Identity::new(&plan.cluster, &plan.name, address.clone()), servers);
        options.role = role;
        options.topics.clone_from(&plan.topics);
        options.dialer = dialer;
        options.timing.period = plan.period;
        options.timing.acting_master =
            plan.heartbeat.map(|beat| ActingMaster { beat, with: Beat::Heartbeat, timeout: plan.timeout });
        options.allow_unreachable = plan.allow_unreachable;
        let registrar = Registrar::start(options)
            .map_err(|source| SimulationError::Registrar { broker: plan.name.clone(), source })?;
        let tasks = Tasks::new();
        tasks.spawn(door.answer_all(tasks.stop()));
        Ok(Self { name: plan.name.clone(), address, role, registrar, conduct, messages, tasks })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens, as it announces it.
    #[must_use]
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// How many messages clients sent to it.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// How each server stands.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerState> {
        self.registrar.servers()
    }

    /// Behaves like this from now on.
    ///
    /// # Errors
    ///
    /// Never for an id that it could be started with.
    pub fn behave(&self, conduct: Conduct) -> Result<(), IdentityError> {
        self.conduct.send_replace(conduct);
        let drill =
            Drill { silent: conduct.paused || conduct.silent, loss: conduct.loss, ..Drill::default() };
        self.registrar.set_drill(drill);
        self.registrar.set_role(if conduct.absent { Role::Undecided } else { self.role })
    }

    /// Unregisters from all servers and ends, within `limit`; returns what each server said.
    pub async fn close(self, limit: Duration) -> Vec<Farewell> {
        let farewells = self.registrar.close(limit).await;
        self.tasks.cancel();
        self.tasks.drain(END_LIMIT).await;
        farewells
    }
}
