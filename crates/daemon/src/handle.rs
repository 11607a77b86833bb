//! A cloneable way into the engine: turns, locks, and waiting for something to become true.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pool::locks::Ticket;
use protocol::{ErrorCode, Refusal, SessionId, Token};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::engine::{Job, Publish, Turn};

/// A way into the engine.
#[derive(Clone)]
pub(crate) struct Handle {
    jobs: mpsc::Sender<Job>,
    publish: Publish,
    tickets: Arc<AtomicU64>,
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
        Self { jobs, publish, tickets: Arc::default() }
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

    /// Leaves this to be done, without waiting for it.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Turn<'_>) + Send + 'static) {
        let job: Job = Box::new(move |turn| {
            work(turn);
            Box::new(|| {})
        });
        // A stopped engine has nothing left to change.
        drop(self.jobs.send(job));
    }

    /// The session's lock, once it is this caller's turn.
    ///
    /// # Errors
    /// Storage, where the daemon ends before.
    pub(crate) async fn lock(&self, session: SessionId, purpose: &'static str) -> Result<Grant, Refusal> {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        // The place is given back also where this future is dropped half-way.
        let place = Place { handle: self.clone(), session, ticket };
        let (grant, granted) = oneshot::channel();
        self.post(move |turn| match turn.rest.locks.ask(session, ticket, purpose) {
            Some(given) => drop(grant.send(given.token)),
            None => drop(turn.rest.waiting.insert(ticket, grant)),
        });
        let token = granted.await.map_err(|_| in_doubt())?;
        Ok(Grant { token, _place: place })
    }

    /// Looks until `find` finds something, again after each turn that changed anything.
    ///
    /// # Errors
    /// Timeout, or storage where the daemon ends before.
    pub(crate) async fn wait_for<R: Send + 'static>(
        &self,
        limit: Option<Duration>,
        mut find: impl FnMut(&mut Turn<'_>) -> Option<R> + Send + Clone + 'static,
    ) -> Result<R, Refusal> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut turns = self.publish.turns.subscribe();
        loop {
            turns.borrow_and_update();
            let mut look = find.clone();
            let (found, next) = self.turn(move |turn| (look(turn), look)).await?;
            if let Some(found) = found {
                return Ok(found);
            }
            find = next;
            let changed = turns.changed();
            match deadline {
                None => changed.await.map_err(|_| in_doubt())?,
                Some(at) => tokio::time::timeout_at(at, changed)
                    .await
                    .map_err(|_| Refusal::new(ErrorCode::Timeout, "the wait ran out"))?
                    .map_err(|_| in_doubt())?,
            }
        }
    }

    /// Counts turns that changed something.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.publish.turns.subscribe()
    }

    /// Says why, once the store failed.
    pub(crate) fn failed(&self) -> watch::Receiver<Option<String>> {
        self.publish.failed.subscribe()
    }
}

/// A session's lock. Given back when dropped.
pub(crate) struct Grant {
    token: Token,
    _place: Place,
}

impl Grant {
    /// The fencing token.
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

/// A place in a waiting line, or at its head.
struct Place {
    handle: Handle,
    session: SessionId,
    ticket: Ticket,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (session, ticket) = (self.session, self.ticket);
        self.handle.post(move |turn| release(turn, session, ticket));
    }
}

/// Gives a place back and hands the lock to the next that still waits for it.
fn release(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    turn.rest.waiting.remove(&ticket);
    let mut next = turn.rest.locks.release(session, ticket);
    while let Some(grant) = next.take() {
        let waiter = turn.rest.waiting.remove(&grant.ticket);
        let taken = waiter.is_some_and(|waiter| waiter.send(grant.token).is_ok());
        if !taken {
            next = turn.rest.locks.release(session, grant.ticket);
        }
    }
    turn.stir();
}
