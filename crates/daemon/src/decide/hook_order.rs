//! What hooks left in files goes before what they say now, where the one is of no use behind the other.

use pool::queue;
use protocol::hook::{Hook, HookEvent};
use protocol::{MessageState, SessionId};

use crate::engine::Turn;

/// Whether something that goes before it may not be taken in yet: what became of a prompt whose typing was cut off, that
/// an agent took the prompt at which it works, what it did in the turn that it says is over, where a conversation began.
pub(crate) fn is_early(turn: &Turn<'_>, hook: &Hook) -> bool {
    let over = matches!(
        hook.signal,
        HookEvent::TurnOver { .. } | HookEvent::TurnFailed { .. } | HookEvent::Interrupted
    );
    let held = queue::held_prompt(turn.pool(), hook.session);
    let untaken = held.is_some_and(|open| open.state == MessageState::Typing || open.state.is_unconfirmed());
    let begins = matches!(hook.signal, HookEvent::Prompt { .. } | HookEvent::Started { .. });
    over || untaken && !begins || is_of_another(turn, hook) || is_undecided(turn, hook.session)
}

/// Whether its conversation is not the session's: what was left may have begun that, or be the last word of the other.
fn is_of_another(turn: &Turn<'_>, hook: &Hook) -> bool {
    let known = turn.pool().session(hook.session).and_then(|session| session.conversation.as_ref());
    known.zip(hook.conversation.as_ref()).is_some_and(|(known, its)| known.id != *its)
}

/// Whether it is not decided yet whether its prompt was typed.
pub(crate) fn is_undecided(turn: &Turn<'_>, session: SessionId) -> bool {
    let held = queue::held_prompt(turn.pool(), session);
    held.is_some_and(|open| queue::is_cut_off(turn.pool(), &open))
}
