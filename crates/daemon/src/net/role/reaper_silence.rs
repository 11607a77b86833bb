//! Recognises a reaper that hangs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::engine::{Daemon, Turn};

/// Silence after which a reaper counts as hung, while something is to be ended and no reaper is at work.
const SILENCE: Duration = Duration::from_secs(20);

/// Returns once a reaper that has been silent since the call counts as hung. A reaper at work holds a lease, at this
/// connection or another.
pub(super) async fn too_long(daemon: &Arc<Daemon>) {
    loop {
        sleep(SILENCE).await;
        let context = Arc::clone(daemon);
        let look = move |turn: &mut Turn<'_>| {
            let now = (turn.now(), turn.mono());
            !turn.volatile.reaping.has_leases()
                && !pool::reap::candidates(turn.pool(), turn.volatile, &context.settings(), now).is_empty()
        };
        // A daemon that stops closes its connections.
        if daemon.engine.turn(look).await == Ok(true) {
            return;
        }
    }
}
