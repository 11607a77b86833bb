//! The decisions of requests that wait in line for a slot.

use std::ops::DerefMut;

use crate::slots::wait_queue::{Waiter, Wanted};
use crate::turn::Turn;

/// Runs the decision of a request. `decide` gets the number of slots that others in the line want first. If it returns
/// `None`, the request has to wait, and keeps a place in the line until a later call returns a value. `turn` is
/// generic because the daemon has a turn of its own around the core's.
pub fn decide_in_line<'a, T: DerefMut<Target = Turn<'a>>, R>(
    turn: &mut T,
    (waiter, wanted): (Waiter, &Wanted),
    decide: impl FnOnce(&mut T, usize) -> Option<R>,
) -> Option<R> {
    let wanted = wanted.resolve(turn.pool());
    let ahead = turn.volatile.scheduler.waiting.ahead(turn.pool(), waiter, &wanted);
    let decided = decide(turn, ahead);
    if decided.is_some() {
        turn.volatile.scheduler.waiting.leave(waiter);
    } else if turn.volatile.scheduler.waiting.join(waiter, wanted) {
        turn.wake();
    }
    decided
}
