//! `sync`: a full snapshot now, applied before the answer; by the watcher, or without one by the
//! daemon itself.

use std::sync::Arc;
use std::time::Duration;

use protocol::reply::Synced;
use protocol::tmux::{Server, TmuxState};
use protocol::{ErrorCode, Refusal, Reply, Response, SessionId, Timestamp};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::launch;
use crate::view::{self, Seen};

/// How long the watcher may take: tmux's own deadline and a little more.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(6);
/// How long the daemon's own look may take: whoever asked for something else waits for it.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Who looked, where no watcher did.
const MYSELF: &str = "poold";
/// How old the last look may be, without a watcher.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(super) async fn sync(daemon: &Arc<Daemon>) -> Reply {
    let before = daemon.engine.turn(|turn| turn.pool().seq()).await?;
    let mut by = snapshot(daemon).await?;
    // What a watcher that came meanwhile has to tell begins with what it sees itself.
    let is_new = |turn: &mut Turn<'_>| {
        let view = &turn.rest.view;
        view.watcher.is_some() && matches!(view.state.server, Server::Unknown(_))
    };
    if by == MYSELF && daemon.engine.turn(is_new).await? {
        by = snapshot(daemon).await?;
    }
    let report = move |turn: &mut Turn<'_>| {
        let seen = &turn.rest.view.state;
        if let Server::Unknown(silence) = &seen.server {
            let why = &silence.detail;
            return Err(Refusal::new(ErrorCode::Unavailable, format!("tmux was not seen: {why}")));
        }
        let events = turn.reader().events_since(before, 10_000).unwrap_or_default();
        let mut changed: Vec<SessionId> = events.iter().filter_map(|e| e.event.session()).collect();
        changed.sort_unstable();
        changed.dedup();
        let ours = |tag| turn.pool().tagged(tag).is_some();
        let foreign = seen.panes.values().filter(|pane| !pane.tag.is_some_and(ours)).count();
        Ok(Response::Synced(Synced {
            by,
            sessions: seen.sessions.len() as u64,
            panes: seen.panes.len() as u64,
            foreign: foreign as u64,
            changed,
        }))
    };
    daemon.engine.turn(report).await?
}

/// Has a snapshot taken and applied. Answers by whom.
pub(crate) async fn snapshot(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    let ask = |turn: &mut Turn<'_>| {
        turn.rest.view.watcher.is_some().then(|| {
            turn.rest.view.asked += 1;
            turn.rest.view.asked
        })
    };
    let Some(n) = daemon.engine.turn(ask).await? else { return by_myself(daemon).await };
    daemon.snapshots.send_replace(n);
    let answered = move |turn: &mut Turn<'_>| {
        let view = &turn.rest.view;
        (view.answered >= n || view.watcher.is_none()).then_some(view.answered >= n)
    };
    match daemon.engine.wait_for(Some(SNAPSHOT_LIMIT), answered).await {
        Ok(true) => Ok("tmux-watch".to_owned()),
        Ok(false) => by_myself(daemon).await,
        Err(refusal) if refusal.code == ErrorCode::Timeout => by_myself(daemon).await,
        Err(refusal) => Err(refusal),
    }
}

async fn by_myself(daemon: &Arc<Daemon>) -> Result<String, Refusal> {
    let began = tokio::time::Instant::now();
    let looked = tokio::time::timeout(LOOK_LIMIT, launch::observe(daemon)).await;
    let silent = |_| {
        let server = Server::unknown(format!("tmux did not answer within {LOOK_LIMIT:?}"));
        TmuxState { server, ..TmuxState::default() }
    };
    let state = looked.unwrap_or_else(silent);
    let run = daemon.paths.run.clone();
    let apply = move |turn: &mut Turn<'_>| {
        // A watcher's diffs do not follow from this.
        turn.rest.view.resync = true;
        view::observe(turn, &run, Seen::whole(state, began.elapsed()));
    };
    daemon.engine.turn(apply).await?;
    Ok(MYSELF.to_owned())
}

/// Without a watcher, what is about to be shown or acted on is looked at first.
pub(super) async fn look(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    if daemon.watched.borrow().is_some() {
        return Ok(());
    }
    // One look serves all who wait for it.
    let _looking = daemon.looking.lock().await;
    if daemon.engine.turn(|turn| is_due(turn)).await? {
        by_myself(daemon).await?;
    }
    Ok(())
}

/// Whether nobody watches, and the last look is too old to rely on.
fn is_due(turn: &Turn<'_>) -> bool {
    let view = &turn.rest.view;
    let recent = |at: Timestamp| turn.age(at) < LOOK_AGAIN;
    view.watcher.is_none() && !view.looked_at.is_some_and(recent)
}
