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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::{Instant, timeout};
    use waypost_rocketmq_wire::code::request::HEART_BEAT;
    use waypost_rocketmq_wire::frame::{FrameLimits, HeaderEncoding, decode_frame};
    use waypost_rocketmq_wire::message::Request;

    use super::*;

    /// Far more than anything here takes.
    const DEADLINE: Duration = Duration::from_secs(20);

    /// A broker of a name server that is away, and a client that is connected to it.
    async fn pair() -> (SimulatedBroker, TcpStream) {
        let servers = Source::parse("127.0.0.1:1").expect("a list");
        let broker = SimulatedBroker::start(&BrokerPlan::default(), servers, Dialer::default()).await;
        let broker = broker.expect("it starts");
        let address = broker.address().to_string();
        let client = TcpStream::connect(address).await.expect("a connection");
        (broker, client)
    }

    async fn ask(client: &mut TcpStream, count: usize) {
        let mut bytes = Vec::new();
        (0..count).for_each(|_| Request::new(HEART_BEAT).write(HeaderEncoding::Json, &mut bytes));
        client.write_all(&bytes).await.expect("the connection is open");
    }

    /// How many answers come until none does for `patience`.
    async fn answers(client: &mut TcpStream, patience: Duration) -> usize {
        let (mut received, mut count) = (Vec::new(), 0);
        while let Ok(read) = timeout(patience, client.read_buf(&mut received)).await {
            assert!(read.expect("the connection is open") > 0, "it was closed");
            while let Some((_, length)) = decode_frame(&received, &FrameLimits::default()).expect("frames") {
                received.drain(..length);
                count += 1;
            }
        }
        count
    }

    async fn one_answer(client: &mut TcpStream) {
        let mut length = [0; 4];
        let read = timeout(DEADLINE, client.read_exact(&mut length)).await.expect("an answer in time");
        read.expect("the connection is open");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        client.read_exact(&mut frame).await.expect("the whole answer");
    }

    #[tokio::test]
    async fn a_slow_broker_answers_late_and_none_later_for_the_others() {
        let (broker, mut client) = pair().await;
        let delay = Duration::from_millis(300);
        broker.behave(Conduct { delay, ..Conduct::default() }).expect("it can");
        let start = Instant::now();
        ask(&mut client, 5).await;
        one_answer(&mut client).await;
        assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
        assert_eq!(broker.messages(), 0);
    }

    #[tokio::test]
    async fn a_paused_broker_answers_what_waited_when_it_goes_on() {
        let (broker, mut client) = pair().await;
        ask(&mut client, 1).await;
        one_answer(&mut client).await;
        broker.behave(Conduct { paused: true, ..Conduct::default() }).expect("it can");
        ask(&mut client, 3).await;
        // The kernel takes a connection, as it does for a stopped process.
        let mut late = TcpStream::connect(broker.address().to_string()).await.expect("a connection");
        ask(&mut late, 1).await;
        assert_eq!(answers(&mut client, Duration::from_millis(200)).await, 0);
        assert_eq!(answers(&mut late, Duration::from_millis(100)).await, 0);
        broker.behave(Conduct::default()).expect("it can");
        one_answer(&mut client).await;
        one_answer(&mut late).await;
    }

    #[tokio::test]
    async fn a_lossy_broker_loses_its_share_and_keeps_the_connection() {
        let (broker, mut client) = pair().await;
        broker.behave(Conduct { loss: 0.5, ..Conduct::default() }).expect("it can");
        ask(&mut client, 400).await;
        let count = answers(&mut client, Duration::from_millis(500)).await;
        // Ten standard deviations on each side.
        assert!((100..300).contains(&count), "{count} of 400");
        broker.behave(Conduct { loss: 1.0, ..Conduct::default() }).expect("it can");
        ask(&mut client, 100).await;
        assert_eq!(answers(&mut client, Duration::from_millis(200)).await, 0);
    }

    #[tokio::test]
    async fn a_broker_that_is_dropped_takes_its_connections_with_it() {
        let (broker, mut client) = pair().await;
        ask(&mut client, 1).await;
        one_answer(&mut client).await;
        drop(broker);
        let end = timeout(DEADLINE, client.read(&mut [0; 1])).await.expect("it ends in time");
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
