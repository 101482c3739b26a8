//! All open connections of a server: to count them, close one from outside, find idle ones, drain.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use atomic_waker::AtomicWaker;

use crate::clock::Millis;

/// How long a large frame may take to arrive while others wait for memory.
pub const FRAME_PATIENCE: Duration = Duration::from_secs(30);

/// One open connection as others see it.
#[derive(Debug)]
pub struct SessionHandle {
    id: u64,
    peer: SocketAddr,
    opened_at: Millis,
    last_active: AtomicU64,
    close: OnceLock<Command>,
    draining: AtomicBool,
    /// When a frame began that needs a permit of the memory budget; 0 while there is none.
    large_frame_since: AtomicU64,
    waker: AtomicWaker,
}

/// What a session has been told to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Go on.
    Serve,
    /// Answer what was read, then close.
    Drain,
    /// Close now, for this reason.
    Close(&'static str),
    /// Close now: nothing has happened for the idle time.
    CloseIdle,
}

impl SessionHandle {
    /// Number of the connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the peer, or the one that a trusted PROXY preamble named.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When the connection was accepted.
    pub fn opened_at(&self) -> Millis {
        self.opened_at
    }

    /// When the last complete frame came or answer went.
    pub fn last_active(&self) -> Millis {
        Millis::new(self.last_active.load(Ordering::Relaxed))
    }

    /// Tells the session to close now. The first reason stays.
    pub fn close(&self, reason: &'static str) {
        self.command_to_close(Command::Close(reason));
    }

    /// Tells the session to close now, because nothing has happened on it.
    pub fn close_idle(&self) {
        self.command_to_close(Command::CloseIdle);
    }

    /// Whether it was not active for `idle_after`; never if that is zero.
    pub fn is_idle(&self, now: Millis, idle_after: Duration) -> bool {
        !idle_after.is_zero() && now.since(self.last_active()) >= idle_after
    }

    fn command_to_close(&self, command: Command) {
        if self.close.set(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Tells the session to close when it has answered what it read.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// What the session has been told to do.
    pub fn command(&self) -> Command {
        match self.close.get() {
            Some(command) => *command,
            None if self.draining.load(Ordering::Acquire) => Command::Drain,
            None => Command::Serve,
        }
    }

    /// Notes a complete frame or write.
    pub fn active(&self, now: Millis) {
        self.last_active.store(now.get(), Ordering::Relaxed);
    }

    /// Notes that a large frame has begun to arrive, or waits for memory to do so.
    pub(crate) fn begin_large_frame(&self, now: Millis) {
        if self.large_frame_since.load(Ordering::Relaxed) == 0 {
            self.large_frame_since.store(now.get().max(1), Ordering::Relaxed);
        }
    }

    /// Notes that it is complete.
    pub(crate) fn end_large_frame(&self) {
        self.large_frame_since.store(0, Ordering::Relaxed);
    }

    fn has_large_frame_since(&self, now: Millis) -> Duration {
        match self.large_frame_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => now.since(Millis::new(since)),
        }
    }

    /// Whom to wake when there is a command.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}

/// The open connections of a server. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    open: Arc<Mutex<HashMap<u64, Arc<SessionHandle>>>>,
}

/// Takes a connection off the list when it is dropped.
#[derive(Debug)]
pub struct Listed {
    sessions: Sessions,
    handle: Arc<SessionHandle>,
}

impl Listed {
    /// The connection.
    pub fn handle(&self) -> &Arc<SessionHandle> {
        &self.handle
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.handle.id);
    }
}

impl Sessions {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists a connection for as long as the returned value lives.
    pub fn list(&self, id: u64, peer: SocketAddr, now: Millis) -> Listed {
        let handle = Arc::new(SessionHandle {
            id,
            peer,
            opened_at: now,
            last_active: AtomicU64::new(now.get()),
            close: OnceLock::new(),
            draining: AtomicBool::new(false),
            large_frame_since: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        });
        self.lock().insert(id, Arc::clone(&handle));
        Listed { sessions: self.clone(), handle }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The connection with this number, if it is open.
    pub fn get(&self, id: u64) -> Option<Arc<SessionHandle>> {
        self.lock().get(&id).cloned()
    }

    /// Closes a connection, if it is open.
    pub fn close(&self, id: u64, reason: &'static str) {
        if let Some(handle) = self.get(id) {
            handle.close(reason);
        }
    }

    /// Tells all to close once they have answered what they read.
    pub fn drain(&self) {
        for handle in self.snapshot() {
            handle.drain();
        }
    }

    /// Closes all now.
    pub fn close_all(&self, reason: &'static str) {
        for handle in self.snapshot() {
            handle.close(reason);
        }
    }

    /// Closes connections that were not active for `idle_after` (zero: never). Meant to be called about
    /// once a second.
    pub fn sweep(&self, now: Millis, idle_after: Duration) {
        for handle in self.idle(now, idle_after) {
            handle.close_idle();
        }
    }

    /// Connections that were not active for `idle_after` (zero: none), for a caller that has a say in which of
    /// them are closed.
    pub fn idle(&self, now: Millis, idle_after: Duration) -> Vec<Arc<SessionHandle>> {
        let mut handles = self.snapshot();
        handles.retain(|handle| handle.is_idle(now, idle_after));
        handles
    }

    /// Closes connections whose large frame has not become complete for `patience`. To be called
    /// while others wait for memory: who is slow must not keep it.
    pub fn shed_large_frames(&self, now: Millis, patience: Duration) {
        for handle in self.snapshot() {
            if handle.has_large_frame_since(now) >= patience {
                handle.close("frame_stalled");
            }
        }
    }

    fn snapshot(&self) -> Vec<Arc<SessionHandle>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<SessionHandle>>> {
        // A panic elsewhere leaves the map whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
