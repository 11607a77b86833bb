//! State at the start of the daemon, before anybody may ask.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session, Tag};

use crate::host::files;

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
pub(crate) fn lost(session: &Session, run: &Path) -> Vec<Event> {
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

/// Files of incarnations that no running session has: what a crash left behind.
pub(crate) fn sweep(pool: &pool::Pool, run: &Path) {
    let runs = |tag| pool.tagged(tag).is_some_and(|s| s.lifecycle.holds_slot());
    files::tags(run).into_iter().filter(|tag| !runs(*tag)).for_each(|tag| files::forget(run, tag));
}
