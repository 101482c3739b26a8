//! Choosing where the next message goes, or where to read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use thiserror::Error;

use crate::brokers::publish_address;
use crate::client::{Discovery, RouteWatch};
use crate::picker::{Charges, QueuePicker, key_hash, pick_by_key};
use crate::publish::Unwritable;
use crate::queue::Queue;
use crate::route::TopicRoute;

/// A queue and where its broker listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The queue.
    pub queue: Queue,
    /// The address of its master, `host:port`.
    pub address: String,
}

/// Why there is no queue to choose.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The route is not known: nobody answered yet, or there is no such topic.
    #[error("no route of topic \"{topic}\" is known; look it up first, the lookup says why there is none")]
    NoRoute {
        /// The topic.
        topic: String,
    },
    /// The topic exists but cannot be written.
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    /// The queue is named by an order configuration or a static mapping, but its broker has no master.
    #[error(
        "queue {} of broker {} has no master in the route of topic \"{topic}\"; is the broker running?",
        queue.id, queue.broker
    )]
    NoMaster {
        /// The topic.
        topic: String,
        /// The queue.
        queue: Queue,
    },
}

/// Chooses queues of one topic for one caller, round robin from a random start. It keeps the topic fresh.
///
/// It remembers the route and the faults that it saw last, and looks at two numbers to learn that they are others:
/// callers do not wait for each other. Only a choice that may be the trial of a broker is made under the lock.
#[derive(Debug)]
pub struct Chooser {
    watch: RouteWatch,
    picker: QueuePicker,
    random: SmallRng,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    version: u64,
    route: Arc<TopicRoute>,
    fault_changes: u64,
    charges: Charges,
}

impl Discovery {
    /// A chooser of the topic's queues; each caller has its own.
    #[must_use]
    pub fn chooser(&self, topic: &str) -> Chooser {
        let (picker, random) = {
            let mut side = self.shared().brokers();
            (QueuePicker::new(&mut side.random), SmallRng::from_rng(&mut side.random))
        };
        Chooser { watch: self.watch(topic), picker, random, seen: None }
    }

    /// Where to read a queue of `broker` from: the member with `wanted_id`, or another that is well.
    #[must_use]
    pub fn read_address(&self, broker: &str, wanted_id: i64) -> Option<String> {
        let side = self.shared().brokers();
        let member = side.brokers.for_reading(broker, wanted_id, &side.faults, self.clock().now());
        member.map(|member| member.address.to_owned())
    }
}

impl Chooser {
    /// The next queue. After a failed try, `last_broker` is the broker that failed: another is chosen if there
    /// is one. Never waits.
    ///
    /// # Errors
    ///
    /// [`ChooseError`].
    pub fn choose(&mut self, last_broker: Option<&str>) -> Result<Choice, ChooseError> {
        self.look()?;
        let Self { watch, picker, random, seen } = self;
        let Some(Seen { route, charges, .. }) = seen else { return Err(no_route(watch)) };
        let queues = route.writable(watch.topic())?;
        let discovery = watch.discovery();
        let queue = if charges.need_a_note(|| discovery.clock().now()) {
            let mut side = discovery.shared().brokers();
            let now = discovery.clock().now();
            picker.pick(queues, &mut side.faults, now, last_broker, random)
        } else {
            picker.pick_by(queues, charges, last_broker, random)
        };
        with_address(watch, route, queue)
    }

    /// Makes sure that what is remembered is what is known now.
    fn look(&mut self) -> Result<(), ChooseError> {
        let shared = self.watch.discovery().shared();
        // The numbers are read before what they stand for: a change in between is seen by the next look.
        let version = self.watch.version();
        let fault_changes = shared.fault_changes.load(Ordering::Acquire);
        let same_route = self.seen.as_ref().filter(|seen| seen.version == version);
        if same_route.is_some_and(|seen| seen.fault_changes == fault_changes) {
            return Ok(());
        }
        let route = match same_route {
            Some(seen) => Arc::clone(&seen.route),
            None => {
                self.seen = None;
                self.route()?
            }
        };
        let charges = Charges::collect(route.publish(), &shared.brokers().faults);
        self.seen = Some(Seen { version, route, fault_changes, charges });
        Ok(())
    }

    /// The queue of an ordered key: always the same while the route stays, whatever its broker's health.
    ///
    /// # Errors
    ///
    /// [`ChooseError`].
    pub fn choose_by_key(&self, key: &str) -> Result<Choice, ChooseError> {
        let route = self.route()?;
        let queue = pick_by_key(route.writable(self.watch.topic())?, key_hash(key));
        with_address(&self.watch, &route, queue)
    }

    /// The topic that is chosen from.
    #[must_use]
    pub fn watch(&self) -> &RouteWatch {
        &self.watch
    }

    fn route(&self) -> Result<Arc<TopicRoute>, ChooseError> {
        self.watch.current().route.ok_or_else(|| no_route(&self.watch))
    }
}

fn no_route(watch: &RouteWatch) -> ChooseError {
    ChooseError::NoRoute { topic: watch.topic().to_string() }
}

fn with_address(watch: &RouteWatch, route: &TopicRoute, queue: Option<Queue>) -> Result<Choice, ChooseError> {
    let queue = queue.ok_or_else(|| no_route(watch))?;
    let address = route.group(&queue.broker).and_then(|group| publish_address(&group.broker_addrs));
    match address.map(str::to_owned) {
        Some(address) => Ok(Choice { queue, address }),
        None => Err(ChooseError::NoMaster { topic: watch.topic().to_string(), queue }),
    }
}
