//! What every name server has to hear from one broker: the frames that make up its state, in their order.
//!
//! One outbox serves all servers; each has a [`Cursor`] into it. So a hung server costs no memory of its own, and
//! what a frame makes superfluous is gone for all of them.
//!
//! Rules:
//!
//! 1. A registration owns the topics that it lists until a later one lists them again; a frame that owns none
//!    any more goes.
//! 2. A frame with a single topic takes it only from frames with that single topic: a server refuses a single
//!    topic of a broker that it does not know (part C 7), so the tables must stay in front of them.
//! 3. Of signs of life (322, 904) only the last stays, and a registration makes it superfluous.
//! 4. A 104 makes everything before it superfluous.
//! 5. A topic that the broker did not repeat in a round of its full registration is not resent for ever: its
//!    frame goes when a table comes that is [`ROUND_MAX`] younger.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waypost_net::clock::Millis;

use crate::room::cost;

/// The longest period between two full registrations, 60 s (part C 1), and time for all parts of one.
pub(crate) const ROUND_MAX: Duration = Duration::from_secs(65);

/// Frames that one broker may have here: it creates topics one by one between two full registrations.
pub(crate) const FRAMES_MAX: usize = 4_096;

/// A table of owners of this size is not worth shrinking.
const OWNERS_KEPT: usize = 1_024;

/// A frame as the broker sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// All of its bytes.
    pub bytes: Bytes,
    /// The request code.
    pub code: i32,
    /// Pairs the agent's answer with it; servers get it under an opaque of the agent's connection.
    pub opaque: i32,
    /// The broker wants no answer, so servers give none.
    pub oneway: bool,
}

/// The topics of a registration, as hashes of their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Topics {
    hashes: Arc<[u64]>,
    single: bool,
}

impl Topics {
    /// The topics, without order and without repetition. `single` says that a server takes the frame for a
    /// change of one topic rather than for a table.
    #[must_use]
    pub(crate) fn new(mut hashes: Vec<u64>, single: bool) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        Self { hashes: hashes.into(), single }
    }

    /// Whether a server that does not know the broker refuses this.
    #[must_use]
    pub(crate) const fn is_single(&self) -> bool {
        self.single
    }

    /// How many there are.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }
}

/// How far one server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cursor {
    /// The last entry that it took on its present connection.
    position: u64,
    /// The last entry that it ever took.
    taken: u64,
}

/// A frame that a server is to get next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    /// Its number, for [`Outbox::taken`].
    pub number: u64,
    /// The frame.
    pub frame: Frame,
}

#[derive(Debug)]
enum Kind {
    /// Part of the table; how many topics it owns, and the digest of its body.
    Table { topics: Topics, owned: usize, digest: Option<u128> },
    /// A sign of life.
    Beat,
    /// A 104.
    Leave,
}

#[derive(Debug)]
struct Entry {
    frame: Frame,
    heard_at: Millis,
    kind: Kind,
}

/// Who announced a topic last: in a table, and alone.
#[derive(Clone, Copy, Debug, Default)]
struct Owners {
    table: u64,
    single: u64,
}

/// The frames that make up the state of a broker, and what else servers have to hear.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    entries: BTreeMap<u64, Entry>,
    owners: HashMap<u64, Owners>,
    /// The last table, which stays even if it is empty.
    last_table: u64,
    last: u64,
    /// What the tables take.
    bytes: usize,
}

/// A registration.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The frame.
    pub frame: Frame,
    /// What it lists.
    pub topics: Topics,
    /// Tells bodies apart.
    pub digest: Option<u128>,
    /// The broker sends its full table every [`ROUND_MAX`] at least (rule 5).
    pub repeats: bool,
}

/// What became of frames that were not superfluous.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// How many had to go for want of room, or because a server would refuse them. The broker should be made to
    /// send everything again.
    pub frames: usize,
    /// How many of these for want of room.
    pub for_room: usize,
}

impl Outbox {
    /// Adds a registration. All tables together take `room` at most.
    pub(crate) fn table(&mut self, said: Said, room: usize, now: Millis) -> Lost {
        let Said { frame, topics, digest, repeats } = said;
        self.remove_where(|entry| matches!(entry.kind, Kind::Beat));
        let number = self.next_number();
        for hash in topics.hashes.iter() {
            let owners = self.owners.entry(*hash).or_default();
            let before = *owners;
            if topics.single {
                owners.single = number;
            } else {
                *owners = Owners { table: number, single: 0 };
                self.disown(before.table);
            }
            self.disown(before.single);
        }
        let single = topics.single;
        let owned = topics.hashes.len();
        self.bytes = self.bytes.saturating_add(cost(frame.bytes.len(), owned));
        self.entries
            .insert(number, Entry { frame, heard_at: now, kind: Kind::Table { topics, owned, digest } });
        if !single {
            let before = std::mem::replace(&mut self.last_table, number);
            self.remove_if_bare(before);
            if repeats {
                self.remove_where(|entry| {
                    matches!(entry.kind, Kind::Table { .. }) && now.since(entry.heard_at) > ROUND_MAX
                });
            }
        }
        let lost = self.keep_bounds(room);
        self.shrink();
        lost
    }

    /// Adds a sign of life (rule 3).
    pub(crate) fn beat(&mut self, frame: Frame, now: Millis) {
        self.remove_where(|entry| matches!(entry.kind, Kind::Beat));
        self.push(frame, Kind::Beat, now);
    }

    /// Adds a 104 (rule 4). Returns its number.
    pub(crate) fn leave(&mut self, frame: Frame, now: Millis) -> u64 {
        self.entries.clear();
        self.owners = HashMap::new();
        (self.bytes, self.last_table) = (0, 0);
        self.push(frame, Kind::Leave, now)
    }

