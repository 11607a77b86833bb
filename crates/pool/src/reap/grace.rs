//! The time between TERM and KILL that a user asks for. It is on record, so that a crash of `poold` or of the
//! reaper does not replace it by the configured one.

use protocol::{Event, Lifecycle, Reason, Tag};

use crate::turn::Turn;

/// Sets the grace that a user asks for, in milliseconds, or the `usual` one. If an end was asked for before, the grace
/// can only become shorter, whether or not a reaper is at work on it.
pub fn ask_grace(turn: &mut Turn<'_>, tag: Tag, (asked, usual): (Option<u64>, u64)) {
    let Some(session) = turn.pool().tagged(tag) else { return };
    let (id, now, grace) = (session.id, turn.mono(), asked.unwrap_or(usual));
    // A drained session ends by itself, without a grace.
    let is_ending = session.lifecycle == Lifecycle::Draining && session.reason != Some(Reason::Drained);
    let before = session.end_grace_ms.or(is_ending.then_some(usual));
    let taken = if turn.volatile.reaping.is_leased(tag) {
        turn.volatile.reaping.shorten_end(tag, (grace, now)).then_some(grace)
    } else if let Some(before) = before {
        (grace < before).then_some(grace)
    } else {
        asked
    };
    turn.emit_all(taken.map(|grace| Event::GraceAsked(id, grace)));
}
