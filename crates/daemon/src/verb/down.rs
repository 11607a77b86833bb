//! `down`: what it asks of the daemon before it ends the sessions.

use std::sync::Arc;

use protocol::{Reply, Response};

use crate::engine::daemon::Daemon;
use crate::verb::caller::Caller;

/// Starts no session from now on, until the caller's connection ends: each session that ends frees a slot, for which
/// others may wait.
pub(super) async fn hold_starts(daemon: &Arc<Daemon>, caller: &Caller) -> Reply {
    let connection = caller.connection;
    daemon.engine.turn(move |turn| turn.volatile.scheduler.hold_starts(connection)).await?;
    Ok(Response::Done)
}
