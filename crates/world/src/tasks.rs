//! Concurrent tasks, and blocking work on threads.

use std::io;
use std::time::Duration;

use process::runtime::containment::contain;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{BoxFuture, World};

/// Time after which an idle thread for blocking work ends: longer than a machine runs.
const KEEP_ALIVE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Returns the runtime of a daemon: one thread for its tasks, and those for blocking work, of which one is started at
/// once, and all are kept. If the user may have no more processes, work waits for one of these threads; without any,
/// tokio panics. A session that has taken all processes can be ended only by such work.
///
/// # Errors
/// The system does not give what the runtime needs.
pub fn runtime() -> io::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(KEEP_ALIVE).build()?;
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// Blocking work.
pub type Blocking = Box<dyn FnOnce() + Send>;

/// Runs tasks. Tasks end with the process.
pub trait Tasks: Send + Sync {
    /// Runs a task to its end, beside the caller. The name is for logs and traces.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>);
    /// Runs work that may block, beside the tasks. Its panic ends it alone.
    fn block(&self, work: Blocking);
}

/// Tasks of tokio's runtime, and its threads for blocking work.
#[derive(Debug)]
pub struct TokioTasks;

impl Tasks for TokioTasks {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn block(&self, work: Blocking) {
        drop(tokio::task::spawn_blocking(|| contain(work)));
    }
}

impl World {
    /// Runs a task to its end, beside the caller.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, Box::pin(task));
    }

    /// Runs a task to its end even if the returned future, which gives its result, is dropped. `None` if the
    /// process ends first.
    pub fn detach<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Option<T>> {
        let (sender, result) = oneshot::channel();
        self.spawn(name, async move { drop(sender.send(task.await)) });
        Box::pin(async move { result.await.ok() })
    }

    /// Runs work that may block, and returns its result. It runs to its end even if the future is dropped.
    ///
    /// # Errors
    /// The process ends, or the work panics.
    pub async fn block<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (sender, result) = oneshot::channel();
        self.tasks.block(Box::new(move || drop(sender.send(work()))));
        result.await.map_err(io::Error::other)
    }
}
