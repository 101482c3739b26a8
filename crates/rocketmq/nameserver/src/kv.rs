//! The KV configuration (spec 2.15): namespaces of keys and values, kept in the original's
//! `kvConfig.json`, so that a cluster can move over and back.
//!
//! A change is answered only once it is on disk (decision 12): one thread takes the changes that
//! wait, writes them together into a temporary file, syncs and renames it, syncs the folder,
//! shows the new table to readers and then answers. A change that could not be made durable
//! changes nothing: the old file is put back if need be. Readers see durable content only, through a shared snapshot.
//!
//! ```no_run
//! use tokio::sync::oneshot;
//! use waypost_rocketmq_nameserver::kv::{KvOptions, KvStore};
//!
//! # async fn example(options: KvOptions) -> Result<(), Box<dyn std::error::Error>> {
//! let (store, report) = KvStore::open(options, Box::new(|_changes| {}))?;
//! println!("{} entries", report.entries);
//! let (reply, answer) = oneshot::channel();
//! store.put(Some("ORDER_TOPIC_CONFIG"), Some("TopicA"), Some("broker-a:8"), reply);
//! answer.await??;
//! assert_eq!(store.snapshot().get("ORDER_TOPIC_CONFIG", "TopicA"), Some("broker-a:8"));
//! # Ok(()) }
//! ```
//!
//! Invariants: the file parses at every moment, whenever the process is killed; it holds every
//! change that was answered with success; the snapshot never holds what the file does not.

mod error;
mod file;
mod load;
#[cfg(test)]
pub(crate) mod scratch;
mod snapshot;
mod store;

use std::path::PathBuf;

pub use error::{KvError, KvOpenError};
pub use file::KvDamage;
pub use load::{DroppedEntry, KvReport};
pub use snapshot::{KvChange, KvSnapshot};
pub use store::{KvStatistics, KvStore, OnChange};

use crate::config::Settings;

/// The only namespace with a meaning of its own: its keys are topics, its values say how many
/// queues of which broker are in order (`broker-a:8;broker-b:8`).
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// How a KV store is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvOptions {
    /// The file.
    pub path: PathBuf,
    /// Take the content of `<path>.bak` if the file is damaged or missing (`--kv-from-backup`).
    /// The damaged file is kept as `<path>.damaged`. A sound file is used as it is.
    pub from_backup: bool,
    /// How much the table may hold.
    pub limits: KvLimits,
}

/// How much the KV configuration may hold. A put that would pass a limit is refused; what a file
/// holds beyond them is loaded all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvLimits {
    /// Keys and namespaces together.
    pub entries: usize,
    /// Bytes of one namespace or key.
    pub name: usize,
    /// Bytes of one value.
    pub value: usize,
    /// Bytes of all namespaces, keys and values together.
    pub total: usize,
}

impl KvOptions {
    /// The options that a configuration asks for.
    #[must_use]
    pub fn new(settings: &Settings, from_backup: bool) -> Self {
        let limits = &settings.limits;
        Self {
            path: settings.files.kv.clone(),
            from_backup,
            limits: KvLimits {
                entries: limits.kv_entries,
                name: limits.name_length,
                value: limits.kv_value,
                total: limits.kv_total,
            },
        }
    }
}
