//! Renames the tmux session that an ended incarnation left behind, so that a new incarnation can take its name before
//! the reaper removes it, or while panes of its user remain in it. A tmux session whose program still runs keeps its
//! name: otherwise two programs would work on one conversation.

use protocol::tmux::{Server, TmuxState};
use protocol::{Name, Tag, TmuxSessionId};
use tmux::{Answer, PaneRef, ServerRef};

use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;

/// Renames the tmux session of this name if an ended incarnation left it behind; the incarnation with this tag is to
/// take the name. A tmux session of which only panes of its user remain gives up the name only if the pool's session
/// `ran_before`. Returns true if the name is free now.
pub(crate) async fn free_name(daemon: &Daemon, name: &Name, (tag, ran_before): (Tag, bool)) -> bool {
    let state = tmux_snapshot::list(daemon).await;
    let taken = state.sessions.values().any(|session| session.name == name.as_str());
    if !taken {
        // The reaper removed it meanwhile.
        return matches!(state.server, Server::Up(_));
    }
    let panes = tagged_panes(&state, name);
    let left = user_session(&state, name).filter(|_| ran_before && panes.is_empty());
    if let Some((server, session)) = left {
        // The name has the new incarnation's tag (`left-…`). It differs from the name that the remains of that
        // incarnation get (`stale-…`).
        let left_name = tmux::act::left_name(tag);
        let renamed = daemon.tmux.rename_left(server, session, (name, &left_name)).await;
        tracing::debug!(%name, ?renamed, "renamed what is left with panes of its user");
        return renamed.is_ok();
    }
    // On the pool's own server an unknown tag belongs to another timeline: the database was replaced since.
    let own = daemon.device.own;
    let retired = move |turn: &mut Turn<'_>| {
        let pool = turn.pool();
        let is_left_over = |pane: &TaggedPane| {
            let tag = pane.place.tag;
            pool.retired(tag).is_some() || own && pane.is_over && pool.tagged(tag).is_none()
        };
        panes.into_iter().find(is_left_over)
    };
    let Ok(Some(TaggedPane { session, place: pane, .. })) = daemon.engine.turn(retired).await else {
        return false;
    };
    let renamed = daemon.tmux.rename(pane, session, &tmux::act::retired_name(pane.tag)).await;
    tracing::debug!(%name, ?renamed, "renamed the session of an ended incarnation");
    matches!(renamed, Ok(Answer::Done | Answer::Gone))
}

/// Returns the tmux session of this name if a pool made it.
fn user_session(state: &TmuxState, name: &Name) -> Option<(ServerRef, TmuxSessionId)> {
    let Server::Up(server) = state.server else { return None };
    let found = state.sessions.iter().find(|(_, session)| session.name == name.as_str() && session.pooled);
    found.map(|(id, _)| (server.into(), *id))
}

/// A pane with the tag of an incarnation.
struct TaggedPane {
    session: TmuxSessionId,
    place: PaneRef,
    /// True if its program has ended.
    is_over: bool,
}

/// Returns the tagged panes of the tmux session with this name.
fn tagged_panes(state: &TmuxState, name: &Name) -> Vec<TaggedPane> {
    let Server::Up(server) = state.server else { return Vec::new() };
    let has_name =
        |session: &TmuxSessionId| state.sessions.get(session).is_some_and(|s| s.name == name.as_str());
    let shown = state.panes.iter().filter(|(_, pane)| has_name(&pane.session));
    let tagged = shown.filter_map(|(id, pane)| {
        let place = PaneRef { server: server.into(), pane: *id, tag: pane.tag? };
        Some(TaggedPane { session: pane.session, place, is_over: pane.is_over() })
    });
    tagged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn what_still_runs_for_another_timeline_keeps_its_name() {
        for is_over in [false, true] {
            let test = TestDaemon::start(TestProcesses::default());
            let (_, pane) = test.tmux.add_program("a", 500).unwrap();
            test.tmux.change(pane, |pane| (pane.tag, pane.dead) = (Some(Tag([8; 16])), is_over));
            let name: Name = "a".parse().unwrap();
            assert_eq!(free_name(&test.daemon, &name, (Tag([1; 16]), false)).await, is_over);
            assert_eq!(test.has_called("rename"), is_over);
        }
    }
}
