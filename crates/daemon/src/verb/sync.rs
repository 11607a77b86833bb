//! `sync`: takes a snapshot of tmux, and applies it before the answer. The watcher takes it, or the daemon
//! itself if none is connected.

use std::sync::Arc;

use protocol::reply::Synced;
use protocol::tmux::Server;
use protocol::{Refusal, Reply, Response, SessionId};
use tokio::time::Instant;

use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot::{self, OBSERVER};

/// Maximum number of events since the request that are searched for changed sessions.
const EVENTS_MAX: usize = 10_000;

pub(super) async fn sync(daemon: &Arc<Daemon>) -> Reply {
    let began = Instant::now();
    let before = daemon.engine.turn(|turn| turn.pool().seq()).await?;
    let mut by = tmux_snapshot::take(daemon).await?;
    // A watcher that connected meanwhile begins with a snapshot of its own.
    let is_new = |turn: &mut Turn<'_>| {
        let observed = &turn.volatile.observed;
        observed.watcher().is_some() && matches!(observed.state().server, Server::Unknown(_))
    };
    if by == OBSERVER && daemon.engine.turn(is_new).await? {
        by = tmux_snapshot::take(daemon).await?;
    }
    let report = move |turn: &mut Turn<'_>| {
        let seen = turn.volatile.observed.state();
        if let Server::Unknown(silence) = &seen.server {
            let why = &silence.detail;
            return Err(Refusal::unavailable(format!("tmux was not seen: {why}")));
        }
        let events = turn.reader().events_since(before, EVENTS_MAX).unwrap_or_default();
        let mut changed: Vec<SessionId> = events.iter().filter_map(|e| e.event.session()).collect();
        changed.sort_unstable();
        changed.dedup();
        let ours = |tag| turn.pool().tagged(tag).is_some();
        let foreign = seen.panes.values().filter(|pane| !pane.tag.is_some_and(ours)).count();
        Ok(Synced {
            by,
            sessions: seen.sessions.len() as u64,
            panes: seen.panes.len() as u64,
            foreign: foreign as u64,
            changed,
        })
    };
    let synced = daemon.engine.turn(report).await??;
    let Synced { by, sessions, panes, foreign, changed } = &synced;
    tracing::debug!(by, sessions, panes, foreign, changed = changed.len(), took = ?began.elapsed(), "synced");
    Ok(Response::Synced(synced))
}
