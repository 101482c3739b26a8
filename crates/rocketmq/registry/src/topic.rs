//! A topic: its queues by broker group, and its static-queue mappings.

use std::collections::BTreeMap;
use std::sync::Arc;

use waypost_rocketmq_wire::body::TopicQueueMapping;

use crate::group::GroupId;
use crate::route::{Queues, Route};

/// Index of a topic in the table. Reused after the topic is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TopicId(pub(crate) u32);

/// Static-queue mappings by the broker name inside the mapping, and which group announced them.
pub(crate) type Mappings = BTreeMap<String, (GroupId, TopicQueueMapping)>;

#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    /// One entry a group, unordered, few.
    pub(crate) queues: Vec<TopicQueues>,
    /// Boxed because few topics have any.
    pub(crate) mappings: Option<Box<Mappings>>,
    /// What was published last; `None` if readers find nothing.
    pub(crate) route: Option<Arc<Route>>,
}

/// The queues that one group has for a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopicQueues {
    pub(crate) group: GroupId,
    /// What the broker announced last (decision 1).
    pub(crate) announced: Queues,
    /// A permission that stands instead of the announced one until the broker announces the topic
    /// under another data version or is registered anew (decision 2).
    pub(crate) overlay: Option<i32>,
}

impl TopicQueues {
    /// What readers see, but for a wipe of the whole group.
    pub(crate) fn effective(&self) -> Queues {
        Queues { perm: self.overlay.unwrap_or(self.announced.perm), ..self.announced }
    }
}

impl Topic {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, queues: Vec::new(), mappings: None, route: None }
    }

    pub(crate) fn queues_of(&self, group: GroupId) -> Option<&TopicQueues> {
        self.queues.iter().find(|queues| queues.group == group)
    }

    pub(crate) fn queues_of_mut(&mut self, group: GroupId) -> Option<&mut TopicQueues> {
        self.queues.iter_mut().find(|queues| queues.group == group)
    }

    /// Whether a group has queues or a mapping here.
    pub(crate) fn knows(&self, group: GroupId) -> bool {
        let mut owners = self.mappings.iter().flat_map(|mappings| mappings.values());
        self.queues_of(group).is_some() || owners.any(|(owner, _)| *owner == group)
    }

    /// Removes everything that a group has here; whether it had queues.
    pub(crate) fn remove_group(&mut self, group: GroupId) -> bool {
        let before = self.queues.len();
        self.queues.retain(|queues| queues.group != group);
        if let Some(mappings) = &mut self.mappings {
            mappings.retain(|_, (owner, _)| *owner != group);
            if mappings.is_empty() {
                self.mappings = None;
            }
        }
        self.queues.len() < before
    }
}
