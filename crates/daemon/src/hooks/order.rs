//! What hooks left in files goes before what they say now, where the one is of no use behind the other.

use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use protocol::hook::{Hook, Signal};
use protocol::{MessageState, Refusal, SessionId};
use tokio::time::timeout;

use crate::context::Daemon;
use crate::engine::Turn;

/// How long a report waits for what comes before it: its hook leaves it in a file soon after.
const LIMIT: Duration = Duration::from_millis(150);

/// Whether something that goes before it may not be taken in yet: what became of a prompt whose typing was cut off, that
/// an agent took the prompt at which it works, what it did in the turn that it says is over, where a conversation began.
pub(super) fn is_early(turn: &Turn<'_>, hook: &Hook) -> bool {
    let over =
        matches!(hook.signal, Signal::TurnOver { .. } | Signal::TurnFailed { .. } | Signal::Interrupted);
    let held = queue::held_prompt(turn.pool(), hook.session);
    let untaken = held.is_some_and(|open| open.state == MessageState::Typing || open.state.is_unconfirmed());
    let begins = matches!(hook.signal, Signal::Prompt { .. } | Signal::Started { .. });
    over || untaken && !begins || is_of_another(turn, hook) || is_undecided(turn, hook.session)
}

/// Takes in what goes before it.
///
/// # Errors
/// It takes too long: nothing may be heard of the session yet.
pub(super) async fn earlier_first(daemon: &Arc<Daemon>, hook: &Hook) -> Result<(), Refusal> {
    let session = hook.session;
    let limit = match hook.signal {
        Signal::Permission { wait_ms, .. } => LIMIT.max(Duration::from_millis(wait_ms / 2)),
        _ => LIMIT,
    };
    let decided = move |turn: &mut Turn<'_>| (!is_undecided(turn, session)).then_some(());
    daemon.engine.wait_on(session, Some(limit), decided).await?;
    // A disk that hangs keeps nothing from being heard.
    timeout(limit, super::read_of(daemon, &[session])).await.ok();
    Ok(())
}

/// Whether its conversation is not the session's: what was left may have begun that, or be the last word of the other.
fn is_of_another(turn: &Turn<'_>, hook: &Hook) -> bool {
    let known = turn.pool().session(hook.session).and_then(|session| session.conversation.as_ref());
    known.zip(hook.conversation.as_ref()).is_some_and(|(known, its)| known.id != *its)
}

/// Whether it is not decided yet whether its prompt was typed.
pub(super) fn is_undecided(turn: &Turn<'_>, session: SessionId) -> bool {
    let held = queue::held_prompt(turn.pool(), session);
    held.is_some_and(|open| queue::is_cut_off(turn.pool(), &open))
}
