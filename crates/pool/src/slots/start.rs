//! The intent to start a session again.

use protocol::{Event, Session, SessionId, Tag};

use crate::queue::settle::restart_suspended;
use crate::session::restart::{NextRun, next_incarnation};
use crate::session::restart_budget;
use crate::settings::Settings;
use crate::turn::Turn;

/// Random identities of a new incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunIdentity {
    pub tag: Tag,
    /// The id of its conversation, if it begins a new one.
    pub conversation: String,
}

/// The initiator of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// The session's policy, or a waiting message: costs budget.
    Policy,
    /// A message for a worker whose host ended well: costs nothing.
    Message,
    /// A user: resets the budget.
    User {
        /// True if the last conversation is not to be resumed.
        fresh: bool,
    },
}

/// Records the intent to start a session. Its slot is taken from here on.
pub fn begin_start(
    turn: &mut Turn<'_>,
    settings: &Settings,
    session: &Session,
    (starter, identity): (Starter, RunIdentity),
) {
    let budget = match starter {
        Starter::Policy => Some(restart_budget::spend_restart(turn.pool(), settings, session, turn.now())),
        Starter::Message => None,
        Starter::User { .. } => restart_budget::reset_budget(session),
    };
    renew_incarnation(turn, session.id, starter == Starter::User { fresh: true }, &identity);
    turn.emit_all(budget);
    turn.volatile.scheduler.begin_start(session.id);
}

/// Records a new incarnation in place of one that is over, or proved not to run.
pub fn renew_incarnation(turn: &mut Turn<'_>, session: SessionId, fresh: bool, identity: &RunIdentity) {
    let RunIdentity { tag, conversation } = identity;
    let now = turn.now();
    if let Some(record) = turn.pool().session(session) {
        let events = next_incarnation(record, NextRun { tag: *tag, now, conversation, fresh });
        let is_resumed = events
            .iter()
            .any(|event| matches!(event, Event::SessionStarting { incarnation, .. } if incarnation.resumed));
        // A new conversation knows nothing of the prompt that an outage cut short.
        let restarted = restart_suspended(turn.pool(), session, now).filter(|_| !is_resumed);
        turn.emit_all(events.into_iter().chain(restarted));
    }
}
