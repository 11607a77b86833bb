//! Deadlines of claims and users' locks: one task, which sleeps until the next one.

use std::sync::Arc;

use tokio::time::sleep;

use crate::decide::worker::{self, TICK_MAX, TICK_MIN};
use crate::engine::{Daemon, Turn};
use crate::host::clock;
use crate::sense::process_exits;

/// Runs until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let timer_changed = daemon.engine.timer_changed();
    loop {
        let asked_at = clock::mono(daemon.started);
        let suspects = daemon.engine.turn(move |turn| worker::suspects(turn, asked_at)).await;
        let Ok(suspects) = suspects else { return };
        let exited = process_exits::sample(&daemon, suspects).await;
        let context = Arc::clone(&daemon);
        let tick = move |turn: &mut Turn<'_>| {
            turn.volatile.reaping.note_exited(exited);
            worker::tick(turn, &context.loaded().settings, asked_at)
        };
        let Ok(next) = daemon.engine.turn(tick).await else { return };
        tokio::select! {
            biased;
            () = timer_changed.notified() => {}
            () = sleep(next.clamp(TICK_MIN, TICK_MAX)) => {}
        }
    }
}
