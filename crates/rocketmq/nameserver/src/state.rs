//! What all connections of one server share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use waypost_net::clock::{Clock, Millis, Pulse};
use waypost_net::sessions::Sessions;
use waypost_net::throttle::Throttle;
use waypost_net::watchdog::Watchdog;
use waypost_rocketmq_access::access::{AccessPolicy, Guard};
use waypost_rocketmq_access::audit::Audit;
use waypost_rocketmq_registry::{Policy, RouteIndex, TableLimits};
use waypost_rocketmq_wire::body::BodyLimits;
use waypost_rocketmq_wire::frame::FrameLimits;

use crate::config::{Access, Configuration, Settings};
use crate::kv::KvStore;
use crate::lane::Lane;
use crate::metrics::Metrics;
use crate::owner::Owner;

/// At most one log line for bad frames and the like in this time; the others are counted.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(10);

/// The parts of a running server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) owner: Arc<Owner>,
    pub(crate) index: Arc<RouteIndex>,
    pub(crate) kv: KvStore,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access: AccessPolicy,
    pub(crate) audit: Arc<Audit>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Clock,
    pub(crate) pulse: Pulse,
    pub(crate) watchdog: Watchdog,
    pub(crate) frame_limits: FrameLimits,
    pub(crate) body_limits: BodyLimits,
    /// Everything that needs the table and is quick.
    pub(crate) table_lane: Lane,
    /// Lists of topics and brokers: long answers, for which no sign of life may wait.
    pub(crate) list_lane: Lane,
    /// Registrations: checksum, inflating, parsing.
    pub(crate) registration_lane: Lane,
    pub(crate) complaints: Throttle,
    pub(crate) started_at: Millis,
    configuration: Mutex<Configuration>,
    settings: RwLock<Arc<Settings>>,
    /// Route queries are not served before this time (decision 14); 0 when they are.
    closed_until: AtomicU64,
    going_away: AtomicBool,
    stopping: AtomicBool,
}

/// What [`State`] is made from.
pub(crate) struct Parts {
    pub(crate) configuration: Configuration,
    pub(crate) owner: Arc<Owner>,
    pub(crate) kv: KvStore,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Clock,
    pub(crate) pulse: Pulse,
    pub(crate) watchdog: Watchdog,
    pub(crate) table_lane: Lane,
    pub(crate) list_lane: Lane,
    pub(crate) registration_lane: Lane,
}

impl State {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            configuration,
            owner,
            kv,
            metrics,
            audit,
            sessions,
            clock,
            pulse,
            watchdog,
            table_lane,
            list_lane,
            registration_lane,
        } = parts;
        let settings = configuration.shared_settings();
        let started_at = clock.now();
        let state = Self {
            index: Arc::clone(owner.index()),
            owner,
            kv,
            metrics,
            access: access_policy(&settings.access),
            audit,
            sessions,
            clock,
            pulse,
            watchdog,
            frame_limits: FrameLimits {
                frame_max: settings.limits.frame,
                header_max: settings.limits.header,
                header_depth: settings.limits.json_depth,
            },
            body_limits: BodyLimits {
                inflated_max: settings.limits.inflated_body,
                json_depth: settings.limits.json_depth,
                entries_max: settings.limits.registration_topics,
            },
            table_lane,
            list_lane,
            registration_lane,
            complaints: Throttle::new(COMPLAINT_PERIOD),
            started_at,
            configuration: Mutex::new(configuration),
            settings: RwLock::new(Arc::clone(&settings)),
            closed_until: AtomicU64::new(0),
            going_away: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        };
        state.set_gate(&settings);
        state
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads from the configuration.
    pub(crate) fn configuration<R>(&self, read: impl FnOnce(&Configuration) -> R) -> R {
        read(&self.configuration.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the configuration (318) and puts the new settings in force before it returns. Waits
    /// for the disk.
    pub(crate) fn update_configuration<R, E>(
        &self,
        change: impl FnOnce(&mut Configuration) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut configuration = self.configuration.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut configuration)?;
        let settings = configuration.shared_settings();
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&settings);
        self.set_gate(&settings);
        self.owner.apply(waypost_rocketmq_registry::Command::SetPolicy(policy(&settings)));
        Ok(result)
    }

    fn set_gate(&self, settings: &Settings) {
        let until = if settings.routes.wait_for_service {
            self.started_at.after(settings.routes.wait_duration).get()
        } else {
            0
        };
        self.closed_until.store(until, Ordering::Relaxed);
    }

    /// Whether route queries are served yet.
    pub(crate) fn serves_routes(&self) -> bool {
        let closed_until = self.closed_until.load(Ordering::Relaxed);
        closed_until == 0 || self.clock.now().get() >= closed_until
    }

    /// Notes that the server stops: it is not ready any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// From now on newer peers are told to go to another server.
    pub(crate) fn go_away(&self) {
        self.going_away.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_going_away(&self) -> bool {
        self.going_away.load(Ordering::Relaxed)
    }
}

/// Who may send which requests.
fn access_policy(access: &Access) -> AccessPolicy {
    let Access { read, broker, admin, config, black_list: _ } = access;
    AccessPolicy {
        guard: Guard::NameServer,
        read: read.clone(),
        broker: broker.clone(),
        admin: admin.clone(),
        config: config.clone(),
    }
}

/// The settings that the route table goes by.
pub(crate) fn policy(settings: &Settings) -> Policy {
    let routes = &settings.routes;
    Policy {
        broker_expire: routes.broker_expire,
        scan_interval: routes.scan_interval,
        suspect_grace: Policy::default().suspect_grace,
        support_acting_master: routes.acting_master,
        order_message: routes.order_message,
        notify_min_broker_change: routes.notify_min_broker_id,
        delete_unlisted_topics: routes.delete_unlisted_topics,
        refuse_name_in_other_cluster: routes.refuse_name_in_other_cluster,
        refuse_master_address_change: routes.refuse_master_change,
        wipe_survives_registration: routes.wipe_survives,
        add_restores_announced: routes.add_restores,
    }
}

/// The limits of the route table.
pub(crate) fn table_limits(settings: &Settings) -> TableLimits {
    TableLimits {
        topics: settings.limits.topics,
        brokers: settings.limits.brokers,
        name_length: settings.limits.name_length,
    }
}
