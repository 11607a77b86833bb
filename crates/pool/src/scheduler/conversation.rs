//! Agents that ended instead of resuming their conversations: nothing follows from their end until it is known whether the
//! conversation is lost.

use std::collections::BTreeSet;

use protocol::{Session, SessionId, Tag};

use crate::resume;
use crate::settings::Settings;
use crate::turn::Turn;

/// True while it is not known whether the conversation of an ended session is lost.
#[must_use]
pub fn is_undecided(turn: &Turn<'_>, settings: &Settings, session: &Session) -> bool {
    let tag = session.incarnation.as_ref().map(|run| run.tag);
    let is_judged = tag.is_some_and(|tag| turn.volatile.scheduler.is_conversation_judged(tag));
    !is_judged && resume::broke_off(turn.pool(), settings, session)
}

/// The sessions whose conversations are not judged yet, and those of them to judge from now on.
pub(super) fn undecided(
    turn: &mut Turn<'_>,
    settings: &Settings,
) -> (BTreeSet<SessionId>, Vec<(SessionId, Tag)>) {
    let broken = turn.pool().sessions().filter(|session| resume::broke_off(turn.pool(), settings, session));
    let broken: Vec<(SessionId, Tag)> =
        broken.filter_map(|session| Some((session.id, session.incarnation.as_ref()?.tag))).collect();
    let scheduler = &mut turn.volatile.scheduler;
    scheduler.retain_judged(&broken.iter().map(|(_, tag)| *tag).collect());
    let open: Vec<(SessionId, Tag)> =
        broken.into_iter().filter(|(_, tag)| !scheduler.is_conversation_judged(*tag)).collect();
    let undecided = open.iter().map(|(session, _)| *session).collect();
    let new = open.into_iter().filter(|(_, tag)| scheduler.begin_judging(*tag)).collect();
    (undecided, new)
}

/// It is known whether the conversation of an ended incarnation is lost. Returns true if its session is started with a new one.
pub fn judged(
    turn: &mut Turn<'_>,
    settings: &Settings,
    (session, tag): (SessionId, Tag),
    is_lost: bool,
) -> bool {
    turn.volatile.scheduler.conversation_judged(tag);
    turn.wake();
    let ended = turn.pool().session(session).filter(|s| resume::broke_off(turn.pool(), settings, s));
    let is_same = |s: &&Session| s.incarnation.as_ref().is_some_and(|run| run.tag == tag);
    let Some(record) = ended.filter(is_same).filter(|_| is_lost) else { return false };
    let events = resume::lost(turn.pool(), record, turn.now());
    turn.emit_all(events);
    true
}
