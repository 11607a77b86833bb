//! Everything that waits for a person, for `inbox` and `status`.

use protocol::SessionId;
use protocol::reply::InboxItem;

use crate::engine::Turn;

/// Returns everything that waits for a person.
pub(super) fn items(turn: &Turn<'_>) -> Vec<InboxItem> {
    let has_worker = |session, kind: &str| has_worker(turn, session, kind);
    let (agents, blocked) = (&turn.volatile.agents, turn.volatile.prompts.blocked());
    pool::inbox::items(turn.pool(), agents, blocked, has_worker, turn.now())
}

/// True if a worker exists for this kind of a session's messages.
pub(super) fn has_worker(turn: &Turn<'_>, session: SessionId, kind: &str) -> bool {
    pool::worker::is_worked(turn.pool(), &turn.volatile.workers, session, kind)
}
