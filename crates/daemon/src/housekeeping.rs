//! What goes out of retention: messages that are over, operation ids.

use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use tokio::time::sleep;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::op;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two looks while there is much to forget.
const BUSY: Duration = Duration::from_millis(100);

/// Keeps house for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        let context = Arc::clone(&daemon);
        let Ok(more) = daemon.engine.turn(move |turn| tidy(turn, &context)).await else {
            return;
        };
        sleep(if more { BUSY } else { PAUSE }).await;
    }
}

/// Does what is due. Answers whether there may be more.
fn tidy(turn: &mut Turn<'_>, daemon: &Daemon) -> bool {
    let rules = &daemon.loaded().settings.queue;
    let now = turn.now();
    let forgotten = queue::outdated(turn.pool(), rules, now);
    let more = !forgotten.is_empty();
    turn.emit_all(forgotten);
    if more {
        crate::crash::point("forget");
    }
    let over = op::outdated(turn.pool(), now);
    turn.emit_all(over);
    crate::gauge::forget(turn, daemon);
    turn.trim();
    if turn.rest.work.half_time(turn.mono()) {
        turn.age_operations();
    }
    more
}
