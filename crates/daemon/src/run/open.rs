//! Opening the database, and what a start writes down before anything else: a new epoch, whose timeline it is, and what the
//! last daemon left half-way.

use std::path::PathBuf;

use pool::Pool;
use protocol::clock::Clock;
use protocol::paths::Paths;
use protocol::{Epoch, Event, Seq, Stamped, Timestamp};
use store::{Store, StoreError};

use crate::engine::context::BUILD;
use crate::engine::turn;
use crate::host::fatal::Fatal;
use crate::host::timeline::Verdict;
use crate::host::{clock, disk_reserve, timeline};
use crate::run::{load, service};

/// A large database takes a while to check or repair; whoever supervises, and `poolctl status`, is told that it goes on.
fn progress(recovery: PathBuf) -> impl Fn(f64) {
    let told = std::cell::Cell::new(None);
    move |done| {
        let percent = (done * 100.0).clamp(0.0, 100.0).round();
        if told.replace(Some(percent)) == Some(percent) {
            return;
        }
        tracing::debug!(percent, "the database is recovered");
        service::recovering(percent);
        // Only for people: a start does not fail for want of it.
        drop(std::fs::write(&recovery, format!("{} {percent}\n", std::process::id())));
    }
}

fn storage(error: StoreError) -> Fatal {
    Fatal::Storage(error.to_string())
}

/// Opens the database and commits this start: a new epoch, and what the last daemon left half-way.
pub(crate) fn open_store(paths: &Paths) -> Result<(Store, Pool), Fatal> {
    let recovery = paths.run.join("recovery");
    let opening = service::Opening::new();
    let opened = Store::open(&paths.database, progress(recovery.clone()));
    drop(opening);
    drop(std::fs::remove_file(recovery));
    let (mut store, found) = opened.map_err(storage)?;
    disk_reserve::keep(&paths.database);
    for lost in &found.quarantined {
        let (table, key, why) = (&lost.table, lost.key.escape_ascii(), &lost.why);
        tracing::error!(table, %key, why, "a damaged record was put aside");
    }
    let mut pool = found.pool;
    let boot = process::identity::boot_id().unwrap_or_else(|_| pool.started_by().1.to_owned());
    let (same_boot, reading) = (pool.started_by().1 == boot, clock::read());
    let placed = |e: std::io::Error| Fatal::io(&paths.state, e);
    let start = timeline::begin(paths, &pool, found.timeline, &boot).map_err(placed)?;
    let mut events = vec![
        Event::PoolStarted { epoch: Epoch(start.known.epoch()), build: BUILD.to_owned(), boot: boot.clone() },
        Event::NextSession { next: start.known.next_session() },
    ];
    let (clock, step) = pool::clock::at_start(pool.clock(), same_boot, last_event(&store, &pool)?, reading);
    if let Some(step) = step {
        turn::log_step(step);
        events.extend(pool::budget::shifted(&pool, step));
    }
    events.push(Event::ClockRead(Clock { seq: pool.seq(), ..clock }));
    if let Verdict::Other(why) = start.verdict {
        tracing::warn!(why, "this pool begins another timeline: what ran is lost, and not touched");
        events.extend(timeline::events(&pool, paths));
    } else {
        load::sweep(&pool, &paths.run);
        events.extend(load::at_open(&pool, &paths.run, &boot));
        events.extend(timeline::moved(&pool, paths));
    }
    let (at, mut stamped) = (reading.wall, Vec::new());
    take_in(&mut pool, events, (at, start.seq), &mut stamped);
    crate::crash::point("recover-begin");
    store.commit(&pool, &stamped, &[]).map_err(storage)?;
    store.set_timeline(start.known.id()).map_err(storage)?;
    crate::crash::point("recover-written");
    timeline::begun(paths, &start.known).map_err(placed)?;
    Ok((store, pool))
}

/// The place and the time of the last event in the journal; none where it is damaged.
fn last_event(store: &Store, pool: &Pool) -> Result<Option<(Seq, Timestamp)>, Fatal> {
    let before = Seq(pool.seq().0.saturating_sub(1));
    match store.reader().events_since(before, 1) {
        Ok(events) => Ok(events.first().map(|stamped| (stamped.seq, stamped.at))),
        Err(StoreError::Record { .. }) => Ok(None),
        Err(error) => Err(storage(error)),
    }
}

/// Applies what a start begins with; the first of it that is numbered comes after `seq`.
fn take_in(pool: &mut Pool, events: Vec<Event>, (at, seq): (Timestamp, u64), stamped: &mut Vec<Stamped>) {
    for event in events {
        let last = pool.seq().0.max(seq);
        let seq = if event.is_journaled() { Seq(last + 1) } else { pool.seq() };
        let fact = Stamped { seq, at, event };
        pool.apply(&fact);
        stamped.push(fact);
    }
}
