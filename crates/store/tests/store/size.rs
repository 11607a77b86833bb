//! The size of the file, beside what is live in it.

use std::fs;

use pool::Pool;
use protocol::{Event, Seq, SessionId, Stamped, Timestamp};
use store::Store;

use crate::history::{Batch, History};

/// Bytes of each event, and their number: together more than the bound.
const EVENT: usize = 200 << 10;
const EVENTS: u64 = 800;
/// Events that are kept, and events between two trims.
const KEEP: u64 = 100;
const TRIM_EVERY: u64 = 50;

#[test]
fn o04_the_file_is_bounded_by_twice_what_is_live_and_64_mib() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let mut store = Store::open(&path, |_| {}).unwrap().0;
    let mut batch = Batch::default();
    let mut history = History::new(1);
    while history.now.pool.sessions().next().is_none() {
        history.step(0, &mut batch);
    }
    store.commit(&history.now.pool, &batch.events, &batch.bodies).unwrap();
    let mut pool = history.now.pool;
    let session = pool.sessions().next().unwrap().id;
    for n in 0..EVENTS {
        let stamped = labelled(&mut pool, session, n);
        store.commit(&pool, &[stamped], &[]).unwrap();
        if n % TRIM_EVERY == 0 {
            while store.trim_journal(KEEP, Timestamp(0)).unwrap() >= store::TRIM_MAX {}
        }
    }
    let live = (KEEP + TRIM_EVERY) * EVENT as u64;
    let (bound, file) = (2 * live + (64 << 20), fs::metadata(&path).unwrap().len());
    assert!(EVENTS * EVENT as u64 > bound, "the journal would not fit without being trimmed");
    assert!(file <= bound, "{} MiB, of {} live", file >> 20, live >> 20);
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
