//! Retention: final messages, operation ids, archives and copies of the database, and what is known of ended
//! sessions.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::{Pool, queue, reap};
use protocol::{ProcId, Session, SessionId, Tag};
use tokio::time::{Instant, sleep};

use crate::decide::idempotency;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::clock::FileAges;
use crate::host::{disk_reserve, files, short_tmp, timeline};
use crate::sense::{observe, process_exits};

/// Time between two rounds.
const PAUSE: Duration = Duration::from_secs(60);

/// Time between two rounds while there is more to forget.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Time after which the clocks are recorded again, if nothing else has recorded them. The more recent the last record,
/// the better a start of the daemon tells a step from drift.
const CLOCK_PAUSE: Duration = Duration::from_secs(3600);

/// Retention of the copy of a database that a migration made: it holds the secrets of that time, also those
/// of sessions that were removed since.
const KEEP_COPIES: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let (mut files_due, mut operations_due) = (Instant::now(), Instant::now() + queue::KEEP_RANDOM / 2);
    loop {
        let groups = control_groups(&daemon).await;
        let spared = |turn: &mut Turn<'_>| turn.volatile.reaping.spared().collect::<BTreeSet<_>>();
        let Ok(spared) = daemon.engine.turn(spared).await else { return };
        let ended = process_exits::sample(&daemon, spared).await;
        let context = Arc::clone(&daemon);
        let is_due = operations_due <= Instant::now();
        if is_due {
            operations_due = Instant::now() + queue::KEEP_RANDOM / 2;
        }
        let forget = move |turn: &mut Turn<'_>| {
            if is_due {
                turn.age_operations();
            }
            let more = forget_expired(turn, &context, &ended);
            let last = last_incarnations(turn.pool());
            (more, groups.into_iter().filter(|tag| !last.contains(tag)).collect())
        };
        let Ok((more, unused)) = daemon.engine.turn(forget).await else { return };
        remove_groups(&daemon, unused).await;
        if files_due <= Instant::now() {
            files_due = Instant::now() + PAUSE;
            if maintain_files(&daemon).await.is_none() || remove_forgotten_run_files(&daemon).await.is_none()
            {
                return;
            }
        }
        sleep(if more { BUSY_PAUSE } else { PAUSE }).await;
    }
}

/// Keeps disk space for the database, whatever its length, until the daemon ends.
pub(crate) async fn keep_disk_space(daemon: Arc<Daemon>) {
    let resized = daemon.engine.database_resized();
    loop {
        resized.notified().await;
        let database = daemon.paths.database.clone();
        let reserve = move || disk_reserve::preallocate(&database);
        daemon.blocking.with_timeout(Purpose::Housekeeping, reserve).await;
    }
}

/// Maintains the files beside the database: reserved ids and disk space, archives, and copies of the
/// database. Returns none once the engine has stopped.
async fn maintain_files(daemon: &Daemon) -> Option<()> {
    let keep_archives = daemon.loaded().daemon.keep_archives;
    let (paths, started) = (daemon.paths.clone(), daemon.timeline.clone());
    let known = |turn: &mut Turn<'_>| {
        let pool = turn.pool();
        ((pool.next_session(), pool.seq().0), turn.file_ages())
    };
    let (given_out, ages) = daemon.engine.turn(known).await.ok()?;
    let maintain = move || {
        timeline::reserve_ids(&paths.state, &started, given_out);
        disk_reserve::preallocate(&paths.database);
        short_tmp::session_tmp(&paths, SessionId(given_out.0));
        remove_copies(&paths.database, &ages);
        if let Some(keep) = keep_archives {
            remove_archives(&paths.archives(), keep, &ages);
        }
    };
    daemon.blocking.with_timeout(Purpose::Housekeeping, maintain).await;
    Some(())
}

/// Removes the run files of incarnations that no session has any more: it runs another one since, or is forgotten.
/// Returns none once the engine has stopped.
async fn remove_forgotten_run_files(daemon: &Daemon) -> Option<()> {
    let run = daemon.paths.run.clone();
    let list = move || files::run_file_tags(&run);
    let Some(tags) = daemon.blocking.with_timeout(Purpose::Housekeeping, list).await else { return Some(()) };
    let forgotten = move |turn: &mut Turn<'_>| {
        tags.into_iter().filter(|tag| turn.pool().tagged(*tag).is_none()).collect()
    };
    observe::remove_run_files(daemon, daemon.engine.turn(forgotten).await.ok()?);
    Some(())
}

/// Removes old copies of the database, `pool.redb.v1` and the like.
fn remove_copies(database: &Path, ages: &FileAges) {
    let is_copy = |entry: &DirEntry| {
        let (name, own) = (entry.file_name(), database.file_name().unwrap_or_default());
        let version = name.as_encoded_bytes().strip_prefix(own.as_encoded_bytes());
        let version = version.and_then(|rest| rest.strip_prefix(b".v"));
        version.is_some_and(|v| !v.is_empty() && v.iter().all(u8::is_ascii_digit))
    };
    remove_old(database.parent().unwrap_or(database), (KEEP_COPIES, ages), is_copy);
}

