//! `rename`, `label`, `kill`, `restart`, `rm`: changes of a session that there is.

use std::collections::BTreeMap;

use protocol::policy::RestartPolicy;
use protocol::request::{Label, Remove};
use protocol::session::Conversation;
use protocol::session::{DeleteMode, Reason};
use protocol::{ErrorCode, Event, Incarnation, Lifecycle, Name, Refusal, Session, Tag, Timestamp};

use super::{create, refuse, text};
use crate::budget;
use crate::pool::{Pool, is_between};
use crate::queue;

/// Decides on `rename`. No event where the name is the same already.
///
/// # Errors
/// Usage, or conflict where the name is taken.
pub fn rename(pool: &Pool, session: &Session, name: &str) -> Result<Option<Name>, Refusal> {
    let name = text::name(name.trim())?;
    if session.name == name {
        return Ok(None);
    }
    match pool.named(name.as_str()) {
        Some(other) if other.id != session.id => refuse(ErrorCode::Conflict, create::taken(&name, other)),
        _ => Ok(Some(name)),
    }
}

/// Decides on `label`.
///
/// # Errors
/// Usage.
pub fn label(session: &Session, asked: &Label) -> Result<Vec<Event>, Refusal> {
    text::labels(&asked.set)?;
    let mut labels: BTreeMap<String, String> = session.labels.clone();
    labels.extend(asked.set.clone());
    labels.retain(|key, _| !asked.remove.contains(key));
    text::labels(&labels)?;
    let changed = labels != session.labels;
    Ok(if changed { vec![Event::SessionLabelled { session: session.id, labels }] } else { Vec::new() })
}

/// Decides on `kill`. No event where it is ending or over already, and is not to start again.
#[must_use]
pub fn kill(session: &Session) -> Vec<Event> {
    let ends = match session.lifecycle {
        Lifecycle::Starting | Lifecycle::Live => ending(session, Reason::Killed),
        // However it is ending: what is left of it is not waited for any longer.
        Lifecycle::Draining if session.reason != Some(Reason::Killed) => ending(session, Reason::Killed),
        // It was to start again, or to be woken, and is not to now.
        _ if is_to_start(session)
            || matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost)
            || may_start_again(session) =>
        {
            Event::SessionStopped { session: session.id, reason: Reason::Killed, exit: session.exit }
        }
        _ => return Vec::new(),
    };
    std::iter::once(ends).chain(budget::renewed(session)).collect()
}

/// It is over, and its policy may start it again before that is decided.
fn may_start_again(session: &Session) -> bool {
    let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
    over && session.policy.restart != RestartPolicy::No && session.reason != Some(Reason::Killed)
}

/// Decides on `restart`: first the end of what runs, if something does.
#[must_use]
pub fn restart(session: &Session) -> Vec<Event> {
    let under_way = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Restarted);
    if session.lifecycle.holds_slot() && !under_way {
        return vec![ending(session, Reason::Restarted)];
    }
    Vec::new()
}

/// What the shell adds to the next start of a session.
#[derive(Debug, Clone, Copy)]
pub struct Next<'a> {
    /// A fresh random tag.
    pub tag: Tag,
    /// Now.
    pub now: Timestamp,
    /// The id of a new conversation, if one begins.
    pub conversation: &'a str,
    /// Whether the last one is not to be taken up.
    pub fresh: bool,
}

/// The next incarnation of a session whose last one is proved gone.
#[must_use]
pub fn next_incarnation(session: &Session, next: Next<'_>) -> Vec<Event> {
    let mut events = Vec::new();
    if let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    let had = session.conversation.is_some();
    // One in which the pool said nothing is not taken up: somebody else may have used its id.
    let begun = session.conversation.as_ref().is_some_and(|last| last.begun);
    let resumed = begun && !next.fresh;
    let fresh = (had && !resumed).then(|| Conversation { id: next.conversation.to_owned(), begun: false });
    if fresh.is_some() {
        events.push(Event::ConversationChanged { session: session.id, conversation: fresh });
    }
    let restarts = session.restarts + u32::from(session.lifecycle != Lifecycle::Starting);
    events.push(Event::SessionStarting {
        session: session.id,
        incarnation: Incarnation { resumed, ..Incarnation::intended(next.tag, next.now) },
        incarnations: session.incarnations.saturating_add(1),
        restarts,
    });
    events
}

/// Decides on `rm` of a session that does not run, or that tmux is to keep.
///
/// # Errors
/// Conflict with work in flight or a client attached, unless forced.
pub fn remove(
    pool: &Pool,
    session: &Session,
    asked: &Remove,
    reason: Reason,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    if !asked.force {
        idle_enough(pool, session, REMOVE)?;
    }
    let alive = asked.keep_tmux && session.lifecycle.holds_slot();
    let mode = if asked.keep_tmux { DeleteMode::Detach } else { DeleteMode::KillTmux };
    let mut events = super::forget_messages(pool, session.id, now);
    if !alive && let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    events.push(Event::SessionDeleted { session: session.id, reason, mode, tmux_alive: alive });
    Ok(events)
}

/// What `rm` says to do with what is not idle.
pub const REMOVE: &str = "--force removes it and its messages all the same";

/// Refuses what is being worked on or looked at, with the sentence for the user: what to do `otherwise`.
///
/// # Errors
/// Conflict.
pub fn idle_enough(pool: &Pool, session: &Session, otherwise: &str) -> Result<(), Refusal> {
    let name = &session.name;
    if session.attached_clients > 0 && session.lifecycle.holds_slot() {
        return refuse(ErrorCode::Conflict, format!("a client is attached to {name}; {otherwise}"));
    }
    let waiting = queue::counts(pool, Some(session.id));
    let open = waiting.queued + waiting.claimed + waiting.in_doubt;
    if open > 0 {
        return refuse(
            ErrorCode::Conflict,
            format!("{open} messages of {name} are not worked yet; {otherwise}"),
        );
    }
    Ok(())
}

/// Whether its next incarnation is decided on already: it restarts, or is due.
pub(super) fn is_to_start(session: &Session) -> bool {
    !session.lifecycle.holds_slot() && (is_between(session) || session.budget.due_at.is_some())
}

pub(super) fn ending(session: &Session, reason: Reason) -> Event {
    let missing_since = session.incarnation.as_ref().and_then(|i| i.missing_since);
    Event::SessionDraining { session: session.id, reason, exit: None, missing_since }
}
