//! The readers' index: topic to route, without locks.

use std::sync::Arc;

use crate::effects::RouteChange;
use crate::route::Route;

/// Maps topics to their current routes. One writer publishes, any number of readers look up.
///
/// A reader sees each topic whole: a route is replaced in one step, and a topic never goes back
/// to older content, because there is one writer and it publishes in the order of its changes.
#[derive(Debug, Default)]
pub struct RouteIndex {
    routes: papaya::HashMap<Arc<str>, Arc<Route>, foldhash::quality::RandomState>,
}

impl RouteIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `read` with the route of a topic, if it has one, without counting a reference.
    pub fn with_route<R>(&self, topic: &str, read: impl FnOnce(&Arc<Route>) -> R) -> Option<R> {
        let pinned = self.routes.pin();
        pinned.get(topic).map(read)
    }

    /// The route of a topic, if it has one.
    pub fn route(&self, topic: &str) -> Option<Arc<Route>> {
        self.with_route(topic, Arc::clone)
    }

    /// How many topics have a route.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether no topic has a route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Makes changes visible. To be called by the owner of the table alone.
    pub fn publish(&self, changes: &[RouteChange]) {
        let pinned = self.routes.pin();
        for change in changes {
            match &change.route {
                Some(route) => {
                    pinned.insert(Arc::clone(&change.topic), Arc::clone(route));
                }
                None => {
                    pinned.remove(&*change.topic);
                }
            }
        }
    }
}
