//! Puts a session aside: its program ends, its slot comes free, a message wakes it again.

use std::sync::Arc;

use protocol::{Event, SessionId, Tag};
use tmux::Answer;

use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::role;

/// Ends an incarnation that is put aside, unless somebody is attached: tmux looks in the same pass in which it
/// hangs up. What does not end of that is left to the reaper.
pub(crate) async fn end_unattended(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) {
    let Ok(grant) = daemon.engine.lock_inside(session, "park").await else { return };
    let attended = hang_up(daemon, session, tag).await;
    let settle = move |turn: &mut Turn<'_>| {
        turn.rest.view.guarded.remove(&tag);
        if attended {
            go_on(turn, session, tag);
        }
        turn.stir();
    };
    // A stopping engine has nothing left to change.
    drop(daemon.engine.turn(settle).await);
    drop(grant);
}

/// Whether nothing was done, because somebody is attached, or tmux does not answer.
async fn hang_up(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> bool {
    let run = daemon.incarnation(session).await.filter(|run| run.tag == tag);
    let Some(pane) = run.as_ref().and_then(pane_of) else { return false };
    role::keep_screen(daemon, session, tag).await;
    crate::crash::point("park-hang-up");
    match daemon.tmux.kill_unattended(pane).await {
        Ok(Answer::Attached) => true,
        Ok(answer) => {
            tracing::debug!(%session, ?answer, "hung up");
            false
        }
        Err(error) => {
            // Where it certainly was not, it is not parked either; else the reaper sees to it.
            tracing::debug!(%session, %error, "not hung up");
            !error.in_doubt()
        }
    }
}

/// It is as it was before.
fn go_on(turn: &mut Turn<'_>, id: SessionId, tag: Tag) {
    let Some(session) = turn.pool().session(id) else { return };
    let Some(incarnation) =
        session.incarnation.clone().filter(|run| run.tag == tag && session.is_being_parked())
    else {
        return;
    };
    tracing::info!(session = %id, "somebody attached: not parked");
    turn.emit(Event::SessionLive { session: id, incarnation, recovered: session.recovered });
}
