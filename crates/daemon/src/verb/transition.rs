//! Lifecycle states that pass by themselves, and waiting for their end.

use protocol::{ErrorCode, Lifecycle, Reason, Refusal, Session, SessionId};
use tokio::time::Instant;

use crate::engine::{Daemon, Turn};
use crate::verb::start::OUTCOME_LIMIT;

/// Waits while `holds` is true of a session. A removed session ends the wait too.
///
/// # Errors
/// Timeout, or storage where the engine has stopped.
pub(super) async fn wait_while(
    daemon: &Daemon,
    id: SessionId,
    holds: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let over = move |turn: &mut Turn<'_>| (!turn.pool().session(id).is_some_and(holds)).then_some(());
    daemon.engine.wait_for(Some(OUTCOME_LIMIT), over).await
}

/// Waits until the session is in no passing state (`passes`), then runs `decide`. Repeats both after a conflict if the
/// session has entered a passing state meanwhile.
///
/// # Errors
/// As [`wait_while`], and those of `decide`.
pub(super) async fn decide_settled<T, F: Future<Output = Result<T, Refusal>>>(
    daemon: &Daemon,
    id: SessionId,
    passes: fn(&Session) -> bool,
    decide: impl Fn() -> F,
) -> Result<T, Refusal> {
    let deadline = Instant::now() + OUTCOME_LIMIT;
    let mut was_passing = true;
    loop {
        wait_while(daemon, id, passes).await?;
        let decided = decide().await;
        let conflicts = decided.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        let is_passing = move |turn: &mut Turn<'_>| turn.pool().session(id).is_some_and(passes);
        let is_passing = conflicts && daemon.engine.turn(is_passing).await?;
        // The session may have entered and left a passing state during the decision, so it is repeated once even if
        // none is seen.
        if !conflicts || Instant::now() >= deadline || !is_passing && !was_passing {
            return decided;
        }
        was_passing = is_passing;
    }
}

/// True if a launch of the session is in progress, or follows because the session is being restarted.
pub(super) fn is_starting_or_restarting(session: &Session) -> bool {
    let is_ending = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Restarted);
    is_ending || is_about_to_run(session)
}

/// True if a launch of the session is in progress, or is due after the last incarnation has ended.
pub(super) fn is_about_to_run(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Starting || pool::session::is_restarting(session)
}

/// True if the session starts, ends by itself, or is between two incarnations: its next state is still
/// unknown.
pub(super) fn is_in_transition(session: &Session) -> bool {
    let is_asked_for =
        matches!(session.reason, Some(Reason::Drained | Reason::DrainDeadline | Reason::Killed));
    is_starting_or_restarting(session) || session.lifecycle == Lifecycle::Draining && !is_asked_for
}
