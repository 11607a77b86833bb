//! Requests whose hooks wait for a decision: whoever comes first, somebody's `approve`, the terminal, or the end of its
//! patience, takes the request out in a turn, and the others find it gone.

use std::time::Duration;

use pool::heard;
use protocol::activity::Ask;
use protocol::event::AgentEvent;
use protocol::hook::Decision;
use protocol::{Activity, Event, SessionId};
use tokio::sync::oneshot;

use crate::engine::Turn;

/// A hook that waits for a decision.
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) ask: u64,
    pub(crate) decision: oneshot::Receiver<Decision>,
    pub(crate) limit: Duration,
    /// Whether it keeps the agent from asking at the terminal.
    pub(crate) hides_dialog: bool,
}

/// Notes all that a session's agent asks now, the first of it shown. Hooks of other requests wait no longer.
pub(crate) fn keep(turn: &mut Turn<'_>, session: SessionId, open: &[Ask]) {
    turn.waiting.decisions.retain(session, open);
    turn.volatile.agents.set_asks(session, open);
}

/// All that a session's agent asks now, oldest first.
pub(crate) fn open(turn: &Turn<'_>, session: SessionId) -> Vec<Ask> {
    let shown = turn.pool().activity(session).cloned().unwrap_or_default();
    heard::open(&shown, turn.volatile.agents.queued_asks(session))
}

/// This is all that it asks now; `otherwise` is what it does where that is nothing.
pub(crate) fn asks(
    turn: &mut Turn<'_>,
    session: SessionId,
    open: &[Ask],
    otherwise: impl FnOnce(Activity) -> Activity,
) {
    let before = turn.pool().activity(session).cloned().unwrap_or_default();
    keep(turn, session, open);
    let since = if before.ask.as_ref() == open.first() { before.since } else { turn.now() };
    let after = heard::asking(&before, open, since).unwrap_or_else(|| otherwise(before.clone()));
    if after != before {
        turn.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity: after, turned: true }));
    }
}

/// A request can only be answered at the terminal any more. Whether nobody had answered it.
pub(crate) fn left(turn: &mut Turn<'_>, session: SessionId, ask: u64) -> bool {
    let unanswered = turn.waiting.decisions.take(session, ask).is_some();
    let mut open = open(turn, session);
    if let Some(left) = open.iter_mut().find(|open| open.id == ask && open.answerable) {
        left.answerable = false;
        asks(turn, session, &open, |before| before);
    }
    unanswered
}
