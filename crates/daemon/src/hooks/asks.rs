//! Requests whose hooks wait for a decision: whoever comes first, somebody's `approve`, the terminal, or the end of its
//! patience, takes the request out in a turn, and the others find it gone.

use std::sync::Arc;
use std::time::Duration;

use pool::heard;
use protocol::activity::Ask;
use protocol::event::AgentEvent;
use protocol::hook::Decision;
use protocol::{Activity, Event, SessionId};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Agents;
use crate::context::Daemon;
use crate::engine::Turn;

/// A hook that waits for a decision.
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) ask: u64,
    pub(super) decision: oneshot::Receiver<Decision>,
    pub(super) limit: Duration,
    /// Whether it keeps the agent from asking at the terminal.
    pub(super) hides_dialog: bool,
}

impl Agents {
    /// The hook that waits for this decision.
    pub(crate) fn asked(&mut self, session: SessionId, ask: u64) -> Option<oneshot::Sender<Decision>> {
        self.asks.remove(&(session, ask))
    }

    /// Notes that a hook is sent its decision. The receiver hears when its agent took it.
    pub(crate) fn decision_sent(&mut self, session: SessionId, ask: u64) -> oneshot::Receiver<()> {
        let (sender, taken) = oneshot::channel();
        self.sent.insert((session, ask), sender);
        taken
    }

    /// Takes out a decision that was sent: its agent took it, or it is given up. The sender of the first word.
    pub(crate) fn decision_settled(&mut self, session: SessionId, ask: u64) -> Option<oneshot::Sender<()>> {
        self.sent.remove(&(session, ask))
    }

    /// This is all that a session's agent asks now, the first of it shown. Hooks of other requests wait no longer.
    pub(super) fn keep(&mut self, session: SessionId, open: &[Ask]) {
        self.asks.retain(|(of, ask), _| *of != session || open.iter().any(|open| open.id == *ask));
        match open {
            [] | [_] => drop(self.behind.remove(&session)),
            [_, behind @ ..] => drop(self.behind.insert(session, behind.to_vec())),
        }
    }
}

/// All that a session's agent asks now, oldest first.
pub(crate) fn open(turn: &Turn<'_>, session: SessionId) -> Vec<Ask> {
    let shown = turn.pool().activity(session).cloned().unwrap_or_default();
    let behind = turn.rest.agents.behind.get(&session);
    heard::open(&shown, behind.map_or(&[], Vec::as_slice))
}

/// This is all that it asks now; `otherwise` is what it does where that is nothing.
pub(crate) fn asks(
    turn: &mut Turn<'_>,
    session: SessionId,
    open: &[Ask],
    otherwise: impl FnOnce(Activity) -> Activity,
) {
    let before = turn.pool().activity(session).cloned().unwrap_or_default();
    turn.rest.agents.keep(session, open);
    let since = if before.ask.as_ref() == open.first() { before.since } else { turn.now() };
    let after = heard::asking(&before, open, since).unwrap_or_else(|| otherwise(before.clone()));
    if after != before {
        turn.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity: after, turned: true }));
    }
}

/// A request can only be answered at the terminal any more. Whether nobody had answered it.
fn left(turn: &mut Turn<'_>, session: SessionId, ask: u64) -> bool {
    let unanswered = turn.rest.agents.asked(session, ask).is_some();
    let mut open = open(turn, session);
    if let Some(left) = open.iter_mut().find(|open| open.id == ask && open.answerable) {
        left.answerable = false;
        asks(turn, session, &open, |before| before);
    }
    unanswered
}

/// Waits for the decision, at most as long as the hook does. Where it keeps the agent from asking at the terminal, it
/// is left to the terminal as soon as somebody is there.
pub(super) async fn decided(daemon: &Arc<Daemon>, asked: Asked) -> Option<Decision> {
    let Asked { session, ask, mut decision, limit, hides_dialog } = asked;
    let _left = Left { daemon: Arc::clone(daemon), session, ask };
    let attached = move |turn: &mut Turn<'_>| {
        turn.pool().session(session).is_none_or(|s| s.attached_clients > 0).then_some(())
    };
    let somebody = async {
        if hides_dialog {
            drop(daemon.engine.wait_on(session, None, attached).await);
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        decision = &mut decision => return decision.ok(),
        () = sleep(limit) => {}
        () = somebody => {}
    }
    match daemon.engine.turn(move |turn| left(turn, session, ask)).await {
        // Somebody had answered before this turn: that counts.
        Ok(false) => decision.await.ok(),
        _ => None,
    }
}

/// When nobody waits for a decision any more, it can only be answered at the terminal.
struct Left {
    daemon: Arc<Daemon>,
    session: SessionId,
    ask: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        let (session, ask) = (self.session, self.ask);
        self.daemon.engine.post(move |turn| {
            left(turn, session, ask);
        });
    }
}
