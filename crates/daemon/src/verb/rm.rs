//! `rm`: removes a session.

use std::sync::Arc;

use protocol::request::Remove;
use protocol::{Refusal, Reply, Response, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::removal;

pub(super) async fn rm(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Remove) -> Reply {
    if asked.purge && !asked.force {
        check_files_unused(daemon, asked.session.clone()).await?;
    }
    removal::remove(daemon, Some(op), asked).await?;
    Ok(Response::Done)
}

/// Refuses if the files of a session are those of another one, too.
pub(super) async fn check_files_unused(daemon: &Arc<Daemon>, wanted: SessionRef) -> Result<(), Refusal> {
    let paths = daemon.paths.clone();
    let check = move |turn: &mut Turn<'_>| match pool::session::resolve(turn.pool(), &wanted) {
        Ok(session) => pool::session::check_files_unused(turn.pool(), session.id, &paths.session(session.id)),
        Err(_) => Ok(()),
    };
    daemon.engine.turn(check).await?
}
