//! A failing disk: no panic, no result after the failure, no loss of an acknowledged commit.

use std::io::ErrorKind;
use std::thread;

use protocol::message::BODY_MAX;
use store::{Store, StoreError};

use crate::backend::{Disk, Fault};
use crate::crash::created;
use crate::history::{Expected, History, fresh};

const COMMITS: usize = 12;

#[test]
fn d5_a_failing_disk_latches_and_loses_nothing() {
    let whole = run(&created(), 0);
    assert_eq!(whole.acknowledged, COMMITS);
    assert!(whole.operations > 50, "the script does something: {}", whole.operations);
    let half =
        |kind| move || [false, true].into_iter().for_each(|lasts| each_fault(whole.operations, lasts, kind));
    let other = thread::spawn(half(ErrorKind::StorageFull));
    half(ErrorKind::Other)();
    other.join().unwrap();
}

/// Runs the script once for each operation, which fails.
fn each_fault(operations: u64, persistent: bool, kind: ErrorKind) {
    for nth in 1..=operations {
        let disk = Disk::failing(created().bytes(), Fault { nth, persistent, kind });
        let broken = run(&disk, nth);
        let (mut store, loaded) = Store::with_backend(Disk::holding(disk.bytes())).expect("it opens again");
        let found = Expected::found(&store, loaded);
        let states = &broken.states[broken.acknowledged..];
        assert!(states.contains(&found), "operation {nth}, persistent {persistent}");
        let mut history = History { now: found, ..History::new(nth) };
        history.steps(2);
        history.commit(&mut store).expect("it goes on");
    }
}

#[test]
fn d5_a_failing_read_latches_too() {
    let (disk, mut store, mut history) = fresh(4);
    history.create();
    for _ in 0..100 {
        history.send();
    }
    // More than fits into the cache.
    history.batch.bodies.iter_mut().for_each(|(_, body)| *body = vec![7; BODY_MAX]);
    history.commit(&mut store).unwrap();
    disk.fail();
    let mut reads = history.now.messages.keys().map(|id| store.message(*id));
    let failed = reads.find_map(Result::err);
    assert!(matches!(failed, Some(StoreError::Io(_))), "{failed:?}");
    assert!(reads.all(|read| matches!(read, Err(StoreError::Latched))));
}

struct Run {
    states: Vec<Expected>,
    acknowledged: usize,
    operations: u64,
}

/// Opens, commits, reads and closes, up to the first failure.
fn run(disk: &Disk, nth: u64) -> Run {
    let mut history = History::new(77);
    let mut states = vec![history.now.clone()];
    let mut acknowledged = 0;
    if let Ok((mut store, _)) = Store::with_backend(disk.clone()) {
        for n in 0..COMMITS {
            history.steps(6);
            states.push(history.now.clone());
            let committed = history.commit(&mut store);
            let read = committed.and_then(|()| {
                acknowledged = n + 1;
                history.now.messages.keys().next().map_or(Ok(None), |id| store.message(*id))
            });
            if let Err(error) = read {
                assert!(!matches!(error, StoreError::Latched | StoreError::Damaged(_)), "{nth}: {error:?}");
                assert!(matches!(store.commit(&history.now.pool, &[], &[]), Err(StoreError::Latched)));
                assert!(matches!(store.oldest_seq(), Err(StoreError::Latched)));
                break;
            }
        }
        drop(store.close());
    }
    assert!(nth == 0 || disk.faults() > 0, "operation {nth} was not reached");
    Run { states, acknowledged, operations: disk.done() }
}
