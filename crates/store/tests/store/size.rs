//! The size of the file, beside what is live in it.

use std::fs;

use pool::Pool;
use protocol::{Event, Seq, SessionId, Stamped, Timestamp};
use store::Store;
use tempfile::TempDir;

use crate::history::History;

/// Bytes of each event, and their number: together more than the bound.
const EVENT: usize = 200 << 10;
const EVENTS: u64 = 800;
/// Events that are kept, and events between two trims.
const KEEP: u64 = 100;
const TRIM_EVERY: u64 = 50;

/// A store with a session, whose labels are the events.
struct Filled {
    dir: TempDir,
    store: Store,
    pool: Pool,
    session: SessionId,
}

impl Filled {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("pool.redb"), |_| {}).unwrap().0;
        let mut history = History::new(1);
        let session = history.create();
        history.commit(&mut store).unwrap();
        Self { dir, store, pool: history.now.pool, session }
    }

    /// Commits an event of [`EVENT`] bytes.
    fn add(&mut self, n: u64) {
        let stamped = labelled(&mut self.pool, self.session, n);
        self.store.commit(&self.pool, &[stamped], &[]).unwrap();
    }

    fn trim(&mut self, keep: u64) {
        while self.store.trim_journal(keep, Timestamp(0)).unwrap() >= store::TRIM_MAX {}
    }

    /// Size of the file in bytes.
    fn size(&self) -> u64 {
        fs::metadata(self.dir.path().join("pool.redb")).unwrap().len()
    }
}

#[test]
fn o04_the_file_is_bounded_by_twice_what_is_live_and_64_mib() {
    let mut filled = Filled::new();
    for n in 0..EVENTS {
        filled.add(n);
        if n % TRIM_EVERY == 0 {
            filled.trim(KEEP);
        }
    }
    let live = (KEEP + TRIM_EVERY) * EVENT as u64;
    let (bound, file) = (2 * live + (64 << 20), filled.size());
    assert!(EVENTS * EVENT as u64 > bound, "the journal would not fit without being trimmed");
    assert!(file <= bound, "{} MiB, of {} live", file >> 20, live >> 20);
}

#[test]
fn o04_what_was_deleted_is_used_again_and_given_back_by_compact() {
    /// Events that are not trimmed, then those that are written into what they leave.
    const FILL: u64 = 400;
    const AGAIN: u64 = 160;
    const LEFT: u64 = 20;
    let mut filled = Filled::new();
    (0..FILL).for_each(|n| filled.add(n));
    let full = filled.size();
    filled.trim(LEFT);
    for n in FILL..FILL + AGAIN {
        filled.add(n);
        if n % LEFT == 0 {
            filled.trim(LEFT);
        }
    }
    assert!(filled.size() <= full, "{} MiB, {} before", filled.size() >> 20, full >> 20);
    filled.trim(LEFT);
    let (bound, compacted) = (2 * LEFT * EVENT as u64 + (64 << 20), filled.store.compact().unwrap());
    assert_eq!(compacted.1, filled.size());
    assert!(full > bound && filled.size() <= bound, "{compacted:?}, bounded by {bound}");
}

/// An event of [`EVENT`] bytes, applied.
fn labelled(pool: &mut Pool, session: SessionId, n: u64) -> Stamped {
    let labels = (0..50).map(|k| (format!("k{k}"), format!("{n:0>width$}", width = EVENT / 50))).collect();
    let seq = Seq(pool.seq().0 + 1);
    let stamped = Stamped {
        seq,
        at: Timestamp(1_790_000_000_000 + n),
        event: Event::SessionLabelled { session, labels },
    };
    pool.apply(&stamped);
    stamped
}
