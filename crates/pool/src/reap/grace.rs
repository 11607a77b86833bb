//! The time between TERM and KILL that a user asks for. It is on record, so that a crash of `poold` or of the
//! reaper does not replace it by the configured one.

use protocol::{Event, Tag};

use crate::turn::Turn;

/// Takes the grace that a user asks for, in milliseconds, or the `usual` one. An end that is under way is only
/// shortened by it.
pub fn ask_grace(turn: &mut Turn<'_>, tag: Tag, (asked, usual): (Option<u64>, u64)) {
    let Some(session) = turn.pool().tagged(tag).map(|session| session.id) else { return };
    let now = turn.mono();
    let taken = if turn.volatile.reaping.is_leased(tag) {
        let grace = asked.unwrap_or(usual);
        turn.volatile.reaping.shorten_end(tag, (grace, now)).then_some(grace)
    } else {
        asked
    };
    turn.emit_all(taken.map(|grace| Event::GraceAsked(session, grace)));
}
