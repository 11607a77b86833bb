//! The intent to start a session once more.

use protocol::{Session, SessionId, Tag};

use crate::admit::{self, Next};
use crate::budget;
use crate::settings::Settings;
use crate::turn::Turn;

/// Random names for a new incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its tag.
    pub tag: Tag,
    /// The id of its conversation, if it begins a new one.
    pub conversation: String,
}

/// Origin of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// The session's policy, or a message that waits: costs budget.
    Policy,
    /// A user: renews the budget.
    User {
        /// True if the last conversation is not resumed.
        fresh: bool,
    },
}

/// Records the intent to start a session. Its slot is taken from here on.
pub fn begin_start(
    turn: &mut Turn<'_>,
    settings: &Settings,
    session: &Session,
    (starter, identity): (Starter, Identity),
) {
    let budget = match starter {
        Starter::Policy => Some(budget::spent(turn.pool(), settings, session, turn.now())),
        Starter::User { .. } => budget::renewed(session),
    };
    renew(turn, session.id, starter == Starter::User { fresh: true }, &identity);
    turn.emit_all(budget);
    turn.volatile.scheduler.begin_start(session.id);
}

/// Records a new incarnation in the place of one that is over, or proved not to run.
pub fn renew(turn: &mut Turn<'_>, session: SessionId, fresh: bool, identity: &Identity) {
    let Identity { tag, conversation } = identity;
    let now = turn.now();
    if let Some(record) = turn.pool().session(session) {
        let events = admit::next_incarnation(record, Next { tag: *tag, now, conversation, fresh });
        turn.emit_all(events);
    }
}
