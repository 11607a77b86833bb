//! Events of a start that follow from the record and the run files alone, before any client connects.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::{Event, Lifecycle, Reason, Session, Tag};

use crate::host::files;

/// Returns the events of a start. After a reboot every running session has ended.
pub(super) fn events(pool: &pool::Pool, run: &Path, boot: &str) -> Vec<Event> {
    let mut events = pool::agent::mark_asks_unanswerable(pool);
    let (_, last_boot) = pool.started_by();
    if !last_boot.is_empty() && !boot.is_empty() && last_boot != boot {
        // The machine was booted since, so every process on record is gone.
        let running = pool.sessions().filter(|s| s.lifecycle.holds_slot());
        events.extend(running.flat_map(|session| lost(pool, session, run)));
        events.push(Event::TmuxServerChanged { server: None });
    }
    events
}

/// Returns the end of a session that ran before a reboot: lost, unless it was being ended, or its init reported the
/// end of its program before.
fn lost(pool: &pool::Pool, session: &Session, run: &Path) -> Vec<Event> {
    let (id, tag) = (session.id, session.tag());
    let reported = tag.and_then(|tag| files::read_exit(run, tag)).map(|(exit, _)| exit);
    let account = tag.and_then(|tag| files::read_account(run, tag));
    let exit = reported.or(session.exit);
    // Only an exit code proves that the program ended by itself: a signal may have been that of the machine's
    // shutdown.
    let by_itself = exit.filter(|exit| exit.code.is_some());
    let ended = match (session.lifecycle, session.reason) {
        (Lifecycle::Draining, Some(reason))
            if !pool::session::is_cut_off(pool, session, by_itself, false) =>
        {
            pool::session::run_ended(id, reason, exit)
        }
        (Lifecycle::Live, _) if by_itself.is_some() => pool::session::run_ended(id, Reason::Exited, exit),
        _ => Event::SessionLost { session: id, reason: Reason::ServerGone, exit },
    };
    account.map(|account| Event::SessionAccounted(id, account)).into_iter().chain([ended]).collect()
}

/// Returns the incarnations that were being parked. They end only once an observation shows no attached
/// client.
pub(super) fn being_parked(pool: &pool::Pool) -> BTreeSet<Tag> {
    pool.sessions()
        .filter(|s| s.is_being_parked())
        .filter_map(|s| Some(s.incarnation.as_ref()?.tag))
        .collect()
}

/// Removes the run files of incarnations that no running session has: a crash left them behind.
pub(super) fn remove_ended_run_files(pool: &pool::Pool, run: &Path) {
    let runs = |tag| pool.tagged(tag).is_some_and(|s| s.lifecycle.holds_slot());
    files::run_file_tags(run)
        .into_iter()
        .filter(|tag| !runs(*tag))
        .for_each(|tag| files::remove_run_files(run, tag));
}
