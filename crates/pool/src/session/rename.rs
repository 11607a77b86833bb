//! `rename`: a session's name, which is that of its tmux session.

use protocol::{ErrorCode, Lifecycle, Name, Refusal, Session};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::input;
use crate::session::naming::name_taken;
use crate::worker::check_no_host;

/// Decides on `rename`. Returns none if the session has the name already.
///
/// # Errors
/// Usage; conflict if the name is taken, or the session is starting; refused for the host of a worker.
pub fn rename(pool: &Pool, session: &Session, name: &str) -> Result<Option<Name>, Refusal> {
    check_no_host(session)?;
    let name = input::check_name(name.trim())?;
    if session.name == name {
        return Ok(None);
    }
    // tmux may be about to create the session under its current name, which would be taken over from there.
    if session.lifecycle == Lifecycle::Starting {
        return refuse(ErrorCode::Conflict, format!("{} is just starting; try again", session.name));
    }
    match pool.named(name.as_str()) {
        Some(other) if other.id != session.id => refuse(ErrorCode::Conflict, name_taken(&name, other)),
        _ => Ok(Some(name)),
    }
}
