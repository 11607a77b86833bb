//! Selection of a session's messages, for listings and archives.

use protocol::request::Messages;
use protocol::{MessageId, SessionId};

use crate::engine::Turn;

/// Returns the ids of the first `open_limit` messages that are not final, in the order in which they were
/// queued, and of the newest final ones up to the limit asked for; in ascending order.
pub(super) fn select(
    turn: &Turn<'_>,
    session: SessionId,
    asked: &Messages,
    open_limit: u32,
) -> Vec<MessageId> {
    let of_kind = |kind: &str| asked.kinds.is_empty() || asked.kinds.iter().any(|wanted| wanted == kind);
    let of_state = |state| asked.states.is_empty() || asked.states.contains(&state);
    let waiting = turn.pool().pending_messages_of(session).filter(|m| of_kind(m.kind) && of_state(m.state));
    let mut ids: Vec<MessageId> = waiting.map(|m| m.id).collect();
    ids.sort_unstable();
    ids.truncate(open_limit as usize);
    let finals = turn.pool().finished_messages_of(session);
    let mut finals: Vec<_> =
        finals.filter(|(_, state, kind, _)| of_kind(kind) && of_state(*state)).map(|m| (m.3, m.0)).collect();
    finals.sort_unstable();
    let newest = finals.len().saturating_sub(asked.limit as usize);
    ids.extend(finals[newest..].iter().map(|(_, id)| *id));
    ids.sort_unstable();
    ids
}
