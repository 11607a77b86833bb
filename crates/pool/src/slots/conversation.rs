//! The check whether an agent that ended instead of resuming has lost its conversation. Until the result is known, its
//! end has no consequence.

use std::collections::BTreeSet;

use protocol::{Session, SessionId, Tag};

use crate::session::conversation::{conversation_lost, failed_to_resume};
use crate::settings::Settings;
use crate::turn::Turn;

/// True while the result of the check is not known.
pub fn is_conversation_unchecked(turn: &Turn<'_>, settings: &Settings, session: &Session) -> bool {
    let tag = session.tag();
    let is_checked = tag.is_some_and(|tag| turn.volatile.scheduler.is_conversation_checked(tag));
    !is_checked && failed_to_resume(turn.pool(), settings, session)
}

/// The sessions whose checks have no result yet, and those of them whose checks are to begin now.
pub(super) fn unchecked_conversations(
    turn: &mut Turn<'_>,
    settings: &Settings,
) -> (BTreeSet<SessionId>, Vec<(SessionId, Tag)>) {
    let broken = turn.pool().sessions().filter(|session| failed_to_resume(turn.pool(), settings, session));
    let broken: Vec<(SessionId, Tag)> =
        broken.filter_map(|session| Some((session.id, session.incarnation.as_ref()?.tag))).collect();
    let scheduler = &mut turn.volatile.scheduler;
    scheduler.retain_checks(&broken.iter().map(|(_, tag)| *tag).collect());
    let open: Vec<(SessionId, Tag)> =
        broken.into_iter().filter(|(_, tag)| !scheduler.is_conversation_checked(*tag)).collect();
    let unchecked = open.iter().map(|(session, _)| *session).collect();
    let new = open.into_iter().filter(|(_, tag)| scheduler.begin_conversation_check(*tag)).collect();
    (unchecked, new)
}

/// Applies the result of a check. Returns true if the session is started with a new conversation.
pub fn conversation_checked(
    turn: &mut Turn<'_>,
    settings: &Settings,
    (session, tag): (SessionId, Tag),
    is_lost: bool,
) -> bool {
    turn.volatile.scheduler.conversation_checked(tag);
    turn.wake();
    let ended = turn.pool().session(session).filter(|s| failed_to_resume(turn.pool(), settings, s));
    let is_same = |s: &&Session| s.is_run(tag);
    let Some(record) = ended.filter(is_same).filter(|_| is_lost) else { return false };
    let events = conversation_lost(turn.pool(), record, turn.now());
    turn.emit_all(events);
    true
}
