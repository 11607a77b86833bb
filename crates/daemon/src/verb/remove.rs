//! `rm`: ends what runs, forgets the record, then removes the files.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{ErrorCode, Event, Refusal, Reply, Response, Session, SessionId};

use super::end;
use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::files;
use crate::op::Op;

pub(super) async fn remove(daemon: &Arc<Daemon>, op: &Op, asked: Remove) -> Reply {
    let session = checked(daemon, &asked).await?;
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        end_first(daemon, &session).await?;
    }
    let grant = daemon.engine.lock(session.id, "rm").await?;
    let (operation, ask) = (op.clone(), asked.clone());
    let id = session.id;
    forget_over(daemon, id, &asked).await?;
    let decide = move |turn: &mut Turn<'_>| {
        let Some(session) = turn.pool().session(id).cloned() else { return Ok(None) };
        may_go(turn, &session, &ask)?;
        let events = pool::admit::remove(turn.pool(), &session, &ask, turn.now())?;
        turn.emit_all(events);
        operation.conclude(turn, &Ok(Response::Done));
        Ok(Some(session))
    };
    let removed: Option<Session> = daemon.engine.turn(decide).await??;
    if let Some(session) = removed {
        clean_up(daemon, &session, &asked).await;
    }
    drop(grant);
    Ok(Response::Done)
}

/// Forgets the messages that are over, a part in each turn, so that nobody else waits long. First it is
/// seen that nothing speaks against it.
async fn forget_over(daemon: &Arc<Daemon>, id: SessionId, asked: &Remove) -> Result<(), Refusal> {
    loop {
        let asked = asked.clone();
        let part = move |turn: &mut Turn<'_>| {
            if let Some(session) = turn.pool().session(id) {
                may_go(turn, session, &asked)?;
            }
            let events = pool::admit::forget_over(turn.pool(), id);
            let more = events.len() == pool::admit::FORGET_AT_ONCE;
            turn.emit_all(events);
            Ok(more)
        };
        if !daemon.engine.turn(part).await?? {
            return Ok(());
        }
    }
}

fn may_go(turn: &Turn<'_>, session: &Session, asked: &Remove) -> Result<(), Refusal> {
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        let why = format!("{} was started again meanwhile", session.name);
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    if asked.force { Ok(()) } else { pool::admit::idle_enough(turn.pool(), session) }
}

/// Refuses what is being worked on or looked at, before anything is ended.
async fn checked(daemon: &Arc<Daemon>, asked: &Remove) -> Result<Session, Refusal> {
    let asked = asked.clone();
    let check = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?;
        if !asked.force {
            pool::admit::idle_enough(turn.pool(), session)?;
        }
        Ok(session.clone())
    };
    daemon.engine.turn(check).await?
}

async fn end_first(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let id = session.id;
    let doomed = move |turn: &mut Turn<'_>| {
        let events: Vec<Event> = turn.pool().session(id).map(pool::admit::kill).unwrap_or_default();
        turn.emit_all(events);
        if let Some(tag) = turn.pool().session(id).and_then(|s| s.incarnation.as_ref()).map(|i| i.tag) {
            turn.rest.view.verdicts.remove(&tag);
        }
        turn.pool().session(id).cloned()
    };
    match daemon.engine.turn(doomed).await? {
        Some(session) => end::ended(daemon, &session).await,
        None => Ok(()),
    }
}

/// The record is gone; what is left of it goes too, or is left to its user.
async fn clean_up(daemon: &Arc<Daemon>, session: &Session, asked: &Remove) {
    let pane = session.incarnation.as_ref().and_then(pane_of);
    if asked.keep_tmux {
        if let Some(pane) = pane.filter(|_| session.lifecycle.holds_slot()) {
            if let Err(error) = daemon.tmux.release(pane).await {
                tracing::warn!(session = %session.id, %error, "its pane keeps the pool's marks");
            }
            // tmux tells nobody of an option.
            let daemon = Arc::clone(daemon);
            tokio::spawn(async move { drop(super::snapshot(&daemon).await) });
        }
        return;
    }
    if let Some(run) = &session.incarnation {
        files::forget(&daemon.paths.run, run.tag);
    }
    let (sessions, id, purge) = (daemon.paths.sessions.clone(), session.id, asked.purge);
    let removed = tokio::task::spawn_blocking(move || files::remove_session_dir(&sessions, id, purge)).await;
    if !matches!(removed, Ok(Ok(()))) {
        tracing::warn!(session = %session.id, ?removed, "its directory was not removed");
    }
}