    /// The topics of a body that is here already.
    #[must_use]
    pub(crate) fn known(&self, wanted: u128) -> Option<&Topics> {
        self.entries.values().rev().find_map(|entry| match &entry.kind {
            Kind::Table { topics, digest, .. } if *digest == Some(wanted) => Some(topics),
            _ => None,
        })
    }

    /// The last frame that announced this topic.
    #[must_use]
    pub(crate) fn announced(&self, hash: u64) -> Option<u64> {
        self.owners.get(&hash).map(|owners| owners.table.max(owners.single))
    }

    /// Forgets that the broker announced this topic: an operator deleted it (216), so a server that comes
    /// back must not hear of it from here.
    pub(crate) fn delete(&mut self, hash: u64) {
        if let Some(owners) = self.owners.remove(&hash) {
            self.disown(owners.table);
            self.disown(owners.single);
        }
    }

    /// Forgets the state: the address has other names now, so servers drop what they knew (decision 4).
    pub(crate) fn forget_state(&mut self) {
        self.remove_where(|entry| matches!(entry.kind, Kind::Table { .. } | Kind::Beat));
        self.last_table = 0;
    }

    /// What the server is to get next.
    #[must_use]
    pub(crate) fn next(&self, cursor: &Cursor) -> Option<Next> {
        let (number, entry) = self.due(cursor).next()?;
        Some(Next { number, frame: entry.frame.clone() })
    }

    /// How many frames the server has to get.
    #[must_use]
    pub(crate) fn waiting(&self, cursor: &Cursor) -> usize {
        self.due(cursor).count()
    }

    fn due(&self, cursor: &Cursor) -> impl Iterator<Item = (u64, &Entry)> {
        let Cursor { position, taken } = *cursor;
        let behind = self.entries.range(position.saturating_add(1)..);
        behind.map(|(number, entry)| (*number, entry)).filter(move |(number, entry)| match entry.kind {
            Kind::Table { .. } => true,
            // They are no state: whoever took one needs it no more, whatever became of its connection.
            Kind::Beat | Kind::Leave => *number > taken,
        })
    }

    /// The server took this frame.
    pub(crate) fn taken(cursor: &mut Cursor, number: u64) {
        cursor.position = cursor.position.max(number);
        cursor.taken = cursor.taken.max(number);
    }

    /// The server lost its connection or what it knew: it gets the whole state again.
    pub(crate) fn start_over(cursor: &mut Cursor) {
        cursor.position = 0;
    }

    /// Whether the server took everything up to `number`, which it does also if that is superfluous by now.
    #[must_use]
    pub(crate) fn has_taken(cursor: &Cursor, number: u64) -> bool {
        cursor.position >= number
    }

    /// The frames that make up the state, in order.
    pub(crate) fn state(&self) -> impl Iterator<Item = &Frame> {
        self.entries
            .values()
            .filter(|entry| matches!(entry.kind, Kind::Table { .. }))
            .map(|entry| &entry.frame)
    }

    /// How many frames are kept.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the tables take.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the last frame.
    #[must_use]
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    fn next_number(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }

    fn push(&mut self, frame: Frame, kind: Kind, now: Millis) -> u64 {
        let number = self.next_number();
        self.entries.insert(number, Entry { frame, heard_at: now, kind });
        number
    }

    /// An entry lost a topic to a later one.
    fn disown(&mut self, number: u64) {
        if let Some(Entry { kind: Kind::Table { owned, .. }, .. }) = self.entries.get_mut(&number) {
            *owned = owned.saturating_sub(1);
            self.remove_if_bare(number);
        }
    }

    fn remove_if_bare(&mut self, number: u64) {
        let Some(Entry { kind: Kind::Table { owned, .. }, .. }) = self.entries.get(&number) else { return };
        if *owned == 0 && number != self.last_table {
            self.remove(number);
        }
    }

    fn remove_where(&mut self, unwanted: impl Fn(&Entry) -> bool) {
        let numbers: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| unwanted(entry)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        let Kind::Table { topics, owned, .. } = entry.kind else { return };
        self.bytes = self.bytes.saturating_sub(cost(entry.frame.bytes.len(), topics.len()));
        if owned == 0 {
            return;
        }
        for hash in topics.hashes.iter() {
            let Some(owners) = self.owners.get_mut(hash) else { continue };
            if owners.table == number {
                owners.table = 0;
            }
            if owners.single == number {
                owners.single = 0;
            }
            if owners.table == 0 && owners.single == 0 {
                self.owners.remove(hash);
            }
        }
    }

    /// Gives back what owners of many topics took, once there are few.
    fn shrink(&mut self) {
        if self.owners.capacity() > OWNERS_KEPT && self.owners.len() < self.owners.capacity() / 8 {
            self.owners.shrink_to(self.owners.len());
        }
    }

    /// Drops the oldest frames beyond the bounds, and single topics in front of all tables: a server that does
    /// not know the broker would refuse them.
    fn keep_bounds(&mut self, room: usize) -> Lost {
        let mut lost = Lost::default();
        while let Some((number, entry)) = self.entries.first_key_value() {
            let refused =
                self.last_table != 0 && matches!(&entry.kind, Kind::Table { topics, .. } if topics.single);
            let too_many = self.entries.len() > FRAMES_MAX || self.bytes > room;
            if *number == self.last || !(refused || too_many) {
                break;
            }
            let number = *number;
            self.remove(number);
            lost.frames = lost.frames.saturating_add(1);
            lost.for_room = lost.for_room.saturating_add(usize::from(too_many));
        }
        lost
    }
}

#[cfg(test)]
mod tests;
