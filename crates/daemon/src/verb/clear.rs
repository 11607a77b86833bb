//! `clear`: empties a session's log and its terminal's history.

use std::sync::Arc;

use protocol::{ErrorCode, Refusal, Reply, Response, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::daemon::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::verb::{pane, session_view};

pub(super) async fn clear(daemon: &Arc<Daemon>, op: &ClientOperation, wanted: SessionRef) -> Reply {
    let session = session_view::resolve(daemon, wanted).await?;
    let grant = daemon.engine.lock(session.id, "clear").await?;
    let dir = daemon.log_options(session.id).dir;
    let cleared = daemon.blocking.with_timeout(Purpose::Logs, move || process::log_writer::clear(&dir)).await;
    let pane = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(pane_of);
    let reply = match (cleared, pane) {
        (Some(Ok(())), Some(pane)) => pane::reply_of(daemon.tmux.clear_history(pane).await),
        (Some(Ok(())), None) => Ok(Response::Done),
        (Some(Err(error)), _) => Err(Refusal::new(
            ErrorCode::Failed,
            format!("the log of {} is not emptied: {error}", session.name),
        )),
        (None, _) => Err(Refusal::new(ErrorCode::Failed, "the file system does not answer")),
    };
    drop(grant);
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.record_answer(turn, &answer)).await?;
    reply
}
