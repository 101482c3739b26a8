//! Puts questions to brokers that were silent or failed (decision 25).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use waypost_net::address::HostPort;
use waypost_net::clock::Clock;
use waypost_net::dialer::{Dialer, resolve};
use waypost_net::tasks::Tasks;
use waypost_rocketmq_remoting::connection::Connection;
use waypost_rocketmq_remoting::endpoint::Endpoint;
use waypost_rocketmq_remoting::error::CallError;
use waypost_rocketmq_wire::code::request::GET_MAX_OFFSET;
use waypost_rocketmq_wire::language::Language;
use waypost_rocketmq_wire::message::Request;

use crate::client::Shared;
use crate::driver::Command;
use crate::probes::{PROBE_TICK, Probe, ProbeOutcome};

type Connections = Arc<Mutex<HashMap<String, Connection>>>;

/// Probes brokers until everything stops.
pub(crate) async fn run(
    shared: Arc<Shared>,
    dialer: Dialer,
    commands: mpsc::WeakUnboundedSender<Command>,
    tasks: Tasks,
) {
    let stop = tasks.stop();
    let clock = Clock::system();
    let connections = Connections::default();
    let mut ticks = interval(PROBE_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.requested() => return,
            _ = ticks.tick() => {}
        }
        let due = {
            let mut side = shared.brokers();
            let side = &mut *side;
            side.faults.due_probes(&side.brokers, clock.now(), &mut side.random)
        };
        for probe in due {
            tasks.spawn(put(
                probe,
                Arc::clone(&shared),
                dialer.clone(),
                Arc::clone(&connections),
                commands.clone(),
                tasks.clone(),
            ));
        }
        // A broker that left keeps no connection.
        let mut open = connections.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, connection| connection.is_open());
    }
}

async fn put(
    probe: Probe,
    shared: Arc<Shared>,
    dialer: Dialer,
    connections: Connections,
    commands: mpsc::WeakUnboundedSender<Command>,
    tasks: Tasks,
) {
    let clock = Clock::system();
    let stop = tasks.stop();
    let began = clock.now();
    let outcome = tokio::select! {
        () = stop.requested() => return,
        answered = tokio::time::timeout(probe.limit, ask(&probe, &dialer, &connections, &tasks)) => match answered {
            Ok(Ok(code)) => ProbeOutcome::Answered { code, latency: clock.now().since(began) },
            Ok(Err(CallError::TimedOut { .. })) | Err(_) => ProbeOutcome::TimedOut,
            Ok(Err(_)) => ProbeOutcome::Failed,
        },
    };
    let failed = {
        let mut side = shared.brokers();
        let now = clock.now();
        let was_well = side.faults.is_available(&probe.broker, now);
        side.faults.probe_result(&probe.broker, outcome, now);
        was_well && !side.faults.is_available(&probe.broker, now)
    };
    if failed {
        tracing::warn!(broker = %probe.broker, address = probe.address, "a broker does not answer and is avoided");
        if let Some(commands) = commands.upgrade() {
            // Fails only while everything stops.
            let _ = commands.send(Command::ReportFailure(Arc::clone(&probe.topic)));
        }
    }
}

async fn ask(
    probe: &Probe,
    dialer: &Dialer,
    connections: &Connections,
    tasks: &Tasks,
) -> Result<i32, CallError> {
    let known = {
        let open = connections.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&probe.address).filter(|connection| connection.is_open()).cloned()
    };
    let connection = match known {
        Some(connection) => connection,
        None => {
            let connection = connect(probe, dialer, tasks).await?;
            let mut open = connections.lock().unwrap_or_else(PoisonError::into_inner);
            open.insert(probe.address.clone(), connection.clone());
            connection
        }
    };
    let queue = probe.queue_id.to_string();
    let request = Request {
        language: Language::Other,
        ext: &[("topic", &probe.topic), ("queueId", &queue)],
        ..Request::new(GET_MAX_OFFSET)
    };
    Ok(connection.call(&request, probe.limit).await?.code)
}

async fn connect(probe: &Probe, dialer: &Dialer, tasks: &Tasks) -> Result<Connection, CallError> {
    use waypost_net::dialer::DialError;
    let unknown = |address: HostPort, source| CallError::Connect(DialError::UnknownName { address, source });
    let invalid = |error: waypost_net::address::AddressError| {
        let nowhere = HostPort::from(std::net::SocketAddr::from(([0, 0, 0, 0], 0)));
        unknown(nowhere, std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
    };
    let name: HostPort = probe.address.parse().map_err(invalid)?;
    let addresses = resolve(&name).await.map_err(|source| unknown(name.clone(), source))?;
    let first = addresses.first().copied();
    let missing = || unknown(name.clone(), std::io::ErrorKind::NotFound.into());
    let address = first.ok_or_else(missing)?;
    Connection::open(dialer, &Endpoint { name, address }, probe.limit, tasks).await
}
