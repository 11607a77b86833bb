//! Slots: who waits for one, who gets it, and who gives it up. The line is first come, first served, for
//! requests and for sessions that have something to do; what it decides is decided again after every
//! turn, from the record, so that a crash loses nothing but the order of those who wait.

use std::sync::Arc;
use std::time::Duration;

use pool::scheduler::Waiter;
use pool::{admit, scheduler};
use protocol::{ErrorCode, Refusal};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::engine::handle::in_doubt;
use crate::sense::{capacity, quiet};

/// How long an eviction may take, where a request waits for nothing else: the end of a program, and its proof.
const EVICTION_LIMIT: Duration = Duration::from_secs(30);

/// What came of a decision that needs a slot.
pub(crate) enum Decided<R> {
    /// It is decided: the slot is taken, or none was needed.
    Done(R),
    /// There is none.
    Full,
}

/// Decides in the first turn in which there is a slot for it; told how many wait before it. Waits where
/// that was asked for, or where a slot is about to come free, as long as somebody waits for the operation.
///
/// # Errors
/// What `decide` says, and refused where there is no slot.
pub(crate) async fn with_slot<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    op: Option<&Op>,
    wait_ms: Option<u64>,
    mut decide: impl FnMut(&mut Turn<'_>, usize) -> Result<Decided<R>, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    let wait = wait_ms.map_or(daemon.loaded().life.wait_slot, Duration::from_millis);
    let me = Waiter::Request(daemon.engine.ticket());
    let _place = Place { daemon: Arc::clone(daemon), me };
    let (context, op, patient) = (Arc::clone(daemon), op.cloned(), !wait.is_zero());
    let look = move |turn: &mut Turn<'_>| {
        let left = op.as_ref().is_some_and(|op| !op.is_awaited(turn));
        if left {
            turn.volatile.scheduler.waiting.leave(me);
            return Some(Err(in_doubt()));
        }
        let ahead = turn.volatile.scheduler.waiting.ahead(me);
        let decided = match decide(turn, ahead) {
            Ok(Decided::Done(result)) => Ok(result),
            Ok(Decided::Full) if patient || may_come_free(turn, &context, ahead) => {
                if turn.volatile.scheduler.waiting.join(me) {
                    turn.wake();
                }
                return None;
            }
            Ok(Decided::Full) => Err(admit::full(turn.pool(), &context.settings())),
            Err(refusal) => Err(refusal),
        };
        turn.volatile.scheduler.waiting.leave(me);
        Some(decided)
    };
    capacity::refresh(daemon).await?;
    quiet::refresh(daemon).await?;
    let limit = if patient { wait } else { EVICTION_LIMIT };
    match daemon.engine.wait_for(Some(limit), look).await {
        Ok(decided) => decided,
        Err(refusal) if refusal.code == ErrorCode::Timeout => {
            let why = format!("no slot came free within {}", humantime::format_duration(limit));
            Err(Refusal::new(ErrorCode::Refused, format!("the pool is full: {why}")))
        }
        Err(refusal) => Err(refusal),
    }
}

/// A place in the line, given up when dropped.
struct Place {
    daemon: Arc<Daemon>,
    me: Waiter,
}

impl Drop for Place {
    fn drop(&mut self) {
        let me = self.me;
        self.daemon.engine.post(move |turn| {
            if turn.volatile.scheduler.waiting.leave(me) {
                turn.wake();
            }
        });
    }
}

/// True if a slot will come free for the waiter behind `ahead` others: a session ends, or can be parked.
fn may_come_free(turn: &Turn<'_>, daemon: &Daemon, ahead: usize) -> bool {
    scheduler::leaving(turn) > ahead || scheduler::victim(turn, &daemon.settings()).is_some()
}
