//! `rename` and `label`.

use std::sync::Arc;

use protocol::request::{Label, Rename};
use protocol::{ErrorCode, Event, Name, Refusal, Reply, Session};

use super::shown;
use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::op::Op;

pub(super) async fn label(daemon: &Arc<Daemon>, op: &Op, asked: Label) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?;
        let id = session.id;
        let events = pool::admit::label(session, &asked)?;
        turn.emit_all(events);
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}

/// The record first, then tmux; where tmux certainly did not follow, the record goes back.
pub(super) async fn rename(daemon: &Arc<Daemon>, op: &Op, asked: Rename) -> Reply {
    let session = shown::find(daemon, asked.session).await?;
    let id = session.id;
    let grant = daemon.engine.lock(id, "rename").await?;
    let name = asked.name;
    let decide = move |turn: &mut Turn<'_>| {
        let Some(session) = turn.pool().session(id).cloned() else {
            return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
        };
        let name = pool::admit::rename(turn.pool(), &session, &name)?;
        if let Some(name) = &name {
            turn.emit(Event::SessionRenamed { session: id, name: name.clone() });
        }
        Ok((session, name))
    };
    let (before, renamed) = daemon.engine.turn(decide).await??;
    let failed = match &renamed {
        Some(name) => in_tmux(daemon, &before, name).await.err(),
        None => None,
    };
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = match failed {
            None => shown::reply(turn, &context, id),
            Some(refusal) => {
                turn.emit(Event::SessionRenamed { session: id, name: before.name });
                Err(refusal)
            }
        };
        operation.conclude(turn, &reply);
        reply
    };
    let reply = daemon.engine.turn(conclude).await?;
    drop(grant);
    reply
}

async fn in_tmux(daemon: &Daemon, session: &Session, name: &Name) -> Result<(), Refusal> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    let Some((pane, tmux_session)) = run.and_then(|run| Some((pane_of(run)?, run.session?))) else {
        return Ok(());
    };
    match daemon.tmux.rename(pane, tmux_session, name).await {
        Ok(tmux::Answer::Done | tmux::Answer::Gone) => Ok(()),
        Ok(answer) => Err(Refusal::new(
            ErrorCode::Failed,
            format!("tmux did not rename it: {answer:?}; the name is as before"),
        )),
        Err(error) => Err(Refusal::new(ErrorCode::Failed, format!("{error}; the name is as before"))),
    }
}
