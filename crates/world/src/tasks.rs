//! Concurrent tasks, and blocking work on threads.

use std::io;

use process::runtime::containment::contain;
use tokio::sync::oneshot;

use crate::{BoxFuture, World};

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
