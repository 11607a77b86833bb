//! `sync`: a full snapshot now, applied before the answer; by the watcher, or without one by the
//! daemon itself.

use std::sync::Arc;
use std::time::Duration;

use protocol::reply::Synced;
use protocol::tmux::Server;
use protocol::{ErrorCode, Refusal, Reply, Response, SessionId};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::{launch, view};

/// How long the watcher may take: tmux's own deadline and a little more.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(6);

pub(super) async fn sync(daemon: &Arc<Daemon>) -> Reply {
    let before = daemon.engine.turn(|turn| turn.pool().seq()).await?;
    let by = snapshot(daemon).await?;
    let report = move |turn: &mut Turn<'_>| {
        let seen = &turn.rest.view.state;
        if let Server::Unknown(why) = &seen.server {
            return Err(Refusal::new(ErrorCode::Unavailable, format!("tmux was not seen: {why}")));
        }
        let events = turn.store().events_since(before, 10_000).unwrap_or_default();
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
    let state = launch::observe(daemon).await;
    let age = began.elapsed();
    let run = daemon.paths.run.clone();
    daemon.engine.turn(move |turn| drop(view::observe(turn, &run, state, age))).await?;
    Ok("poold".to_owned())
}