/// Removes archives older than `keep`.
fn remove_archives(archives: &Path, keep: Duration, ages: &FileAges) {
    remove_old(archives, (keep, ages), |entry| entry.file_name().as_encoded_bytes().ends_with(b".tar.gz"));
}

/// Removes files of a directory that `selects` selects and that are older than `keep`.
fn remove_old(dir: &Path, (keep, ages): (Duration, &FileAges), selects: impl Fn(&DirEntry) -> bool) {
    let old = |entry: &DirEntry| ages.is_old(entry.metadata(), keep);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| selects(entry) && old(entry)) {
        match std::fs::remove_file(entry.path()) {
            Ok(()) => tracing::info!(path = %entry.path().display(), "an old file was removed"),
            Err(error) => {
                tracing::warn!(path = %entry.path().display(), %error, "an old file was not removed");
            }
        }
    }
}

/// Forgets expired messages and operations. Returns true if there may be more.
fn forget_expired(turn: &mut Turn<'_>, daemon: &Daemon, ended: &BTreeSet<ProcId>) -> bool {
    let rules = &daemon.loaded().settings.queue;
    let now = turn.now();
    if turn.age(turn.pool().clock().read_at) >= CLOCK_PAUSE {
        turn.record_clock();
    }
    let forgotten = queue::past_retention(turn.pool(), rules, now);
    let mut more = forgotten.len() == queue::FORGET_BATCH;
    if !forgotten.is_empty() {
        idempotency::forget_messages(turn, forgotten);
        crate::crash::point("forget");
    }
    let in_progress = |op: &_| turn.waiting.operations.contains_key(op);
    let over = idempotency::expired(turn.pool(), now, in_progress);
    more |= over.len() >= idempotency::FORGET_BATCH;
    turn.emit_all(over);
    forget_ended(turn, daemon, ended);
    turn.trim();
    more
}

/// Forgets the volatile state of sessions and incarnations that do not exist any more. `ended` are spared
/// processes that have ended.
fn forget_ended(turn: &mut Turn<'_>, daemon: &Daemon, ended: &BTreeSet<ProcId>) {
    let (settings, now, mono) = (daemon.settings(), turn.now(), turn.mono());
    let (pool, volatile) = turn.state();
    let named =
        reap::all_candidates(pool, volatile, &settings, now).into_iter().map(|candidate| candidate.tag);
    let named: BTreeSet<Tag> = named.collect();
    let sessions = pool.sessions().map(|session| session.id).collect();
    volatile.reaping.retain(pool, &named, ended, mono);
    volatile.prompts.retain(&sessions, &last_incarnations(pool));
    volatile.observed.retain(pool);
}

/// Returns the last incarnations of all sessions.
fn last_incarnations(pool: &Pool) -> BTreeSet<Tag> {
    pool.sessions().filter_map(Session::tag).collect()
}

/// Returns the incarnations that have a control group.
async fn control_groups(daemon: &Daemon) -> Vec<Tag> {
    let Some(subtree) = daemon.cgroups.subtree() else { return Vec::new() };
    daemon.blocking.with_timeout(Purpose::Housekeeping, move || subtree.tags()).await.unwrap_or_default()
}

/// Removes the control groups of incarnations that are forgotten, if they are empty.
async fn remove_groups(daemon: &Daemon, unused: Vec<Tag>) {
    let Some(subtree) = daemon.cgroups.subtree().filter(|_| !unused.is_empty()) else { return };
    let remove = move || unused.into_iter().for_each(|tag| subtree.remove_if_empty(tag));
    daemon.blocking.with_timeout(Purpose::Housekeeping, remove).await;
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use protocol::clock::Clock;
    use world::clock::timestamp;

    use super::*;

    fn ages() -> FileAges {
        FileAges { clock: Clock::default(), now: timestamp(SystemTime::now()) }
    }

    #[test]
    fn only_old_archives_go() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["old.tar.gz", "new.tar.gz", "old.txt"] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            if name.starts_with("old") {
                file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
            }
        }
        remove_archives(dir.path(), Duration::from_secs(50), &ages());
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!((left("old.tar.gz"), left("new.tar.gz"), left("old.txt")), (false, true, true));
    }

    #[test]
    fn copies_of_an_older_version_go_after_a_week() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("pool.redb");
        for (name, age) in [("pool.redb", 9), ("pool.redb.v3", 8), ("pool.redb.v4", 6), ("pool.redb.vx", 9)] {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age * 24 * 3600)).unwrap();
        }
        remove_copies(&database, &ages());
        let left = |name: &str| dir.path().join(name).exists();
        let names = ["pool.redb", "pool.redb.v3", "pool.redb.v4", "pool.redb.vx"];
        assert_eq!(names.map(left), [true, false, true, true]);
    }
}
