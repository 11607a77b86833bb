//! The size of a terminal that its last client has left: that of the session, not of the client.

use std::sync::Arc;

use protocol::SessionId;

use crate::engine::{Daemon, Turn, pane_of, tmux_size};

/// Runs until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.mark_seen();
        let take = |turn: &mut Turn<'_>| turn.volatile.observed.take_unattended();
        let Ok(unattended) = daemon.engine.turn(take).await else { return };
        for session in unattended {
            daemon.world.spawn("size", restore(Arc::clone(&daemon), session));
        }
        turns.changed().await;
    }
}

/// Gives the pane of a session its size back, unless a client is attached again. An adopted one keeps the size
/// that its user gave it.
async fn restore(daemon: Arc<Daemon>, id: SessionId) {
    let Ok(grant) = daemon.engine.lock_inside(id, "resize").await else { return };
    let find = move |turn: &mut Turn<'_>| {
        let session = turn.pool().session(id).filter(|session| session.takes_prompts())?;
        let run = session.incarnation.as_ref().filter(|run| !run.is_adopted())?;
        Some((pane_of(run)?, tmux_size(session.spec.size)))
    };
    if let Ok(Some((pane, size))) = daemon.engine.turn(find).await {
        let answer = daemon.tmux.resize(pane, size).await;
        tracing::debug!(session = %id, ?answer, "its terminal has its own size again");
    }
    drop(grant);
}
