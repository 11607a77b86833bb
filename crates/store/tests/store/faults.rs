//! A disk that fails: no panic, no answer after the failure, nothing acknowledged is lost.

use std::io::ErrorKind;
use std::thread;

use protocol::message::BODY_MAX;
use store::{Store, StoreError};

use crate::backend::{Disk, Fault};
use crate::crash::created;
use crate::world::{Batch, Expected, World};

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

/// The first operation fails, then the second, and so on.
fn each_fault(operations: u64, persistent: bool, kind: ErrorKind) {
    for nth in 1..=operations {
        let disk = Disk::failing(created().bytes(), Fault { nth, persistent, kind });
        let broken = run(&disk, nth);
        let (mut store, loaded) = Store::with_backend(Disk::holding(disk.bytes())).expect("it opens again");
        let found = Expected::found(&store, loaded);
        let states = &broken.states[broken.acknowledged..];
        assert!(states.contains(&found), "operation {nth}, persistent {persistent}");
        let mut world = World { now: found, ..World::new(nth) };
        let batch = world.batch(2);
        store.commit(&world.now.pool, &batch.events, &batch.bodies).expect("it goes on");
    }
}

#[test]
fn d5_a_failing_read_latches_too() {
    let disk = Disk::default();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut world = World::new(4);
    let mut batch = Batch::default();
    world.create(&mut batch);
    for _ in 0..100 {
        world.send(&mut batch);
    }
    // More than the cache holds.
    batch.bodies.iter_mut().for_each(|(_, body)| *body = vec![7; BODY_MAX]);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    disk.fail();
    let mut reads = world.now.messages.keys().map(|id| store.message(*id));
    let failed = reads.find_map(Result::err);
    assert!(matches!(failed, Some(StoreError::Io(_))), "{failed:?}");
    assert!(reads.all(|read| matches!(read, Err(StoreError::Latched))));
}

struct Run {
    states: Vec<Expected>,
    acknowledged: usize,
    operations: u64,
}

/// Opens, commits, reads, closes, until something fails.
fn run(disk: &Disk, nth: u64) -> Run {
    let mut world = World::new(77);
    let mut states = vec![world.now.clone()];
    let mut acknowledged = 0;
    if let Ok((mut store, _)) = Store::with_backend(disk.clone()) {
        for n in 0..COMMITS {
            let batch = world.batch(6);
            states.push(world.now.clone());
            let committed = store.commit(&world.now.pool, &batch.events, &batch.bodies);
            let read = committed.and_then(|()| {
                acknowledged = n + 1;
                world.now.messages.keys().next().map_or(Ok(None), |id| store.message(*id))
            });
            if let Err(error) = read {
                assert!(!matches!(error, StoreError::Latched | StoreError::Damaged(_)), "{nth}: {error:?}");
                assert!(matches!(store.commit(&world.now.pool, &[], &[]), Err(StoreError::Latched)));
                assert!(matches!(store.oldest_seq(), Err(StoreError::Latched)));
                break;
            }
        }
        drop(store.close());
    }
    assert!(nth == 0 || disk.faults() > 0, "operation {nth} was not reached");
    Run { states, acknowledged, operations: disk.done() }
}
