//! `rename`, `label`, `kill`, `restart`, `rm`: changes of a session that there is.

use std::collections::BTreeMap;

use protocol::request::{Label, Remove};
use protocol::session::{DeleteMode, Reason};
use protocol::{ErrorCode, Event, Incarnation, Lifecycle, Name, Refusal, Session, Tag, Timestamp};

use super::{create, refuse, text};
use crate::pool::{Pool, is_between};
use crate::queue;
use crate::settings::Settings;

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

/// Decides on `kill`. No event where it is ending or over already.
#[must_use]
pub fn kill(session: &Session) -> Vec<Event> {
    match session.lifecycle {
        Lifecycle::Starting | Lifecycle::Live => vec![ending(session, Reason::Killed)],
        // However it is ending: what is left of it is not waited for any longer.
        Lifecycle::Draining if session.reason != Some(Reason::Killed) => {
            vec![ending(session, Reason::Killed)]
        }
        // It was to start again, and is not to now.
        Lifecycle::Stopped if is_between(session) => {
            vec![Event::SessionStopped { session: session.id, reason: Reason::Killed, exit: session.exit }]
        }
        _ => Vec::new(),
    }
}

/// Decides on `restart`: first the end of what runs, if something does.
///
/// # Errors
/// Refused where there is no slot.
pub fn restart(pool: &Pool, settings: &Settings, session: &Session) -> Result<Vec<Event>, Refusal> {
    if session.lifecycle.holds_slot() {
        let under_way = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Restarted);
        return Ok(if under_way { Vec::new() } else { vec![ending(session, Reason::Restarted)] });
    }
    has_slot_for(pool, settings, session)?;
    Ok(Vec::new())
}

/// Refuses where every slot is taken by other sessions.
///
/// # Errors
/// Refused.
pub fn has_slot_for(pool: &Pool, settings: &Settings, session: &Session) -> Result<(), Refusal> {
    if is_between(session) { Ok(()) } else { create::has_slot(pool, settings) }
}

/// The next incarnation of a session whose last one is proved gone.
#[must_use]
pub fn next_incarnation(session: &Session, tag: Tag, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    if let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    let restarts = session.restarts + u32::from(session.lifecycle != Lifecycle::Starting);
    events.push(Event::SessionStarting {
        session: session.id,
        incarnation: Incarnation::intended(tag, now),
        incarnations: session.incarnations.saturating_add(1),
        restarts,
    });
    events
}

/// Decides on `rm` of a session that does not run, or that tmux is to keep.
///
/// # Errors
/// Conflict with work in flight or a client attached, unless forced.
pub fn remove(pool: &Pool, session: &Session, asked: &Remove, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    if !asked.force {
        idle_enough(pool, session)?;
    }
    let alive = asked.keep_tmux && session.lifecycle.holds_slot();
    let mode = if asked.keep_tmux { DeleteMode::Detach } else { DeleteMode::KillTmux };
    let mut events = super::forget_messages(pool, session.id, now);
    if !alive && let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    events.push(Event::SessionDeleted {
        session: session.id,
        reason: Reason::ApiDelete,
        mode,
        tmux_alive: alive,
    });
    Ok(events)
}

/// Refuses to remove what is being worked on or looked at, with the sentence for the user.
///
/// # Errors
/// Conflict.
pub fn idle_enough(pool: &Pool, session: &Session) -> Result<(), Refusal> {
    let name = &session.name;
    if session.attached_clients > 0 && session.lifecycle.holds_slot() {
        return refuse(
            ErrorCode::Conflict,
            format!("a client is attached to {name}; --force removes it all the same"),
        );
    }
    let waiting = queue::counts(pool, Some(session.id));
    let open = waiting.queued + waiting.claimed + waiting.in_doubt;
    if open > 0 {
        return refuse(
            ErrorCode::Conflict,
            format!("{open} messages of {name} are not worked yet; --force removes it and them all the same"),
        );
    }
    Ok(())
}

fn ending(session: &Session, reason: Reason) -> Event {
    let missing_since = session.incarnation.as_ref().and_then(|i| i.missing_since);
    Event::SessionDraining { session: session.id, reason, exit: None, missing_since }
}
