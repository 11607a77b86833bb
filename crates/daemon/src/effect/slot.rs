//! Slots: requests and sessions with work wait in one queue, first come, first served. Every decision is made
//! again after each turn, from the record, so that a crash loses only the order of the waiters.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pool::slots::{Waiter, Wanted};
use pool::{session, slots};
use protocol::{ErrorCode, Refusal};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::sense::machine_capacity;

/// Maximum time that a request waits for an eviction, if it does not wait for a slot otherwise: the end of a program,
/// and its proof.
const EVICTION_LIMIT: Duration = Duration::from_secs(30);

/// The result of a decision that needs a slot.
pub(crate) enum SlotDecision<R> {
    /// Decided: the slot is taken, or none was needed.
    Done(R),
    /// There is no free slot.
    Full,
    /// The machine lacks something, by the last sample.
    Short(Refusal),
}

/// Time between two samples while a request waits for a machine that lacks something.
const SAMPLE_PAUSE: Duration = Duration::from_millis(200);

/// The party that asks for a start, and waits for it.
#[derive(Clone)]
pub(crate) enum Requester {
    /// The pool itself.
    Pool,
    Operation(ClientOperation),
    /// A client. It waits as long as this value is alive.
    Client(Weak<()>),
}

impl Requester {
    /// True if nobody waits any more.
    fn is_gone(&self, turn: &Turn<'_>) -> bool {
        match self {
            Self::Pool => false,
            Self::Operation(op) => !op.is_awaited(turn),
            Self::Client(alive) => alive.strong_count() == 0,
        }
    }
}

/// Runs `decide` again and again until it has a slot. Its argument is the number of slots that others in the line want
/// first. The wait is skipped unless the request asks for it or a slot is about to come free, and ends when the
/// requester is gone. Requests with the same `wanted` wait for one slot together; a request without `wanted` waits for
/// a slot of its own.
///
/// # Errors
/// The error of `decide`; refused: no slot came free.
pub(crate) async fn with_slot<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    requester: Requester,
    (wait_ms, wanted): (Option<u64>, Option<Wanted>),
    mut decide: impl FnMut(&mut Turn<'_>, usize) -> Result<SlotDecision<R>, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    let wait = wait_ms.map_or(daemon.loaded().daemon.wait_slot, Duration::from_millis);
    let ticket = daemon.engine.ticket();
    let (waiter, wanted) = (Waiter::Request(ticket), wanted.unwrap_or(Wanted::New(ticket)));
    let _guard = daemon.engine.on_drop(move |turn| {
        if turn.volatile.scheduler.waiting.leave(waiter) {
            turn.wake();
        }
    });
    let (context, patient) = (Arc::clone(daemon), !wait.is_zero());
    let shortage = Arc::<Shortage>::default();
    let noted = Arc::clone(&shortage);
    let look = move |turn: &mut Turn<'_>| {
        slots::decide_in_line(turn, (waiter, &wanted), |turn, ahead| {
            if requester.is_gone(turn) {
                return Some(Err(Refusal::refused("its request was given up before there was a slot")));
            }
            if let Some((by, _)) = turn.volatile.scheduler.start_hold() {
                return Some(Err(held_back(&by)));
            }
            match decide(turn, ahead) {
                Ok(SlotDecision::Done(result)) => Some(Ok(result)),
                Ok(SlotDecision::Full) if patient || may_come_free(turn, &context, ahead) => {
                    noted.set(None);
                    None
                }
                Ok(SlotDecision::Full) => Some(Err(session::pool_full(turn.pool(), &context.settings()))),
                // A sample from before the slot came free may show a shortage that is over.
                Ok(SlotDecision::Short(why)) if patient || !machine_capacity::is_fresh(&context) => {
                    noted.set(Some(why));
                    None
                }
                Ok(SlotDecision::Short(refusal)) | Err(refusal) => Some(Err(refusal)),
            }
        })
    };
    machine_capacity::refresh(daemon).await?;
    let limit = if patient { wait } else { EVICTION_LIMIT };
    let found = tokio::select! {
        biased;
        found = daemon.engine.wait_for(Some(limit), look) => found,
        stopped = sample_while_short(daemon, &shortage) => stopped,
    };
    match found {
        Ok(decided) => decided,
        Err(refusal) if refusal.code == ErrorCode::Timeout => {
            let within = humantime::format_duration(limit);
            Err(Refusal::refused(match shortage.take() {
                Some(short) => format!("it could not start within {within}: {}", short.message),
                None => format!("the pool is full: no slot came free within {within}"),
            }))
        }
        Err(refusal) => Err(refusal),
    }
}

/// A shortage of the machine that keeps a request waiting.
#[derive(Default)]
struct Shortage {
    what: Mutex<Option<Refusal>>,
    is_short: Notify,
}

impl Shortage {
    fn set(&self, what: Option<Refusal>) {
        if what.is_some() {
            self.is_short.notify_one();
        }
        *self.what.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn take(&self) -> Option<Refusal> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Samples the machine again and again while it lacks something for a request that waits.
async fn sample_while_short<R>(daemon: &Arc<Daemon>, shortage: &Shortage) -> Result<R, Refusal> {
    loop {
        shortage.is_short.notified().await;
        sleep(SAMPLE_PAUSE).await;
        machine_capacity::refresh(daemon).await?;
        daemon.engine.turn(|turn| turn.recheck()).await?;
    }
}

/// True if a slot will come free for the waiter behind `ahead` others, because a session ends or can be parked. Which
/// sessions can be parked depends on their silence, which the scheduler samples for those that wait.
fn may_come_free(turn: &Turn<'_>, daemon: &Daemon, ahead: usize) -> bool {
    slots::leaving(turn) > ahead
        || !turn.volatile.scheduler.is_quiet_fresh(turn.now())
        || slots::victim(turn, &daemon.settings()).is_some()
}

/// Returns the refusal of a start while these clients stop the pool.
fn held_back(by: &str) -> Refusal {
    Refusal::refused(format!(
        "the pool is about to be stopped by {by}, and starts nothing; `kill -KILL` ends a client that hangs"
    ))
}
