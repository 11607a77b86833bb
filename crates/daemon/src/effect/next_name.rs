//! Gives a session with a numeric name the next number, if its launch found that tmux already has a session of its
//! name.

use std::sync::Arc;

use protocol::{Lifecycle, Session, SessionId};

use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;

/// Maximum number of names that one launch tries: each was free in tmux a moment before it was tried.
pub(crate) const TRIES: u32 = 8;

/// Renames the session to the number after all that tmux lists now. `None` if the session does not start any more.
pub(crate) async fn renumber(daemon: &Arc<Daemon>, id: SessionId) -> Option<Session> {
    let listed = tmux_snapshot::list(daemon).await.sessions.into_values();
    let names: Vec<String> = listed.map(|session| session.name).collect();
    let rename = move |turn: &mut Turn<'_>| {
        let session = turn.pool().session(id).filter(|s| s.lifecycle == Lifecycle::Starting)?;
        let renamed = pool::session::renumber(turn.pool(), session, &names).ok()?;
        turn.emit(renamed);
        turn.pool().session(id).cloned()
    };
    daemon.engine.turn(rename).await.ok().flatten()
}
