//! `down`: what it asks of the daemon before it ends the sessions.

use std::sync::Arc;
use std::time::Duration;

use pool::slots::StartHold;
use protocol::{Reply, Response};

use crate::engine::{Daemon, Turn};
use crate::verb::caller::Caller;

/// Time after which a pool that is still being stopped is a problem: its client may have been suspended.
const HOLD_LIMIT: Duration = Duration::from_secs(60);

/// Prevents starts of sessions until the caller's connection ends: each session that ends frees a slot for which others
/// may wait.
pub(super) async fn hold_starts(daemon: &Arc<Daemon>, caller: &Caller) -> Reply {
    let (connection, process) = (caller.connection, caller.process);
    let hold = move |turn: &mut Turn<'_>| {
        let since = turn.mono();
        turn.volatile.scheduler.hold_starts(connection, StartHold { process, since });
        // The turn that this wakes tells sessions that wait for a slot.
        turn.wake();
    };
    daemon.engine.turn(hold).await?;
    Ok(Response::Done)
}

/// Returns the problem of a pool that is being stopped for long, and starts nothing meanwhile.
pub(super) fn problem(turn: &Turn<'_>) -> Option<String> {
    let (by, since) = turn.volatile.scheduler.start_hold()?;
    let held = since.until(turn.mono());
    (held >= HOLD_LIMIT).then(|| {
        format!(
            "nothing is started: for {} s the pool has been about to be stopped by {by} (`poolctl down`); `kill -KILL` \
             ends a client that hangs",
            held.as_secs()
        )
    })
}
