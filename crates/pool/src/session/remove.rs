//! `rm`: the end of a session's record.

use protocol::request::Remove;
use protocol::session::{DeleteMode, Reason};
use protocol::{Event, Refusal, Session, Timestamp};

use crate::pool::Pool;
use crate::queue::admin;
use crate::session::in_use::check_unused;
use crate::worker::check_removable;

/// Decides on `rm` of a session that does not run, or whose tmux session is kept.
///
/// # Errors
/// Refused for the host of a worker, except by `worker rm`; conflict if the session is in use, unless forced.
pub fn remove(
    pool: &Pool,
    session: &Session,
    asked: &Remove,
    reason: Reason,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    check_removable(session, asked)?;
    if !asked.force {
        check_unused(pool, session, REMOVE_HINT)?;
    }
    let alive = asked.keep_tmux && session.lifecycle.holds_slot();
    let mode = if asked.keep_tmux { DeleteMode::Detach } else { DeleteMode::KillTmux };
    let mut events = admin::forget_messages(pool, session.id, now);
    if !alive && let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    events.push(Event::SessionDeleted { session: session.id, reason, mode, tmux_alive: alive });
    Ok(events)
}

/// The hint with which `rm` refuses a session in use.
pub const REMOVE_HINT: &str = "--force removes it and its messages all the same";
