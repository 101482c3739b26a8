//! Why a KV change is refused and why a KV file is not opened.

use std::path::PathBuf;

use waypost_rocketmq_wire::code::response;

/// A change that was refused: nothing was changed, unless the text says otherwise. It is the remark of the answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The namespace or the key is missing or empty. The text is the original's.
    #[error("namespace or key is null")]
    MissingName,
    /// The namespace or the key is too long.
    #[error("namespace or key of {length} bytes is longer than {limit} (nameLengthMax)")]
    NameTooLong {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The value is too long.
    #[error("value of {length} bytes is longer than {limit} (kvValueMax)")]
    ValueTooLong {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// There are as many entries as may be, or bytes in them.
    #[error("the KV configuration is full: {limit} {what}; delete entries or raise the limit")]
    Full {
        /// What the limit counts, with the name of the setting.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// More changes wait for the disk than may.
    #[error("too many KV changes wait for the disk, try again")]
    Busy,
    /// The change could not be made durable. Where the old file could not be put back either, the reason says so.
    #[error("the KV configuration could not be written: {reason}")]
    NotDurable {
        /// The file or folder, what failed, and for whom.
        reason: String,
    },
    /// The file that is there could not be read at start, so it must not be written over.
    #[error("{} could not be read at start ({reason}), so it is not written over: make it readable and restart", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Closed,
}

impl KvError {
    /// The response code that tells it to the peer.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Busy => response::SYSTEM_BUSY,
            Self::MissingName
            | Self::NameTooLong { .. }
            | Self::ValueTooLong { .. }
            | Self::Full { .. }
            | Self::NotDurable { .. }
            | Self::Unreadable { .. }
            | Self::Closed => response::SYSTEM_ERROR,
        }
    }
}

/// A KV file that stops the start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvOpenError {
    /// The file is not what it should be.
    #[error("{} is damaged at byte {offset}: {reason}; {next}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Bytes before the damage.
        offset: usize,
        /// What is wrong there.
        reason: String,
        /// How to start all the same.
        next: String,
    },
    /// The backup was asked for, is needed, and cannot be used.
    #[error("{} cannot be used as backup: {reason}; repair one of the two files, or move both away to start empty", path.display())]
    NoBackup {
        /// The backup file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The writing thread could not be started.
    #[error("the thread that writes the KV configuration could not be started: {0}")]
    Thread(#[source] std::io::Error),
}
