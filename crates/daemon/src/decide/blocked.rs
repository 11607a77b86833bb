//! The reason why the next prompt of a session is not typed yet.

use pool::reap::held_by_shortage;
use pool::session::lifecycle_label;
use pool::{Settings, queue};
use protocol::{MessageId, MessageState, PROMPT, Session, SessionId};

use crate::engine::Turn;
use crate::host::clock;

/// Returns the next prompt of a session, and the reason why it is not typed yet.
pub(crate) fn blocked_prompt(
    turn: &Turn<'_>,
    settings: &Settings,
    session: SessionId,
) -> Option<(MessageId, String)> {
    let open = queue::waiting_prompt(turn.pool(), session)?;
    let (next, not_before) = (open.id, open.not_before.filter(|at| *at > turn.now()));
    let before = queue::held_prompt(turn.pool(), session);
    let earlier = before.map(|open| {
        let state = protocol::MessageStatus { state: open.state, ..Default::default() }.event_kind().as_str();
        let settle = match open.state {
            MessageState::Typed | MessageState::InDoubt => {
                let name = turn.pool().session(session).map(|session| session.name.to_string());
                let name = name.unwrap_or_default();
                format!(": `{}`", queue::resolve_command(&name, open.id))
            }
            _ => String::new(),
        };
        format!("message {} comes first ({}){settle}", open.id, state.trim_start_matches("message_"))
    });
    let limited = || {
        let session = turn.pool().session(session)?;
        pool::prompt::limit_reason(&pool::agent::current_activity(turn.pool(), session), turn.now())
    };
    let held_back = || {
        let breaker = turn.pool().breaker(session, PROMPT).filter(|breaker| breaker.is_open())?;
        let until = breaker.probe_at.filter(|at| *at > turn.now())?;
        let failures = protocol::text::counted(breaker.failures.into(), "failure");
        Some(format!("held back after {failures}, not before {}", clock::rfc3339(until)))
    };
    let not_running = || {
        let session = turn.pool().session(session).filter(|s| !s.lifecycle.holds_slot())?;
        let (name, word) = (&session.name, lifecycle_label(session.lifecycle));
        Some(match session.lifecycle {
            protocol::Lifecycle::Parked => match held_by_shortage(turn.volatile, settings, session) {
                Some(figures) => format!(
                    "its session is parked until the machine has enough again: {figures}; `poolctl restore \
                     {name}` starts it all the same"
                ),
                None if pool::session::is_held_as_copy(session) => {
                    format!("its session is parked in a copy of its pool: `poolctl restore {name}` starts it")
                }
                None => "its session is parked, and waits for a slot".to_owned(),
            },
            _ => next_start(turn, settings, session)
                .unwrap_or_else(|| format!("its session is {word}: `poolctl restart {name}`")),
        })
    };
    let later = || {
        let at = clock::rfc3339(not_before?);
        let tried = || {
            turn.message(next)
                .ok()
                .flatten()
                .and_then(|(message, _)| Some(message.status.reason?.to_string()))
        };
        let why = if open.attempts > 0 { tried() } else { None };
        Some(why.map_or(format!("not before {at}"), |why| format!("{why}; tried again at {at}")))
    };
    let known = earlier.or_else(|| turn.volatile.prompts.blocked().get(&session).map(ToString::to_string));
    Some((next, known.or_else(limited).or_else(held_back).or_else(later).or_else(not_running)?))
}

/// Returns when the pool itself starts a session that has ended, if it does.
fn next_start(turn: &Turn<'_>, settings: &Settings, session: &Session) -> Option<String> {
    if turn.volatile.scheduler.waiting.position(session.id).is_some() {
        return Some("its session waits for a slot".to_owned());
    }
    let due = session.budget.due_at.filter(|at| *at > turn.now());
    let due = due.map(|at| format!("its session is started again at {}", clock::rfc3339(at)));
    due.or_else(|| {
        will_start(turn, settings, session).then(|| "its session is about to be started".to_owned())
    })
}

/// True if a session that does not run will start by itself.
pub(crate) fn will_start(turn: &Turn<'_>, settings: &Settings, session: &Session) -> bool {
    pool::session::is_restarting(session)
        || session.budget.due_at.is_some()
        || turn.volatile.scheduler.waiting.position(session.id).is_some()
        || turn.volatile.scheduler.is_starting(session.id)
        || pool::slots::is_conversation_unchecked(turn, settings, session)
        || pool::session::will_restart(turn.pool(), settings, session, turn.now())
}
