//! `down`: what it asks of the daemon before it ends the sessions.

use std::sync::Arc;

use protocol::{Reply, Response};

use crate::engine::{Daemon, Turn};
use crate::verb::caller::Caller;

/// Prevents starts of sessions until the caller's connection ends: each session that ends frees a slot for which others
/// may wait.
pub(super) async fn hold_starts(daemon: &Arc<Daemon>, caller: &Caller) -> Reply {
    let connection = caller.connection;
    let hold = move |turn: &mut Turn<'_>| {
        turn.volatile.scheduler.hold_starts(connection);
        // The turn that this wakes tells sessions that wait for a slot.
        turn.wake();
    };
    daemon.engine.turn(hold).await?;
    Ok(Response::Done)
}
