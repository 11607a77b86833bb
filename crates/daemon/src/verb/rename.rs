//! `rename`: renames the record, then the tmux session.

use std::sync::Arc;

use protocol::request::Rename;
use protocol::{ErrorCode, Event, Name, Refusal, Reply, Session};
use tmux::{Answer, TmuxError};

use crate::decide::idempotency::ClientOperation;
use crate::effect::launch;
use crate::engine::{Daemon, Turn, pane_of};
use crate::verb::session_view;

/// Renames the tmux session even if the record has the new name: a crash may have come between the two. If tmux
/// certainly did not rename it, the record gets the old name back.
pub(super) async fn rename(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Rename) -> Reply {
    let id = session_view::resolve(daemon, op.session(&asked.session)).await?.id;
    let grant = daemon.engine.lock(id, "rename").await?;
    let operation = op.clone();
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::session::get(turn.pool(), id)?.clone();
        if operation.interrupted_on.is_some() {
            check_repeat(&session, &asked)?;
        }
        if let Some(name) = pool::session::rename(turn.pool(), &session, &asked.name)? {
            turn.emit(Event::SessionRenamed { session: id, name });
            operation.record_begun(turn, id);
        }
        Ok(session)
    };
    let before = daemon.engine.turn(decide).await??;
    crate::crash::point("rename-recorded");
    let now = daemon.engine.turn(move |turn| turn.pool().session(id).map(|s| s.name.clone())).await?;
    let failed = match &now {
        Some(name) => in_tmux(daemon, &before, name).await.err(),
        None => None,
    };
    let in_doubt = failed.as_ref().is_some_and(|(_, certain)| !certain);
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = match failed {
            None => session_view::reply(turn, &context, id),
            Some((refusal, certain)) => {
                let free = turn.pool().named(before.name.as_str()).is_none_or(|other| other.id == id);
                if certain && free && now.as_ref() != Some(&before.name) {
                    turn.emit(Event::SessionRenamed { session: id, name: before.name });
                }
                Err(refusal)
            }
        };
        // Observations from before now show the old name.
        let now = turn.moment();
        turn.volatile.observed.renamed(id, now);
        // A rename in doubt is not recorded as answered, so that a repeated request asks tmux again.
        if !in_doubt {
            operation.record_answer(turn, &reply);
        }
        reply
    };
    let reply = daemon.engine.turn(conclude).await?;
    drop(grant);
    reply
}

/// Refuses to repeat a rename if the session may have been renamed again since. A session that has the new name, or the
/// very name by which the request calls it, is renamed: tmux may still have the old name, in which case the record gets
/// that back. An id or a workspace in the request tells nothing about the old name.
fn check_repeat(session: &Session, asked: &Rename) -> Result<(), Refusal> {
    let name = session.name.as_str();
    if name == asked.name || name == asked.session.0 {
        return Ok(());
    }
    let why = format!(
        "{name} may have been renamed again since, and keeps its name; a new operation id renames it to {}",
        asked.name
    );
    Err(Refusal::conflict(why))
}

/// Renames the tmux session, if there is one.
///
/// # Errors
/// The reason for which tmux did not, and true if that is certain.
async fn in_tmux(daemon: &Daemon, session: &Session, name: &Name) -> Result<(), (Refusal, bool)> {
    let run = session.running();
    let Some((pane, tmux_session)) = run.and_then(|run| Some((pane_of(run)?, run.session?))) else {
        return Ok(());
    };
    let failed = |code, why: String, certain| {
        let left = match certain {
            true => "the name is as before",
            false => "the pool has the new name, and tmux may have it, too",
        };
        Err((Refusal::new(code, format!("{why}; {left}")), certain))
    };
    match daemon.tmux.rename(pane, tmux_session, name).await {
        Ok(Answer::Done | Answer::Gone) => Ok(()),
        Ok(answer) => failed(ErrorCode::Failed, format!("tmux did not rename it: {answer}"), true),
        Err(TmuxError::Duplicate(_)) => failed(ErrorCode::Failed, launch::has_name(daemon, name).await, true),
        Err(error) if error.is_refusal() => failed(ErrorCode::Failed, error.to_string(), true),
        Err(error) => failed(ErrorCode::Unavailable, error.to_string(), !error.in_doubt()),
    }
}
