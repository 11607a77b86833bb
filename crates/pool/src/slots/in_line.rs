//! The decisions of requests that wait in line for a slot.

use std::ops::DerefMut;

use crate::slots::wait_queue::{Waiter, Wanted};
use crate::turn::Turn;

/// Lets a request decide. `decide` gets the number of slots that others in the line want first, and returns `None` if
/// the request has to wait: it has a place in the line then, until it decides otherwise. `turn` may be the shell's.
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
