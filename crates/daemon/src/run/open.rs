//! Opening the database, and the records of a start before anything else: a new epoch, its timeline, and what
//! the last daemon left half-way.

use std::cell::Cell;
use std::path::PathBuf;

use pool::Pool;
use protocol::clock::Clock;
use protocol::{Epoch, Event, Paths, Seq, Stamped, Timestamp};
use store::{Loaded, Store, StoreError};
use world::World;

use crate::engine::{BUILD, turn};
use crate::host::error::DaemonError;
use crate::host::timeline::{self, Continuity, TimelineFile};
use crate::host::{clock, disk_reserve};
use crate::run::{load, service};

/// Reports the progress of a recovery to the service manager and to `poolctl status`: checking or repairing a
/// large database takes a while.
fn progress(recovery: PathBuf) -> impl Fn(f64) {
    let reported = Cell::new(None);
    move |done| {
        let percent = (done * 100.0).clamp(0.0, 100.0).round();
        if reported.replace(Some(percent)) == Some(percent) {
            return;
        }
        tracing::debug!(percent, "recovering the database");
        service::recovering(percent);
        // The file only tells people how far the recovery is: the start succeeds without it.
        drop(std::fs::write(&recovery, format!("{} {percent}\n", std::process::id())));
    }
}

/// Returns the error of a database that cannot be opened.
fn unopened(error: StoreError, paths: &Paths) -> DaemonError {
    let (what, database) = (error.to_string(), paths.database.display());
    DaemonError::Storage(match error {
        StoreError::Damaged(_) => format!(
            "{what}: `poolctl down`, and put a backup in the place of {database} (`poolctl help logs-and-archives`)"
        ),
        _ => format!("{database}: {what}"),
    })
}

/// Returns the error of a failed database.
fn storage(error: StoreError) -> DaemonError {
    DaemonError::Storage(error.to_string())
}

/// Opens the database; creates it if there is none.
///
/// # Errors
/// It is damaged, of another version, or used by another process.
pub fn open_database(paths: &Paths) -> Result<(Store, Loaded), DaemonError> {
    let recovery = paths.run.join("recovery");
    let opening = service::OpeningWatchdog::new();
    let opened = Store::open(&paths.database, progress(recovery.clone()));
    drop(opening);
    drop(std::fs::remove_file(recovery));
    let opened = opened.map_err(|error| unopened(error, paths))?;
    disk_reserve::preallocate(&paths.database);
    Ok(opened)
}

/// The database at a start, once the start is committed.
pub(super) struct Begun {
    pub(super) store: Store,
    pub(super) pool: Pool,
    /// Time of the last event before.
    pub(super) last: Timestamp,
    /// True if the state directory had a database, and this one is new.
    pub(super) database_was_missing: bool,
    pub(super) timeline: TimelineFile,
}

/// Commits this start: a new epoch, and the ends of what the last daemon left half-way.
pub(super) fn begin(
    paths: &Paths,
    world: &World,
    (mut store, found): (Store, Loaded),
) -> Result<Begun, DaemonError> {
    for lost in &found.quarantined {
        let (table, key, why) = (&lost.table, lost.key.escape_ascii(), &lost.why);
        tracing::error!(table, %key, why, "a damaged record was quarantined");
    }
    let (mut pool, database) = (found.pool, found.timeline);
    let boot = world.processes.boot_id().unwrap_or_else(|| pool.started_by().1.to_owned());
    let (same_boot, reading) = (pool.started_by().1 == boot, clock::read(&*world.clock));
    let start = timeline::start(paths, &pool, (database, &boot), &*world.random)?;
    let mut events = vec![
        Event::PoolStarted { epoch: Epoch(start.file.epoch()), build: BUILD.to_owned(), boot: boot.clone() },
        Event::NextSession { next: start.file.next_session() },
    ];
    let last = last_event(&store, &pool)?;
    let (clock, step) = pool::clock::at_start(pool.clock(), same_boot, last, reading);
    if let Some(step) = step {
        turn::log_step(step);
        events.extend(pool::shift_pauses(&pool, step));
    }
    events.push(Event::ClockRead(Clock { seq: pool.seq(), ..clock }));
    match start.continuity {
        Continuity::Missing => tracing::error!("the database is missing: a new, empty one was begun"),
        Continuity::Other(why) => {
            tracing::warn!(why, "this pool begins another timeline: what ran is lost, and not touched");
            events.extend(timeline::fork_events(&pool, paths, database, reading.wall));
        }
        Continuity::Same | Continuity::First => {
            load::remove_ended_run_files(&pool, &paths.run);
            events.extend(load::events(&pool, &paths.run, &boot));
            events.extend(timeline::relocation_events(&pool, paths));
        }
    }
    let (at, mut stamped) = (reading.wall, Vec::new());
    apply(&mut pool, events, (at, start.seq), &mut stamped);
    crate::crash::point("recover-begin");
    store.commit(&pool, &stamped, &[]).map_err(storage)?;
    store.set_timeline(start.file.id()).map_err(storage)?;
    crate::crash::point("recover-written");
    let timeline = timeline::mark_started(paths, &start.file)?;
    let last = last.map(|(_, at)| at).unwrap_or_default();
    Ok(Begun { store, pool, last, database_was_missing: start.continuity == Continuity::Missing, timeline })
}

/// Returns the position and the time of the last event in the journal; none if it is damaged.
fn last_event(store: &Store, pool: &Pool) -> Result<Option<(Seq, Timestamp)>, DaemonError> {
    let before = Seq(pool.seq().0.saturating_sub(1));
    match store.reader().events_since(before, 1) {
        Ok(events) => Ok(events.first().map(|stamped| (stamped.seq, stamped.at))),
        Err(StoreError::Record { .. }) => Ok(None),
        Err(error) => Err(storage(error)),
    }
}

/// Applies the events of a start. The first journaled one is numbered after `seq`.
fn apply(pool: &mut Pool, events: Vec<Event>, (at, seq): (Timestamp, u64), stamped: &mut Vec<Stamped>) {
    for event in events {
        let last = pool.seq().0.max(seq);
        let seq = if event.is_journaled() { Seq(last + 1) } else { pool.seq() };
        let fact = Stamped { seq, at, event };
        pool.apply(&fact);
        stamped.push(fact);
    }
}

#[cfg(test)]
mod tests {
    use protocol::paths::Env;

    use super::*;

    #[test]
    fn an_error_of_the_database_names_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = Some(dir.path().as_os_str().to_owned());
        let env = Env { state_dir: place, home: Some(dir.path().to_owned()), ..Env::default() };
        let paths = Paths::new(&env).unwrap();
        for error in [StoreError::Locked, StoreError::Damaged("a page".to_owned())] {
            let told = unopened(error, &paths).to_string();
            assert_eq!(told.matches(&*paths.database.to_string_lossy()).count(), 1, "{told}");
        }
    }
}
