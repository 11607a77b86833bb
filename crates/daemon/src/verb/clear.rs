//! `clear`: empties the log, and the history of the terminal.

use std::sync::Arc;

use protocol::{ErrorCode, Refusal, Reply, Response, SessionRef};

use crate::decide::idempotency::Op;
use crate::engine::context::{Daemon, pane_of};
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::verb::{keys, shown};

/// Empties the log, and the history of the terminal where there is one.
pub(crate) async fn clear(daemon: &Arc<Daemon>, op: &Op, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let grant = daemon.engine.lock(session.id, "clear").await?;
    let dir = daemon.log_options(session.id).dir;
    let cleared = blocking::limited(Purpose::Logs, move || process::log_writer::clear(&dir)).await;
    let pane = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(pane_of);
    let reply = match (cleared, pane) {
        (Some(Ok(())), Some(pane)) => keys::answered(daemon.tmux.clear_history(pane).await),
        (Some(Ok(())), None) => Ok(Response::Done),
        (Some(Err(error)), _) => Err(Refusal::new(
            ErrorCode::Failed,
            format!("the log of {} is not emptied: {error}", session.name),
        )),
        (None, _) => Err(Refusal::new(ErrorCode::Failed, "the file system does not answer")),
    };
    drop(grant);
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.conclude(turn, &answer)).await?;
    reply
}
