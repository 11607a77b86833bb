//! The check that a tmux server answers, if the pool may not start one itself: the user's own server, or one that a
//! service manager starts.

use std::sync::Arc;

use protocol::Refusal;
use protocol::tmux::Server;

use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;

/// Checks before a start that it can succeed, so that what waits for it stays as it is.
///
/// # Errors
/// Unavailable, if no server answers and the pool may not start one; storage where the engine has stopped.
pub(crate) async fn check(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    if daemon.device.start_server || !is_absent(daemon).await? {
        return Ok(());
    }
    // A server may have been started since the last observation.
    tmux_snapshot::take(daemon).await?;
    if is_absent(daemon).await? {
        return Err(Refusal::unavailable(none_answers(daemon)));
    }
    Ok(())
}

/// Returns that no tmux server answers, with what to do.
pub(crate) fn none_answers(daemon: &Daemon) -> String {
    if daemon.device.own {
        return "no tmux server answers at the pool's socket: start its unit, or, where one lives and its socket \
                was deleted, send it SIGUSR1; then repeat this"
            .to_owned();
    }
    let socket = daemon.device.socket.display();
    format!(
        "no tmux server answers at {socket}, and the pool starts none there, as it is not its own: `tmux -S {socket} \
         new-session -d` starts one; then repeat this"
    )
}

async fn is_absent(daemon: &Daemon) -> Result<bool, Refusal> {
    let absent = |turn: &mut Turn<'_>| matches!(turn.volatile.observed.state().server, Server::Absent);
    daemon.engine.turn(absent).await
}
