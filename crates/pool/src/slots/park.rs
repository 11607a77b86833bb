//! The decision to park. The session is hung up only once tmux has shown that no client is attached.

use protocol::{Reason, Session, SessionId, Tag};

use crate::session::lifecycle::begin_end;
use crate::turn::Turn;

/// Begins to park a running session. Returns its incarnation; none if its parking is deferred.
pub fn begin_park(turn: &mut Turn<'_>, session: &Session, reason: Reason) -> Option<(SessionId, Tag)> {
    let tag = session.incarnation.as_ref()?.tag;
    if turn.volatile.scheduler.is_parking_deferred(turn.pool(), session.id, turn.now()) {
        return None;
    }
    turn.emit(begin_end(session, reason));
    turn.volatile.reaping.guard(tag);
    turn.volatile.reaping.forget_verdict(tag);
    Some((session.id, tag))
}
