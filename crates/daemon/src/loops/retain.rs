//! What goes out of retention: messages that are over, operation ids.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::{queue, reap};
use protocol::{ProcId, SessionId, Tag};
use tokio::time::{Instant, sleep};

use crate::decide::idempotency;
use crate::decide::idempotency::KEEP_RANDOM;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::clock::Ages;
use crate::sense::exits;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);

/// Between two looks while there is much to forget.
const BUSY: Duration = Duration::from_millis(100);

/// Time between two readings of the clocks that are put on record: a start of the daemon tells a jump from drift the
/// better the younger the last one is.
const READ_CLOCK: Duration = Duration::from_secs(3600);

/// Keeps house for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let (mut files_due, mut operations_due) = (Instant::now(), Instant::now() + KEEP_RANDOM / 2);
    loop {
        let spared = |turn: &mut Turn<'_>| turn.volatile.reaping.spared().collect::<BTreeSet<_>>();
        let Ok(spared) = daemon.engine.turn(spared).await else { return };
        let ended = exits::sample(spared).await;
        let context = Arc::clone(&daemon);
        let ages = operations_due <= Instant::now();
        if ages {
            operations_due = Instant::now() + KEEP_RANDOM / 2;
        }
        let tidy = move |turn: &mut Turn<'_>| {
            if ages {
                turn.age_operations();
            }
            tidy(turn, &context, &ended)
        };
        let Ok(more) = daemon.engine.turn(tidy).await else { return };
        if files_due <= Instant::now() {
            files_due = Instant::now() + PAUSE;
            if keep_files(&daemon).await.is_none() {
                return;
            }
        }
        sleep(if more { BUSY } else { PAUSE }).await;
    }
}

/// Sees to what lies beside the database. None: the engine has stopped.
async fn keep_files(daemon: &Daemon) -> Option<()> {
    let life = daemon.loaded().life.clone();
    let paths = daemon.paths.clone();
    let known = |turn: &mut Turn<'_>| {
        let pool = turn.pool();
        ((pool.next_session(), pool.seq().0), turn.ages())
    };
    let (given_out, ages) = daemon.engine.turn(known).await.ok()?;
    let keep = move || {
        crate::host::timeline::reserve(&paths.state, given_out);
        crate::host::disk_reserve::keep(&paths.database);
        crate::host::short_tmp::dir(&paths, SessionId(given_out.0));
        forget_copies(&paths.database, &ages);
        if let Some(keep) = life.keep_archives {
            forget_archives(&paths.archives(), keep, &ages);
        }
    };
    blocking::limited(Purpose::House, keep).await;
    Some(())
}

/// How long the copy of a database is kept that was made before it was taken over into a newer version: it holds what
/// was secret then, also of sessions that were removed since.
const KEEP_COPIES: Duration = Duration::from_secs(7 * 24 * 3600);

/// Removes old copies, `pool.redb.v1` and the like, beside the database.
fn forget_copies(database: &Path, ages: &Ages) {
    let is_copy = |entry: &DirEntry| {
        let (name, own) = (entry.file_name(), database.file_name().unwrap_or_default());
        let version = name.as_encoded_bytes().strip_prefix(own.as_encoded_bytes());
        let version = version.and_then(|rest| rest.strip_prefix(b".v"));
        version.is_some_and(|v| !v.is_empty() && v.iter().all(u8::is_ascii_digit))
    };
    forget_old(database.parent().unwrap_or(database), (KEEP_COPIES, ages), is_copy);
}

/// Removes the archives that were written longer ago.
fn forget_archives(archives: &Path, keep: Duration, ages: &Ages) {
    forget_old(archives, (keep, ages), |entry| entry.file_name().as_encoded_bytes().ends_with(b".tar.gz"));
}

fn forget_old(dir: &Path, (keep, ages): (Duration, &Ages), named: impl Fn(&DirEntry) -> bool) {
    let old = |entry: &DirEntry| ages.is_old(entry.metadata(), keep);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| named(entry) && old(entry)) {
        match std::fs::remove_file(entry.path()) {
            Ok(()) => tracing::info!(path = %entry.path().display(), "an old file was removed"),
            Err(error) => tracing::warn!(path = %entry.path().display(), %error, "an old file stays"),
        }
    }
}

/// Does what is due. Answers whether there may be more.
fn tidy(turn: &mut Turn<'_>, daemon: &Daemon, ended: &BTreeSet<ProcId>) -> bool {
    let rules = &daemon.loaded().settings.queue;
    let now = turn.now();
    if turn.age(turn.pool().clock().read_at) >= READ_CLOCK {
        turn.read_clock();
    }
    let forgotten = queue::outdated(turn.pool(), rules, now);
    let more = !forgotten.is_empty();
    turn.emit_all(forgotten);
    if more {
        crate::crash::point("forget");
    }
    let over = idempotency::outdated(turn.pool(), now);
    let more = more || !over.is_empty();
    turn.emit_all(over);
    forget_ended(turn, daemon, ended);
    turn.trim();
    more
}

/// Forgets what is known of sessions and incarnations that are no more. `ended`: spared processes that have ended since.
fn forget_ended(turn: &mut Turn<'_>, daemon: &Daemon, ended: &BTreeSet<ProcId>) {
    let (settings, now, mono) = (daemon.settings(), turn.now(), turn.mono());
    let (pool, volatile) = turn.state();
    let named = reap::named(pool, volatile, &settings, now).into_iter().map(|candidate| candidate.tag);
    let named: BTreeSet<Tag> = named.collect();
    let runs: BTreeSet<Tag> =
        pool.sessions().filter_map(|s| s.incarnation.as_ref()).map(|run| run.tag).collect();
    let sessions = pool.sessions().map(|session| session.id).collect();
    volatile.reaping.retain(pool, &named, ended, mono);
    volatile.prompts.retain(&sessions, &runs);
    volatile.observed.retain(pool);
    daemon.cgroups.sweep(&|tag| runs.contains(&tag));
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use protocol::clock::Clock;

    use super::*;
    use crate::host::clock;

    fn ages() -> Ages {
        Ages { clock: Clock::default(), now: clock::now() }
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
        forget_archives(dir.path(), Duration::from_secs(50), &ages());
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
        forget_copies(&database, &ages());
        let left = |name: &str| dir.path().join(name).exists();
        let names = ["pool.redb", "pool.redb.v3", "pool.redb.v4", "pool.redb.vx"];
        assert_eq!(names.map(left), [true, false, true, true]);
    }
}
