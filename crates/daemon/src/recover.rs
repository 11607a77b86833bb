//! After a start: what the last daemon left half-way is settled, level by level, from the record.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session, SessionId, Tag};
use tokio::time::sleep;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::verb::Again;
use crate::{files, verb};

/// Between two tries for one session.
const PAUSE: Duration = Duration::from_secs(1);

/// What can be said at once, before anybody may ask.
pub(crate) fn at_open(pool: &pool::Pool, run: &Path, boot: &str) -> Vec<Event> {
    let mut events = pool::heard::unanswerable(pool);
    let (_, last_boot) = pool.started_by();
    if !last_boot.is_empty() && !boot.is_empty() && last_boot != boot {
        // Another boot: every process of the records is gone.
        let running = pool.sessions().filter(|s| s.lifecycle.holds_slot());
        events.extend(running.flat_map(|session| lost(session, run)));
        events.push(Event::TmuxServerChanged { server: None });
    }
    events
}

/// It ended with the machine, unless its init wrote that it had ended before.
fn lost(session: &Session, run: &Path) -> Vec<Event> {
    let (id, tag) = (session.id, session.incarnation.as_ref().map(|run| run.tag));
    let told = tag.and_then(|tag| files::read_exit(run, tag)).map(|(exit, _)| exit);
    let account = tag.and_then(|tag| files::read_account(run, tag));
    let exit = told.or(session.exit);
    let ended = match (session.lifecycle, session.reason) {
        (Lifecycle::Draining, Some(reason)) => pool::ended(id, reason, exit),
        (Lifecycle::Live, _) if exit.is_some_and(|exit| exit.code.is_some()) => {
            pool::ended(id, Reason::Exited, exit)
        }
        _ => Event::SessionLost { session: id, reason: Reason::ServerGone, exit },
    };
    account
        .map(|account| Event::SessionAccounted { session: id, account })
        .into_iter()
        .chain([ended])
        .collect()
}

/// Incarnations that were being put aside: first it is seen that nobody is attached.
pub(crate) fn half_parked(pool: &pool::Pool) -> BTreeSet<Tag> {
    pool.sessions()
        .filter(|s| s.is_being_parked())
        .filter_map(|s| Some(s.incarnation.as_ref()?.tag))
        .collect()
}

/// Settles for ever what nobody is at: creations of which nobody knows what became, and sessions
/// that were ended in order to start again.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut turns = daemon.engine.turns();
    loop {
        turns.borrow_and_update();
        let Ok(due) = daemon.engine.turn(claim).await else { return };
        for (session, between) in due {
            tokio::spawn(settle(Arc::clone(&daemon), session, between));
        }
        if turns.changed().await.is_err() {
            return;
        }
    }
}

/// Sessions to settle, and whether each is between two runs.
fn claim(turn: &mut Turn<'_>) -> Vec<(SessionId, bool)> {
    let open = |s: &&Session| s.lifecycle == Lifecycle::Starting || pool::is_between(s);
    let due: Vec<_> = turn.pool().sessions().filter(open).map(|s| (s.id, pool::is_between(s))).collect();
    due.into_iter().filter(|(id, _)| turn.rest.view.starting.insert(*id)).collect()
}

async fn settle(daemon: Arc<Daemon>, session: SessionId, between: bool) {
    let starting = verb::Starting::new(&daemon, session);
    let settled = if between {
        verb::start_next(&daemon, None, session, Again { ended: true, ..Again::default() }, |_| ())
            .await
            .map(drop)
    } else {
        verb::resume_start(&daemon, session).await
    };
    if let Err(refusal) = settled {
        tracing::warn!(%session, %refusal, "not settled yet");
    }
    sleep(PAUSE).await;
    drop(starting);
}

/// Files of incarnations that no running session has: what a crash left behind.
pub(crate) fn sweep(pool: &pool::Pool, run: &Path) {
    let runs = |tag| pool.tagged(tag).is_some_and(|s| s.lifecycle.holds_slot());
    files::tags(run).into_iter().filter(|tag| !runs(*tag)).for_each(|tag| files::forget(run, tag));
}
