//! What only time brings: messages that expire, records that go out of retention.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Event, Timestamp};
use tokio::time::sleep;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::op;

/// Between two looks while nothing is due: retention needs no better.
const IDLE: Duration = Duration::from_secs(600);
/// At least between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps house for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let keep = daemon.config.borrow().config.keep_done().unwrap_or(Duration::MAX);
        let Ok((now, due)) = daemon.engine.turn(move |turn| tidy(turn, keep)).await else { return };
        sleep(PAUSE).await;
        let until = due.map_or(IDLE, |due| due.since(now).min(IDLE));
        tokio::select! {
            () = sleep(until) => {}
            changed = turns.changed() => if changed.is_err() { return },
        }
    }
}

/// Does what is due. Answers when the next is.
fn tidy(turn: &mut Turn<'_>, keep: Duration) -> (Timestamp, Option<Timestamp>) {
    let now = turn.now();
    let mut events = pool::queue::expired(turn.pool(), now);
    events.extend(op::outdated(turn.pool(), now));
    let old = turn.pool().messages().filter(|m| m.state.is_final() && now.since(m.changed_at) > keep);
    events.extend(old.map(|m| Event::MessageForgotten { id: m.id }));
    turn.emit_all(events);
    (now, turn.pool().messages().filter(|m| !m.state.is_final()).filter_map(|m| m.expires_at).min())
}
