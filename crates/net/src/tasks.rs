//! The owner of tasks: whatever is spawned here can be told to stop and waited for.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A set of tasks. Clones share the set.
///
/// Stopping is a request: a task watches its [`Stop`] and leaves when it has finished what it must.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: Stop,
}

/// Tells a task that it should come to its end.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    token: CancellationToken,
}

impl Stop {
    /// A stop that nobody but the caller requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stop that is also requested when this one is.
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token() }
    }

    /// Asks everybody who watches to stop. Irrevocable.
    pub fn request(&self) {
        self.token.cancel();
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until somebody asks. Cancel safe.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + '_ {
        self.token.cancelled()
    }
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty set of its own that stops when this one does, or earlier.
    pub fn child(&self) -> Self {
        Self { tracker: TaskTracker::new(), stop: self.stop.child() }
    }

    /// Starts a task on the current runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[allow(clippy::disallowed_methods, reason = "the owner of tasks is where tasks are started")]
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(task))
    }

    /// Starts a task that ends when the tasks are asked to, wherever it waits then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn_until_stopped(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop();
        self.spawn(async move {
            tokio::select! {
                () = stop.requested() => {}
                () = task => {}
            }
        });
    }

    /// Starts a task on a runtime of the caller's choice.
    pub fn spawn_on<F>(&self, runtime: &Handle, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        runtime.spawn(self.tracker.track_future(task))
    }

    /// Runs `work`, which may block, on a thread that is kept for such work. [`Tasks::drain`] waits for it.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(work)
    }

    /// What the tasks watch to learn that they should end.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Asks all tasks to end, and those of the children.
    pub fn cancel(&self) {
        self.stop.request();
    }

    /// How many tasks of this set have not ended.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until all tasks of this set have ended, at most `limit`. Returns how many still run; it does
    /// not ask them to stop ([`Tasks::cancel`] does). Cancel safe.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.tracker.close();
        // What is left after the limit is the answer, not an error.
        let _ = tokio::time::timeout(limit, self.tracker.wait()).await;
        self.tracker.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drain_waits_for_tasks_that_stop_when_asked() {
        let tasks = Tasks::new();
        for _ in 0..3 {
            let stop = tasks.stop();
            tasks.spawn(async move { stop.requested().await });
        }
        assert_eq!(tasks.running(), 3);
        tasks.cancel();
        assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
    }

    #[tokio::test]
    async fn drain_reports_how_many_would_not_stop() {
        let tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.spawn(async move { stop.requested().await });
        let deaf = tasks.spawn(std::future::pending::<()>());
        tasks.cancel();
        assert_eq!(tasks.drain(Duration::from_millis(50)).await, 1);
        deaf.abort();
        assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
    }

    #[tokio::test]
    async fn a_child_stops_with_its_parent_but_not_the_other_way() {
        let parent = Tasks::new();
        let child = parent.child();
        let grandchild = child.child();
        child.cancel();
        assert!(!parent.stop().is_requested());
        assert!(grandchild.stop().is_requested());
        let other = parent.child();
        parent.cancel();
        assert!(other.stop().is_requested());
    }

    #[tokio::test]
    async fn blocking_work_is_waited_for() {
        let tasks = Tasks::new();
        let answer = tasks.spawn_blocking(|| 7);
        assert_eq!(tasks.drain(Duration::from_secs(20)).await, 0);
        assert_eq!(answer.await.expect("it ended"), 7);
    }
}
