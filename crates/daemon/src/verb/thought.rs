//! `thought`: publishes what a session's agent is doing.

use std::sync::Arc;

use pool::{agent, session};
use protocol::thought::Publish;
use protocol::{AgentEvent, Event, PaneId, Refusal, Reply, Session, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::session_view;

pub(super) async fn publish(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Publish) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let reply = record(turn, &context, &asked);
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// Records a thought, unless one that is newer in its stream was published before.
fn record(turn: &mut Turn<'_>, daemon: &Daemon, asked: &Publish) -> Reply {
    let session = resolve(turn, &asked.target)?;
    let thought = agent::publish_thought(turn.pool().thought(session.id), asked, turn.now())?;
    if let Some(thought) = thought.filter(|thought| turn.pool().thought(session.id) != Some(thought)) {
        turn.emit(Event::Agent(AgentEvent::ThoughtPublished { session: session.id, thought }));
    }
    session_view::reply(turn, daemon, session.id)
}

/// Returns the session of a target: a session's name or id, a pane's id, or `tmux:NAME:WINDOW.PANE:%3`.
fn resolve(turn: &Turn<'_>, target: &SessionRef) -> Result<Session, Refusal> {
    let (name, pane) =
        parse_tmux_target(&target.0).map_or((None, target.0.as_str()), |(name, pane)| (Some(name), pane));
    let by_pane = pane.parse().ok().and_then(|pane: PaneId| {
        let shows = |s: &&Session| s.incarnation.as_ref().is_some_and(|run| run.pane == Some(pane));
        let runs = turn.pool().sessions().filter(|s| s.lifecycle.holds_slot()).filter(shows);
        // Another pane of this id may be that of an older tmux server.
        let observed = &turn.volatile.observed;
        runs.min_by_key(|s| s.incarnation.as_ref().is_none_or(|run| observed.pane_of(run).is_none()))
    });
    let Some(session) = by_pane else { return session::resolve(turn.pool(), target).cloned() };
    if let Some(name) = name.filter(|name| *name != session.name.as_str()) {
        let why = format!("the pane {pane} is in {}, and not in {name}", session.name);
        return Err(Refusal::conflict(why));
    }
    Ok(session.clone())
}

/// Returns the name and the pane id of `tmux:NAME:WINDOW.PANE:%3`. The indexes of window and pane change, so
/// they are not compared.
fn parse_tmux_target(target: &str) -> Option<(&str, &str)> {
    let (name, rest) = target.strip_prefix("tmux:")?.split_once(':')?;
    let (_, pane) = rest.split_once(':')?;
    Some((name, pane))
}
