//! Orders live reports of hooks after spooled ones where the order matters.

use pool::queue;
use protocol::hook::{Hook, HookEvent};
use protocol::{MessageState, SessionId};

use crate::engine::Turn;

/// True if the spooled reports have to be applied before this one: the fate of a prompt whose typing was
/// interrupted, the confirmation of the current prompt, the events of a turn that is over, or the start of a
/// conversation.
pub(crate) fn needs_spool_first(turn: &Turn<'_>, hook: &Hook) -> bool {
    let is_end = matches!(
        hook.signal,
        HookEvent::TurnOver { .. } | HookEvent::TurnFailed { .. } | HookEvent::Interrupted
    );
    let held = queue::held_prompt(turn.pool(), hook.session);
    let is_unconfirmed =
        held.is_some_and(|open| open.state == MessageState::Typing || open.state.is_unconfirmed());
    let is_beginning = matches!(hook.signal, HookEvent::Prompt { .. } | HookEvent::Started { .. });
    is_end
        || is_unconfirmed && !is_beginning
        || is_of_other_conversation(turn, hook)
        || is_typing_undecided(turn, hook.session)
}

/// True if the report names another conversation than the session's: either the spool holds the start of a new
/// conversation, or this is the last report of the old one.
fn is_of_other_conversation(turn: &Turn<'_>, hook: &Hook) -> bool {
    let known = turn.pool().session(hook.session).and_then(|session| session.conversation.as_ref());
    known.zip(hook.conversation.as_ref()).is_some_and(|(known, reported)| known.id != *reported)
}

/// True while it is undecided whether the session's prompt was typed.
pub(crate) fn is_typing_undecided(turn: &Turn<'_>, session: SessionId) -> bool {
    let held = queue::held_prompt(turn.pool(), session);
    held.is_some_and(|open| queue::is_cut_off(turn.pool(), &open))
}
