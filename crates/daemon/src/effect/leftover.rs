//! What ended incarnations leave in tmux until the reaper comes, and that it gives its name up for a new one.

use protocol::tmux::{Server, TmuxState};
use protocol::{Name, Tag, TmuxSessionId};
use tmux::{Answer, PaneRef};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::snapshot;

/// Renames the tmux session of this name if it is such a remainder. Whether the name is free now.
pub(crate) async fn give_up_name(daemon: &Daemon, name: &Name) -> bool {
    let state = snapshot::look(daemon).await;
    let taken = state.sessions.values().any(|session| session.name == name.as_str());
    if !taken {
        // The reaper came meanwhile.
        return matches!(state.server, Server::Up(_));
    }
    let found = bearers(&state, name);
    // In the pool's own server a mark that nobody knows is of another timeline: the database was restored since.
    let own = daemon.device.own;
    let retired = move |turn: &mut Turn<'_>| {
        let pool = turn.pool();
        let is_over = |tag| pool.retired(tag).is_some() || own && pool.tagged(tag).is_none();
        found.into_iter().find(|(_, pane)| is_over(pane.tag))
    };
    let Ok(Some((session, pane))) = daemon.engine.turn(retired).await else { return false };
    let renamed = daemon.tmux.rename(pane, session, &tmux::act::retired_name(pane.tag)).await;
    tracing::debug!(%name, ?renamed, "its name was asked of an ended incarnation");
    matches!(renamed, Ok(Answer::Done | Answer::Gone))
}

/// The tagged panes of the tmux session with this name.
fn bearers(state: &TmuxState, name: &Name) -> Vec<(TmuxSessionId, PaneRef)> {
    let Server::Up(server) = state.server else { return Vec::new() };
    let bears =
        |session: &TmuxSessionId| state.sessions.get(session).is_some_and(|s| s.name == name.as_str());
    let pane_of = |pane, tag: Tag| PaneRef { server: server.into(), pane, tag };
    let tagged = state.panes.iter().filter(|(_, pane)| bears(&pane.session));
    tagged.filter_map(|(id, pane)| Some((pane.session, pane_of(*id, pane.tag?)))).collect()
}
