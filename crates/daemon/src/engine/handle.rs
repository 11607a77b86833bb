//! A cloneable way into the engine: turns, locks, and waiting for something to become true.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use protocol::{ErrorCode, Refusal, SessionId};
use tokio::sync::{Notify, oneshot, watch};

use crate::engine::publish::Publish;
use crate::engine::turn::{After, Condition, Job, Look, Turn};

/// A way into the engine.
#[derive(Clone)]
pub(crate) struct Handle {
    jobs: mpsc::Sender<Job>,
    publish: Publish,
    tickets: Arc<AtomicU64>,
    /// Until when the engine may be at one piece of work.
    long_work: Arc<Mutex<Option<Instant>>>,
}

/// The refusal of whatever was under way when the store failed or the daemon ended.
pub(crate) fn in_doubt() -> Refusal {
    Refusal::new(
        ErrorCode::Storage,
        "the daemon is stopping or its database failed; this may be stored: repeat it with the same operation id",
    )
}

impl Handle {
    pub(crate) fn new(jobs: mpsc::Sender<Job>, publish: Publish) -> Self {
        Self { jobs, publish, tickets: Arc::default(), long_work: Arc::default() }
    }

    /// Runs this within a turn and returns its result once the turn is on disk.
    ///
    /// # Errors
    /// Storage, where that did not happen.
    pub(crate) async fn turn<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |turn| {
            let result = work(turn);
            Box::new(move || drop(answer.send(result)))
        });
        self.jobs.send(job).map_err(|_| in_doubt())?;
        answered.await.map_err(|_| in_doubt())
    }

    /// Runs this within a turn; what it returns is done by the engine itself once the turn is on disk.
    ///
    /// # Errors
    /// Storage, where the daemon ends.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Refusal> {
        self.jobs.send(job).map_err(|_| in_doubt())
    }

    /// Says that the engine begins a piece of work that may take this long; none: that it is over.
    pub(crate) fn is_long(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        *self.long_work.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether it is at such work, and not for longer than it may be.
    pub(crate) fn is_at_long_work(&self) -> bool {
        let until = *self.long_work.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// A number that nobody else has.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Leaves this to be done, without waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Turn<'_>) + Send + 'static) {
        let job: Job = Box::new(move |turn| {
            work(turn);
            Box::new(|| {})
        });
        // A stopped engine has nothing left to change.
        drop(self.jobs.send(job));
    }

    /// Looks until `find` finds something, again after each turn that changed anything but messages.
    ///
    /// # Errors
    /// Timeout, or storage where the daemon ends before.
    pub(crate) async fn wait_for<R: Send + 'static>(
        &self,
        limit: Option<Duration>,
        find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        self.wait(None, limit, find).await
    }

    /// The same, again after each turn that changed anything of a session, messages included. It looks
    /// within the turn that changes something, so nothing comes in between, and nothing is missed.
    ///
    /// # Errors
    /// Timeout, or storage where the daemon ends before.
    pub(crate) async fn wait_on<R: Send + 'static>(
        &self,
        session: SessionId,
        limit: Option<Duration>,
        find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        self.wait(Some(session), limit, find).await
    }

    async fn wait<R: Send + 'static>(
        &self,
        session: Option<SessionId>,
        limit: Option<Duration>,
        mut find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        let id = self.ticket();
        // Forgotten also where this future is dropped half-way.
        let mut waiting = Waiting { handle: Some(self.clone()), id };
        let (answer, mut answered) = oneshot::channel();
        let mut answer = Some(answer);
        let mut look: Look = Box::new(move |turn| {
            let found = find(turn)?;
            let answer = answer.take()?;
            Some(Box::new(move || drop(answer.send(found))) as After)
        });
        let job: Job = Box::new(move |turn| {
            look(turn).unwrap_or_else(|| {
                turn.conditions.insert(id, Condition { session, look });
                Box::new(|| {})
            })
        });
        self.jobs.send(job).map_err(|_| in_doubt())?;
        let found = match limit {
            None => answered.await,
            Some(limit) => match tokio::time::timeout(limit, &mut answered).await {
                Ok(found) => found,
                // It may have come true meanwhile, and then something was done for it.
                Err(_) if self.forget(id).await? => {
                    waiting.handle = None;
                    return Err(Refusal::new(ErrorCode::Timeout, "the wait ran out"));
                }
                Err(_) => answered.await,
            },
        };
        if found.is_ok() {
            waiting.handle = None;
        }
        found.map_err(|_| in_doubt())
    }

    /// Whether somebody still waited, who does no longer.
    async fn forget(&self, id: u64) -> Result<bool, Refusal> {
        self.turn(move |turn| turn.conditions.remove(&id).is_some()).await
    }

    /// Counts turns that changed something.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.publish.turns.subscribe()
    }

    /// Tells when something is to be done at an earlier time than before.
    pub(crate) fn sooner(&self) -> Arc<Notify> {
        Arc::clone(&self.publish.sooner)
    }
}

/// Somebody who waits, until this is dropped.
struct Waiting {
    /// None once it has its answer.
    handle: Option<Handle>,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let id = self.id;
        if let Some(handle) = &self.handle {
            handle.post(move |turn| drop(turn.conditions.remove(&id)));
        }
    }
}
