//! A cloneable way into the engine: turns, and waiting for conditions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use pool::WaitsFor;
use protocol::{Refusal, SessionId};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::engine::publish::Publisher;
use crate::engine::turn::{Check, Completion, Condition, Turn, Work};
use crate::engine::turn_counter::TurnReceiver;
use crate::engine::work_queue::{Stopped, WorkQueue};

/// A way into the engine.
#[derive(Clone)]
pub(crate) struct EngineHandle {
    queue: Arc<dyn WorkQueue>,
    publish: Publisher,
    tickets: Arc<AtomicU64>,
    /// Deadline of the engine's current long piece of work.
    long_work: Arc<Mutex<Option<Instant>>>,
}

/// Returns the refusal of what was in progress when the store failed or the daemon ended.
pub(crate) fn in_doubt() -> Refusal {
    Refusal::storage(
        "the daemon is stopping or its database failed; this may be stored: repeat it with the same operation \
         id",
    )
}

impl EngineHandle {
    pub(crate) fn new(queue: Arc<dyn WorkQueue>, publish: Publisher) -> Self {
        Self { queue, publish, tickets: Arc::default(), long_work: Arc::default() }
    }

    /// Runs `work` within a turn. Returns its result once the turn is on disk.
    ///
    /// # Errors
    /// Storage: the store failed, or the daemon ends.
    pub(crate) async fn turn<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> Result<R, Refusal> {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |turn| {
            let result = work(turn);
            Box::new(move || drop(answer.send(result)))
        });
        self.queue.post(work).map_err(|Stopped| in_doubt())?;
        answered.await.map_err(|_| in_doubt())
    }

    /// Runs `work` within a turn; the engine itself runs its completion once the turn is on disk.
    pub(crate) fn submit(&self, work: Work) -> Result<(), Refusal> {
        self.queue.post(work).map_err(|Stopped| in_doubt())
    }

    /// Notes that the engine begins a piece of work that may take this long; `None` once it is done.
    pub(crate) fn set_long_work(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        *self.long_work.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// True if the engine is at such work, within its limit.
    pub(crate) fn is_in_long_work(&self) -> bool {
        let until = *self.long_work.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns a number that is unique within this daemon.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `work` within a later turn, without waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Turn<'_>) + Send + 'static) {
        let work: Work = Box::new(move |turn| {
            work(turn);
            Box::new(|| {})
        });
        // A stopped engine has nothing left to change.
        drop(self.queue.post(work));
    }

    /// Runs `work` within a later turn once the result is dropped.
    pub(crate) fn on_drop(&self, work: impl FnOnce(&mut Turn<'_>) + Send + Sync + 'static) -> TurnOnDrop {
        TurnOnDrop { engine: self.clone(), work: Some(Box::new(work)) }
    }

    /// Waits until `find` returns a value; it is called again after each turn that changed anything but
    /// messages.
    ///
    /// # Errors
    /// Timeout; storage: the daemon ends.
    pub(crate) async fn wait_for<R: Send + 'static>(
        &self,
        limit: Option<Duration>,
        find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        self.wait_with(WaitsFor::Others, limit, find).await
    }

    /// As [`Self::wait_for`], but `find` is also called after each turn that changed messages of the session. The call
    /// is part of that turn, so `find` sees the state that the change left.
    ///
    /// # Errors
    /// Timeout; storage: the daemon ends.
    pub(crate) async fn wait_on<R: Send + 'static>(
        &self,
        session: SessionId,
        limit: Option<Duration>,
        find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        self.wait_with(WaitsFor::Session(session), limit, find).await
    }

    /// As [`Self::wait_for`], for these changes.
    ///
    /// # Errors
    /// Timeout; storage: the daemon ends.
    pub(crate) async fn wait_with<R: Send + 'static>(
        &self,
        waits_for: WaitsFor,
        limit: Option<Duration>,
        mut find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + 'static,
    ) -> Result<R, Refusal> {
        let id = self.ticket();
        // Removed even if this future is dropped half-way.
        let mut waiting = self.on_drop(move |turn| drop(turn.conditions.remove(&id)));
        let (answer, mut answered) = oneshot::channel();
        let mut answer = Some(answer);
        let mut check: Check = Box::new(move |turn| {
            let found = find(turn)?;
            let answer = answer.take()?;
            Some(Box::new(move || drop(answer.send(found))) as Completion)
        });
        let work: Work = Box::new(move |turn| {
            check(turn).unwrap_or_else(|| {
                turn.conditions.insert(id, Condition { waits_for, check });
                Box::new(|| {})
            })
        });
        self.queue.post(work).map_err(|Stopped| in_doubt())?;
        let found = match limit {
            None => answered.await,
            Some(limit) => match tokio::time::timeout(limit, &mut answered).await {
                Ok(found) => found,
                // If the condition came true at the last moment, `find` has acted in that turn, and its result is
                // returned.
                Err(_) if self.remove_condition(id).await? => {
                    waiting.cancel();
                    return Err(Refusal::timeout("the wait timed out"));
                }
                Err(_) => answered.await,
            },
        };
        if found.is_ok() {
            waiting.cancel();
        }
        found.map_err(|_| in_doubt())
    }

    /// Removes a condition. Returns true if it had not come true before.
    async fn remove_condition(&self, id: u64) -> Result<bool, Refusal> {
        self.turn(move |turn| turn.conditions.remove(&id).is_some()).await
    }

    /// Returns a receiver of turns that change something.
    pub(crate) fn turns(&self) -> TurnReceiver {
        self.publish.turns.subscribe()
    }

    /// Returns the signal that a deadline is now earlier than the one that is being waited for.
    pub(crate) fn timer_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.publish.timer_changed)
    }

    /// Returns the signal that the length of the database's file has changed.
    pub(crate) fn database_resized(&self) -> Arc<Notify> {
        Arc::clone(&self.publish.database_resized)
    }
}

/// Work for a later turn, of a task that threads may share.
type SharedWork = Box<dyn FnOnce(&mut Turn<'_>) + Send + Sync>;

/// Work for a later turn, posted when this is dropped, however its task ends.
#[must_use]
pub(crate) struct TurnOnDrop {
    engine: EngineHandle,
    work: Option<SharedWork>,
}

impl TurnOnDrop {
    /// The work is not needed any more.
    pub(crate) fn cancel(&mut self) {
        self.work = None;
    }
}

impl Drop for TurnOnDrop {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.engine.post(work);
        }
    }
}
