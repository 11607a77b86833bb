//! `rm`: the end of a session's record.

use protocol::request::Remove;
use protocol::session::DeleteMode;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{Event, Incarnation, Reason, Refusal, Session, Timestamp};

use crate::pool::Pool;
use crate::queue::admin;
use crate::session::in_use::check_unused;
use crate::worker::check_removable;

/// Decides on `rm` of a session that does not run, or whose tmux session is kept. `state`: tmux as observed.
///
/// # Errors
/// Refused for the host of a worker, except by `worker rm`; conflict if the session is in use, unless forced.
pub fn remove(
    pool: &Pool,
    session: &Session,
    (asked, reason): (&Remove, Reason),
    (state, now): (&TmuxState, Timestamp),
) -> Result<Vec<Event>, Refusal> {
    check_removable(session, asked)?;
    if !asked.force {
        check_unused(pool, session, REMOVE_HINT)?;
    }
    let given_back = asked.keep_tmux && session.lifecycle.holds_slot();
    let mode = if asked.keep_tmux { DeleteMode::Detach } else { DeleteMode::KillTmux };
    let mut events = admin::forget_messages(pool, session.id, now);
    if !given_back && let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    let tmux_alive =
        given_back || session.incarnation.as_ref().is_some_and(|run| is_used_by_others(state, run));
    events.push(Event::SessionDeleted { session: session.id, reason, mode, tmux_alive });
    Ok(events)
}

/// True if the tmux session of an incarnation has further panes, of its user.
fn is_used_by_others(state: &TmuxState, run: &Incarnation) -> bool {
    let is_other = |pane: &TmuxPane| Some(pane.session) == run.session && pane.tag != Some(run.tag);
    run.server.is_some_and(|server| state.server == Server::Up(server)) && state.panes.values().any(is_other)
}

/// The hint with which `rm` refuses a session in use.
pub const REMOVE_HINT: &str = "--force removes it and its messages all the same";
