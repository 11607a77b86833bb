//! Messages that stand still: an event tells once they have done so for too long, and another one once they move again.

use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use tokio::time::sleep;

use crate::engine::{Daemon, Turn};

/// Shortest and longest time between two checks.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Number of checks within `[queue] stuck_after`.
const CHECKS: u32 = 10;

/// Longest time between two checks while something is known to stand still: its end is told soon.
const STUCK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Checks until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        let context = Arc::clone(&daemon);
        let Ok(is_stuck) = daemon.engine.turn(move |turn| check(turn, &context)).await else { return };
        let limit = daemon.loaded().settings.queue.stuck_after;
        let pause = limit.map_or(PAUSE_MAX, |limit| (limit / CHECKS).clamp(PAUSE_MIN, PAUSE_MAX));
        sleep(if is_stuck { pause.min(STUCK_PAUSE_MAX) } else { pause }).await;
    }
}

/// Records what has changed. Returns true if something is known to stand still.
fn check(turn: &mut Turn<'_>, daemon: &Daemon) -> bool {
    let rules = &daemon.loaded().settings.queue;
    let changed = queue::apply_rules(turn.pool(), rules, turn.now());
    turn.emit_all(changed);
    let changes = queue::changes(turn.pool(), turn.volatile, rules, turn.now());
    turn.emit_all(changes);
    turn.pool().sessions().any(|session| !session.stuck.is_empty())
}
