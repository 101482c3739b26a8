//! Choosing where the next message goes, or where to read.

use std::sync::Arc;

use thiserror::Error;

use crate::brokers::publish_address;
use crate::client::{Discovery, RouteWatch};
use crate::picker::{QueuePicker, key_hash, pick_by_key};
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
#[derive(Debug)]
pub struct Chooser {
    watch: RouteWatch,
    picker: QueuePicker,
}

impl Discovery {
    /// A chooser of the topic's queues; each caller has its own.
    #[must_use]
    pub fn chooser(&self, topic: &str) -> Chooser {
        let picker = QueuePicker::new(&mut self.shared().brokers().random);
        Chooser { watch: self.watch(topic), picker }
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
        let route = self.route()?;
        let queues = route.writable(self.watch.topic())?;
        let queue = {
            let discovery = self.watch.discovery();
            let mut side = discovery.shared().brokers();
            let side = &mut *side;
            let now = discovery.clock().now();
            self.picker.pick(queues, &mut side.faults, now, last_broker, &mut side.random)
        };
        self.with_address(&route, queue)
    }

    /// The queue of an ordered key: always the same while the route stays, whatever its broker's health.
    ///
    /// # Errors
    ///
    /// [`ChooseError`].
    pub fn choose_by_key(&self, key: &str) -> Result<Choice, ChooseError> {
        let route = self.route()?;
        let queue = pick_by_key(route.writable(self.watch.topic())?, key_hash(key));
        self.with_address(&route, queue)
    }

    /// The topic that is chosen from.
    #[must_use]
    pub fn watch(&self) -> &RouteWatch {
        &self.watch
    }

    fn route(&self) -> Result<Arc<TopicRoute>, ChooseError> {
        let missing = || ChooseError::NoRoute { topic: self.watch.topic().to_string() };
        self.watch.current().route.ok_or_else(missing)
    }

    fn with_address(&self, route: &TopicRoute, queue: Option<Queue>) -> Result<Choice, ChooseError> {
        let topic = || self.watch.topic().to_string();
        let queue = queue.ok_or_else(|| ChooseError::NoRoute { topic: topic() })?;
        let address = route.group(&queue.broker).and_then(|group| publish_address(&group.broker_addrs));
        match address.map(str::to_owned) {
            Some(address) => Ok(Choice { queue, address }),
            None => Err(ChooseError::NoMaster { topic: topic(), queue }),
        }
    }
}
