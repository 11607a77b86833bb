//! Snapshots of tmux: by the watcher, or by the daemon itself.

use std::sync::Arc;
use std::time::Duration;

use protocol::tmux::{Server, TmuxState};
use protocol::{ErrorCode, Refusal};

use crate::engine::{Daemon, ObservedTmux, Turn};
use crate::host::blocking_pool::Purpose;
use crate::sense::observe;

/// Time within which the watcher has to send a snapshot: tmux's own deadline, and a margin.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(6);

/// Time limit of the daemon's own listing, for which requests wait.
const LIST_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of listings, which are repeated while the watcher overtakes them.
const LISTINGS_MAX: u32 = 3;

/// Maximum age of the last observation, without a watcher.
const AGE_MAX: Duration = Duration::from_millis(500);

/// Name of the observer when the daemon listed tmux itself.
pub(crate) const OBSERVER: &str = "poold";

/// Lists the tmux server.
pub(crate) async fn list(daemon: &Daemon) -> TmuxState {
    let observed = daemon.tmux.observe().await;
    let Ok(listing) = &observed else { return tmux::listing::observed_state(observed, |_| None) };
    let (pids, processes) = (listing.pids(), daemon.processes());
    let identify = move || processes.identify_each(&pids);
    let Some(found) = daemon.blocking.with_timeout(Purpose::Processes, identify).await else {
        let server = Server::unknown("the process table does not answer".to_owned());
        return TmuxState { server, ..TmuxState::default() };
    };
    tmux::listing::observed_state(observed, |pid| found.get(&pid).copied())
}

/// Takes and applies a snapshot. Returns the name of its observer.
pub(crate) async fn take(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    let ask = |turn: &mut Turn<'_>| turn.volatile.observed.request_snapshot();
    let Some(number) = daemon.engine.turn(ask).await? else { return list_and_apply(daemon).await };
    daemon.snapshots.send_replace(number);
    let answered = move |turn: &mut Turn<'_>| {
        let observed = &turn.volatile.observed;
        let has_come = observed.has_snapshot(number);
        (has_come || observed.watcher().is_none()).then_some(has_come)
    };
    match daemon.engine.wait_for(Some(SNAPSHOT_LIMIT), answered).await {
        Ok(true) => Ok("tmux-watch".to_owned()),
        Ok(false) => list_and_apply(daemon).await,
        Err(refusal) if refusal.code == ErrorCode::Timeout => list_and_apply(daemon).await,
        Err(refusal) => Err(refusal),
    }
}

/// Lists tmux. Lists it again if the watcher reported something newer meanwhile, which may not have been everything.
async fn list_and_apply(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    for _ in 0..LISTINGS_MAX {
        if list_once(daemon).await? {
            break;
        }
    }
    Ok(OBSERVER.to_owned())
}

/// Returns true if the listing was applied.
async fn list_once(daemon: &Arc<Daemon>) -> Result<bool, Refusal> {
    let began = tokio::time::Instant::now();
    let listed = tokio::time::timeout(LIST_LIMIT, list(daemon)).await;
    let silent = |_| {
        let server = Server::unknown(format!("tmux did not answer within {LIST_LIMIT:?}"));
        TmuxState { server, ..TmuxState::default() }
    };
    let state = listed.unwrap_or_else(silent);
    let admit = move |_: &mut Turn<'_>| Ok(Some(ObservedTmux::whole(state, began.elapsed())));
    observe::take_in(daemon, admit, |_| {}).await.map(|taken| taken.admitted)
}

/// Without a watcher, lists tmux before something is shown or acted on, unless the last observation is
/// recent.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    if daemon.watcher_connection.borrow().is_some() {
        return Ok(());
    }
    // One listing serves all waiting requests.
    let _listing = daemon.listing.lock().await;
    let is_due = |turn: &mut Turn<'_>| turn.volatile.observed.is_outdated(turn.pool(), turn.now(), AGE_MAX);
    if daemon.engine.turn(is_due).await? {
        list_and_apply(daemon).await?;
    }
    Ok(())
}
