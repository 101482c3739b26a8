//! A broker group: a master and its slaves under one name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::route::GroupView;
use crate::topic::TopicId;

/// Index of a group in the table. Reused after the group is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct GroupId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    /// The cluster that routes name. The group is shared by name, so members of other clusters can
    /// be in it (decision 4).
    pub(crate) cluster: Arc<str>,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) acting_master: bool,
    /// Addresses by id. Never empty between commands.
    pub(crate) members: BTreeMap<i64, Arc<str>>,
    /// Topics in which the group has queues or mappings.
    pub(crate) topics: HashSet<TopicId, foldhash::fast::RandomState>,
    /// Counts the changes after which a known body must be parsed again (decision 3).
    pub(crate) touched: u64,
    /// What routes show of it; `None` while it has to be made anew, never between commands.
    pub(crate) view: Option<Arc<GroupView>>,
}

impl Group {
    pub(crate) fn new(name: Arc<str>, cluster: Arc<str>) -> Self {
        Self {
            name,
            cluster,
            zone: None,
            acting_master: false,
            members: BTreeMap::new(),
            topics: HashSet::default(),
            touched: 0,
            view: None,
        }
    }

    pub(crate) fn min_id(&self) -> Option<i64> {
        self.members.keys().next().copied()
    }

    pub(crate) fn has_master(&self) -> bool {
        self.members.contains_key(&0)
    }

    /// Makes every known body of the group's brokers be parsed when it comes again.
    pub(crate) fn touch(&mut self) {
        self.touched += 1;
    }
}
