//! Selection of a session's messages, for listings and archives.

use protocol::request::Messages;
use protocol::{MessageId, SessionId};

use crate::engine::Turn;

/// Returns the ids of as many messages as were asked for: the first that are not final, in the order in which they were
/// queued, then the newest final ones; in ascending order. With `all_open`, those that are not final are all returned,
/// and do not count.
pub(super) fn select(
    turn: &Turn<'_>,
    session: SessionId,
    asked: &Messages,
    all_open: bool,
) -> Vec<MessageId> {
    let of_kind = |kind: &str| asked.kinds.is_empty() || asked.kinds.iter().any(|wanted| wanted == kind);
    let of_state = |state| asked.states.is_empty() || asked.states.contains(&state);
    let waiting = turn.pool().pending_messages_of(session).filter(|m| of_kind(m.kind) && of_state(m.state));
    let mut ids: Vec<MessageId> = waiting.map(|m| m.id).collect();
    ids.sort_unstable();
    let mut room = asked.limit as usize;
    if !all_open {
        ids.truncate(room);
        room -= ids.len();
    }
    let finals = turn.pool().finished_messages_of(session);
    let mut finals: Vec<_> =
        finals.filter(|(_, state, kind, _)| of_kind(kind) && of_state(*state)).map(|m| (m.3, m.0)).collect();
    finals.sort_unstable();
    let newest = finals.len().saturating_sub(room);
    ids.extend(finals[newest..].iter().map(|(_, id)| *id));
    ids.sort_unstable();
    ids
}
