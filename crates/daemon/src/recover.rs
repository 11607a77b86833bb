//! After a start: what the last daemon left half-way is settled, level by level, from the record.

use std::sync::Arc;

use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::verb;

/// What can be said at once, before anybody may ask.
pub(crate) fn at_open(pool: &pool::Pool, boot: &str) -> Vec<Event> {
    let mut events = pool::queue::recover(pool);
    let (_, last_boot) = pool.started_by();
    if !last_boot.is_empty() && last_boot != boot {
        // Another boot: every process of the records is gone.
        events.extend(pool.sessions().filter(|s| s.lifecycle.holds_slot()).map(lost));
        events.push(Event::TmuxServerChanged { server: None });
    }
    events
}

fn lost(session: &Session) -> Event {
    let (id, exit) = (session.id, session.exit);
    match (session.lifecycle, session.reason) {
        (Lifecycle::Draining, Some(reason)) => Event::SessionStopped { session: id, reason, exit },
        _ => Event::SessionLost { session: id, reason: Reason::ServerGone, exit },
    }
}

/// What needs tmux, each session under its lock and on its own.
pub(crate) async fn resume(daemon: Arc<Daemon>) {
    let sessions = |turn: &mut Turn<'_>| turn.pool().sessions().cloned().collect::<Vec<_>>();
    let Ok(sessions) = daemon.engine.turn(sessions).await else { return };
    for session in sessions {
        let daemon = Arc::clone(&daemon);
        let id = session.id;
        let restarting = session.reason == Some(Reason::Restarted)
            && matches!(session.lifecycle, Lifecycle::Draining | Lifecycle::Stopped);
        let resumed = async move {
            if session.lifecycle == Lifecycle::Starting {
                verb::resume_start(daemon, id).await
            } else if restarting {
                verb::resume_restart(daemon, session).await
            } else {
                Ok(())
            }
        };
        tokio::spawn(async move {
            if let Err(refusal) = resumed.await {
                tracing::warn!(session = %id, %refusal, "not settled yet");
            }
        });
    }
}
