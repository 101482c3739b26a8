//! Readiness of many sockets in one thread: a thin, safe face of epoll.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, told again while there are any.
    Read,
    /// Bytes to read, told once whenever new ones arrive.
    ReadEdge,
    /// Room to write.
    Write,
    /// Bytes to read or room to write.
    ReadWrite,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadEdge => EventFlags::IN | EventFlags::ET,
            Self::Write => EventFlags::OUT,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// One epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// Where the sockets that are ready are written to; belongs to one thread.
pub struct Ready {
    events: Vec<Event>,
}

impl Ready {
    /// At most `capacity` sockets are reported at once.
    pub fn new(capacity: usize) -> Self {
        Self { events: Vec::with_capacity(capacity) }
    }

    /// The tokens of the sockets that are ready.
    pub fn tokens(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.events.iter().map(|event| {
            let data = event.data;
            data.u64()
        })
    }
}

impl Poller {
    /// An instance that watches nothing yet.
    ///
    /// # Errors
    ///
    /// When the system has no more files.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches `source`, which is told of under `token`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// Watches `source` for something else.
    ///
    /// # Errors
    ///
    /// When it was not added.
    pub fn change(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// Waits until a socket is ready or `timeout` (whole milliseconds) has passed.
    ///
    /// # Errors
    ///
    /// What the system says; to be interrupted is none.
    pub fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> io::Result<()> {
        ready.events.clear();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let room = rustix::buffer::spare_capacity(&mut ready.events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
