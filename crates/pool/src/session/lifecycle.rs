//! Transitions of the lifecycle that several commands share.

use protocol::{Event, Exit, Lifecycle, Reason, Refusal, Session, SessionId};

/// True if the next incarnation is decided already: the session restarts, or its start is due at a known
/// time.
pub(crate) fn has_next_start(session: &Session) -> bool {
    !session.lifecycle.holds_slot() && (is_restarting(session) || session.budget.due_at.is_some())
}

/// Begins to end a session's incarnation, for this reason.
#[must_use]
pub fn begin_end(session: &Session, reason: Reason) -> Event {
    let missing_since = session.incarnation.as_ref().and_then(|i| i.missing_since);
    Event::SessionDraining { session: session.id, reason, exit: None, missing_since }
}

/// The refusal of what a session that drains does not do any more.
pub fn still_drains(session: &Session) -> Refusal {
    let name = &session.name;
    let why = format!(
        "{name} drains: it finishes what is queued, takes nothing more, and stops then; `poolctl wait {name} --for exit` \
         waits for that"
    );
    Refusal::refused(why)
}

/// Ends a session's incarnation, which is proved gone. The reason determines the next state.
#[must_use]
pub fn run_ended(session: SessionId, reason: Reason, exit: Option<Exit>) -> Event {
    match reason {
        reason if reason.parks() => Event::SessionParked { session, reason, exit },
        Reason::ServerGone => Event::SessionLost { session, reason, exit },
        _ => Event::SessionStopped { session, reason, exit },
    }
}

/// True between the two halves of a restart: the last incarnation is over, the next one is still to come.
pub fn is_restarting(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Restarted)
}

/// True if a session ended for this reason because tmux lost it, not because its program ended or somebody
/// asked for it. After `ServerGone` it is lost; after the others it is stopped.
pub(crate) fn is_loss(reason: Reason) -> bool {
    matches!(reason, Reason::ServerGone | Reason::TmuxGone | Reason::StartupMissingTmux)
}
