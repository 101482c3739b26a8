//! The unknown topics that are asked for at this moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Each costs questions to every server for up to 3 s, and the names come from peers.
const MAX: usize = 256;

/// Counts them by name: one more caller of a name costs nothing.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    callers: Mutex<HashMap<Arc<str>, usize>>,
}

/// Too many at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the agent is asking the name servers for {MAX} unknown topics already, no more at once; ask again")]
pub(crate) struct Crowded;

/// A caller's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    under_way: &'a UnderWay,
    topic: &'a Arc<str>,
}

impl UnderWay {
    /// Takes a place for one more caller of the topic.
    ///
    /// # Errors
    ///
    /// [`Crowded`] for one more topic than may be under way.
    pub(crate) fn enter<'a>(&'a self, topic: &'a Arc<str>) -> Result<Place<'a>, Crowded> {
        let mut callers = self.callers();
        if callers.len() >= MAX && !callers.contains_key(topic) {
            return Err(Crowded);
        }
        let count = callers.entry(Arc::clone(topic)).or_default();
        *count = count.saturating_add(1);
        Ok(Place { under_way: self, topic })
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut callers = self.under_way.callers();
        if let Some(count) = callers.get_mut(self.topic) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                callers.remove(self.topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_topic_too_many_is_refused_until_a_place_is_free() {
        let under_way = UnderWay::default();
        let names: Vec<Arc<str>> = (0..=MAX).map(|number| format!("t{number}").into()).collect();
        let mut places: Vec<Place<'_>> =
            names[..MAX].iter().map(|name| under_way.enter(name).expect("room")).collect();
        assert_eq!(under_way.enter(&names[MAX]).err(), Some(Crowded));
        let again = under_way.enter(&names[0]).expect("its question is under way");
        places.swap_remove(0);
        assert_eq!(under_way.enter(&names[MAX]).err(), Some(Crowded), "somebody waits for it still");
        drop(again);
        assert!(under_way.enter(&names[MAX]).is_ok());
        drop(places);
        assert!(under_way.callers().is_empty());
    }
}
