//! `clear`: empties a session's log and its terminal's history.

use std::sync::Arc;

use agents::Confirm;
use protocol::{Refusal, Reply, Response, Session, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::sense::pane_state::read_pane;
use crate::verb::{pane, session_view};

pub(super) async fn clear(daemon: &Arc<Daemon>, op: &ClientOperation, wanted: SessionRef) -> Reply {
    let id = session_view::resolve(daemon, wanted).await?.id;
    let grant = daemon.engine.lock(id, "clear").await?;
    // The session may have been started again while this waited for the lock.
    let session = session_view::resolve(daemon, id.into()).await?;
    keep_unfinished_line(daemon, &session).await;
    let cleared = empty_log(daemon, &session).await;
    let pane = session.running().and_then(pane_of);
    let reply = match (cleared, pane) {
        (Ok(()), Some(pane)) => pane::reply_of(daemon.tmux.clear_history(pane).await),
        (Ok(()), None) => Ok(Response::Done),
        (Err(refusal), _) => Err(refusal),
    };
    drop(grant);
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.record_answer(turn, &answer)).await?;
    reply
}

/// Remembers the line that somebody left in a shell: the log tells of it now.
async fn keep_unfinished_line(daemon: &Daemon, session: &Session) {
    let Some((run, pane)) = session.running().and_then(|run| Some((run, pane_of(run)?))) else { return };
    let loaded = daemon.loaded();
    let agent = loaded.settings.agent_of(session);
    if agent.confirm != Confirm::Prompt {
        return;
    }
    let Ok(mut seen) = read_pane(daemon, agent, run, pane).await else { return };
    if let Some(row) = seen.rows.pop().filter(|_| seen.holds_unfinished_line) {
        let tag = run.tag;
        daemon.engine.post(move |turn| turn.volatile.prompts.keep_left_row(tag, row));
    }
}

/// Empties a session's log, and that of its standard error, under the session's lock or while nothing runs.
pub(super) async fn empty_log(daemon: &Daemon, session: &Session) -> Result<(), Refusal> {
    let dir = daemon.paths.logs_of(session.id);
    let clear = move || {
        process::log_writer::clear(&dir)?;
        process::log_writer::clear(&dir.join(protocol::logs::STDERR))
    };
    match daemon.blocking.with_timeout(Purpose::Logs, clear).await {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            Err(Refusal::failed(format!("the log of {} is not emptied: {error}", session.name)))
        }
        None => Err(Refusal::failed(
            "the file system does not answer, and the log may not be empty; try again once it does",
        )),
    }
}
