//! Parking, as decided: first it is seen, within tmux, that nobody is attached.

use protocol::session::Reason;
use protocol::{Session, SessionId, Tag};

use crate::admit;
use crate::turn::Turn;

/// Decides to park a running session. Returns its incarnation; none for a session that is to be left alone for a while.
pub fn begin_park(turn: &mut Turn<'_>, session: &Session, reason: Reason) -> Option<(SessionId, Tag)> {
    let tag = session.incarnation.as_ref()?.tag;
    if turn.volatile.scheduler.is_kept(turn.pool(), session.id, turn.now()) {
        return None;
    }
    turn.emit(admit::put_aside(session, reason));
    turn.volatile.reaping.guard(tag);
    turn.volatile.reaping.forget_verdict(tag);
    Some((session.id, tag))
}
