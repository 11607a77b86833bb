//! tmux as the daemon itself sees it, and snapshots of the watcher.

use std::sync::Arc;
use std::time::Duration;

use protocol::tmux::{Server, TmuxState};
use protocol::{ErrorCode, Refusal};

use crate::engine::context::Daemon;
use crate::engine::{Sighting, Turn};
use crate::sense::observe;

/// Time within which the watcher has to send a snapshot: tmux's own deadline, and some.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(6);

/// Limit of the daemon's own look: requests wait for it.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// Greatest age of the last look, without a watcher.
const AGE_MAX: Duration = Duration::from_millis(500);

/// The one who looked, where no watcher did.
pub(crate) const MYSELF: &str = "poold";

/// Looks at tmux.
pub(crate) async fn look(daemon: &Daemon) -> TmuxState {
    tmux::listing::observed_state(daemon.tmux.observe().await, |pid| {
        process::identity::identify(pid).ok().flatten()
    })
}

/// Has a snapshot taken and applied. Returns who took it.
///
/// # Errors
/// The engine has stopped.
pub(crate) async fn take(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    let ask = |turn: &mut Turn<'_>| turn.volatile.observed.request_snapshot();
    let Some(number) = daemon.engine.turn(ask).await? else { return look_and_apply(daemon).await };
    daemon.snapshots.send_replace(number);
    let answered = move |turn: &mut Turn<'_>| {
        let observed = &turn.volatile.observed;
        let has_come = observed.has_snapshot(number);
        (has_come || observed.watcher().is_none()).then_some(has_come)
    };
    match daemon.engine.wait_for(Some(SNAPSHOT_LIMIT), answered).await {
        Ok(true) => Ok("tmux-watch".to_owned()),
        Ok(false) => look_and_apply(daemon).await,
        Err(refusal) if refusal.code == ErrorCode::Timeout => look_and_apply(daemon).await,
        Err(refusal) => Err(refusal),
    }
}

async fn look_and_apply(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    let began = tokio::time::Instant::now();
    let looked = tokio::time::timeout(LOOK_LIMIT, look(daemon)).await;
    let silent = |_| {
        let server = Server::unknown(format!("tmux did not answer within {LOOK_LIMIT:?}"));
        TmuxState { server, ..TmuxState::default() }
    };
    let state = looked.unwrap_or_else(silent);
    let admit = move |turn: &mut Turn<'_>| {
        // A watcher's changes do not follow from this.
        turn.volatile.observed.request_resync();
        Ok(Some(Sighting::whole(state, began.elapsed())))
    };
    observe::take_in(daemon, admit, |_| {}).await?;
    Ok(MYSELF.to_owned())
}

/// Without a watcher, looks at tmux before something is shown or acted on, unless that was done a moment ago.
///
/// # Errors
/// The engine has stopped.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    if daemon.watched.borrow().is_some() {
        return Ok(());
    }
    // One look serves all who wait for it.
    let _looking = daemon.looking.lock().await;
    let is_due = |turn: &mut Turn<'_>| turn.volatile.observed.is_outdated(turn.pool(), turn.now(), AGE_MAX);
    if daemon.engine.turn(is_due).await? {
        look_and_apply(daemon).await?;
    }
    Ok(())
}
