//! Starts that the pool owes once a slot is free: by its restart policy, by a message, or for a prompt that waits for a
//! parked session.

use protocol::policy::RestartPolicy;
use protocol::{ActivityState, Lifecycle, Message, Reason, Session, SessionView, Timestamp};

use crate::land::Land;

/// Returns which session is still to be started by itself, if one is and gets a slot.
pub(super) fn owed(land: &Land, sessions: &[SessionView]) -> Option<String> {
    let is_owed = |found: &&SessionView| {
        let session = &found.session;
        found.lock.is_none() && (is_restarting(session) || starts_by_itself(session))
    };
    let found = sessions.iter().find(is_owed).filter(|_| has_slot(land, sessions))?;
    let Session { name, lifecycle, reason, budget, .. } = &found.session;
    Some(format!("{name} is {lifecycle:?} ({reason:?}), and is to be started: {budget:?}"))
}

/// True if a session can get a slot: one is free, or a session at rest can be parked for it.
pub(super) fn has_slot(land: &Land, sessions: &[SessionView]) -> bool {
    let holds = |session: &Session| session.lifecycle.holds_slot() || is_restarting(session);
    let used = sessions.iter().filter(|found| holds(&found.session)).count();
    usize::try_from(land.climate.slots).is_ok_and(|slots| used < slots)
        || sessions.iter().any(|found| gives_way(land, found))
}

/// True if a session that does not run is started for a prompt that waits for it.
pub(super) fn wakes(session: &SessionView, now: Timestamp) -> bool {
    let record = &session.session;
    let is_limited = session.activity.limited_until.is_some_and(|until| until > now);
    // A start that fails while a prompt waits is repeated.
    let has_failed = record.lifecycle == Lifecycle::Failed && record.incarnations > 1;
    session.lock.is_none()
        && !record.budget.exhausted
        && (record.lifecycle == Lifecycle::Parked && !is_limited || has_failed)
}

/// True if a session had ended when this message was queued, and nothing has become of it since. Those that were ended
/// by order may have been ended once more.
pub(super) fn is_untouched(found: &SessionView, message: &Message) -> bool {
    let session = &found.session;
    session.lifecycle.is_over()
        && session.changed_at < message.created_at
        && !session.reason.is_some_and(Reason::is_order)
}

/// True for a session that can be parked at once, and loses nothing by that.
fn gives_way(land: &Land, found: &SessionView) -> bool {
    let (session, queue, activity) = (&found.session, &found.queue, &found.activity);
    let is_free = found.lock.is_none() && !session.policy.pinned && session.attached_clients == 0;
    let is_idle = activity.state == ActivityState::Idle && activity.source.is_report();
    let has_spoken = session.conversation.as_ref().is_some_and(|it| it.begun);
    let is_empty = |tag| land.tmux.is_composer_empty(tag);
    session.lifecycle == Lifecycle::Live
        && found.parkable
        && is_free
        && is_idle
        && has_spoken
        && queue.queued + queue.claimed + queue.in_doubt == 0
        && session.incarnation.as_ref().is_some_and(|run| is_empty(run.tag))
}

/// True if one incarnation was ended, and the next one is to come.
pub(super) fn is_restarting(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Restarted)
}

/// True if the start of a session is due at some time, or its policy is about to decide on one.
fn starts_by_itself(session: &Session) -> bool {
    let is_open = !session.lifecycle.holds_slot() && !session.budget.exhausted;
    is_open && (session.budget.due_at.is_some() || is_wanted_by_policy(session))
}

/// True if the policy of a session starts it again after such an end.
fn is_wanted_by_policy(session: &Session) -> bool {
    use Reason::{
        ExecFailed, Exited, Hung, MemoryLimit, Setup, StaleAgent, StartupMissingTmux, TmuxFailed, TmuxGone,
    };
    let Some(reason) = session.reason else { return false };
    let has_failed = match (session.lifecycle, reason) {
        (Lifecycle::Stopped, Exited) => session.exit.is_none_or(|exit| exit.code != Some(0)),
        (Lifecycle::Stopped, MemoryLimit | Hung | StaleAgent) => true,
        (Lifecycle::Failed, TmuxFailed | Setup | ExecFailed) => session.incarnations > 1,
        _ => false,
    };
    let has_ended =
        session.lifecycle == Lifecycle::Stopped && matches!(reason, Exited | TmuxGone | StartupMissingTmux);
    match session.policy.restart {
        RestartPolicy::No => false,
        RestartPolicy::OnFailure => has_failed,
        RestartPolicy::Always => has_failed || has_ended || session.lifecycle == Lifecycle::Lost,
    }
}
