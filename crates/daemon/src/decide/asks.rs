//! Requests of agents whose hooks wait for a decision. `approve`, a person at the terminal and the hook's timeout
//! compete for each: the first one removes the request in a turn, and the others find none.

use std::time::Duration;

use pool::agent;
use protocol::hook::Decision;
use protocol::{Activity, AgentEvent, Ask, Event, SessionId};
use tokio::sync::oneshot;

use crate::engine::Turn;

/// A decision for which a hook waits.
pub(crate) struct AwaitedDecision {
    pub(crate) session: SessionId,
    pub(crate) ask: u64,
    pub(crate) decision: oneshot::Receiver<Decision>,
    /// Maximum wait of the hook.
    pub(crate) limit: Duration,
    /// True if the waiting hook keeps the agent from asking at the terminal.
    pub(crate) hides_dialog: bool,
}

/// Sets the open requests of a session's agent, without an event. Hooks of other requests stop waiting.
pub(crate) fn note_open_asks(turn: &mut Turn<'_>, session: SessionId, open: &[Ask]) {
    turn.waiting.decisions.retain(session, open);
    turn.volatile.agents.set_asks(session, open);
}

/// Returns the open requests of a session's agent, oldest first.
pub(crate) fn open_asks(turn: &Turn<'_>, session: SessionId) -> Vec<Ask> {
    let shown = turn.pool().activity(session).cloned().unwrap_or_default();
    agent::open_asks(&shown, turn.volatile.agents.queued_asks(session))
}

/// Sets the open requests of a session's agent. `otherwise` gives the activity if there are none.
pub(crate) fn set_open_asks(
    turn: &mut Turn<'_>,
    session: SessionId,
    open: &[Ask],
    otherwise: impl FnOnce(Activity) -> Activity,
) {
    let before = turn.pool().activity(session).cloned().unwrap_or_default();
    note_open_asks(turn, session, open);
    let since = if before.ask.as_ref() == open.first() { before.since } else { turn.now() };
    let after = agent::ask_activity(&before, open, since).unwrap_or_else(|| otherwise(before.clone()));
    if after != before {
        turn.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity: after, turned: true }));
    }
}

/// Notes that a request can only be answered at the terminal from now on. Returns true if it was unanswered.
pub(crate) fn stop_waiting(turn: &mut Turn<'_>, session: SessionId, ask: u64) -> bool {
    let unanswered = turn.waiting.decisions.take(session, ask).is_some();
    let mut open = open_asks(turn, session);
    if let Some(left) = open.iter_mut().find(|open| open.id == ask && open.answerable) {
        left.answerable = false;
        set_open_asks(turn, session, &open, |before| before);
    }
    unanswered
}
