//! The gate before a prompt is typed, as far as the record tells.

use pool::prompt::Blocked;
use pool::{Settings, prompt};
use protocol::{SessionId, Tag};

use crate::engine::Turn;

/// Reason for a pane with the receipt of a token that this pool has not issued yet: a later state of the pool typed
/// there.
pub(super) const NEWER_RECEIPT: &str =
    "its terminal got prompts that this pool does not know: the pool is an older copy; restart the session";

/// True if a prompt may be typed into the session now. The reason against it is kept for `show`.
pub(super) fn is_open(turn: &mut Turn<'_>, settings: &Settings, session: SessionId) -> bool {
    let gate = if pool::lock::holds_back(turn.pool(), turn.volatile, session) {
        Err(Blocked::for_now("a user holds its lock"))
    } else if running_tag(turn, session).is_some_and(|tag| turn.volatile.prompts.has_newer_receipt(tag)) {
        Err(Blocked::by_terminal(NEWER_RECEIPT))
    } else if turn.volatile.scheduler.gives_way(session) {
        Err(Blocked::for_now("it gives way to others that wait for a slot"))
    } else {
        let record = turn.pool().session(session);
        record.map_or(Ok(()), |record| prompt::record_gate(turn.pool(), settings, record, turn.now()))
    };
    match gate {
        Ok(()) => true,
        Err(blocked) => {
            turn.volatile.prompts.block(session, blocked);
            false
        }
    }
}

/// Returns the tag of the incarnation that takes prompts.
pub(super) fn running_tag(turn: &Turn<'_>, session: SessionId) -> Option<Tag> {
    let session = turn.pool().session(session).filter(|session| session.takes_prompts())?;
    session.tag()
}
