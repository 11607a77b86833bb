//! From the first schema: nothing is lost, whatever happens meanwhile, and the old file is kept.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use protocol::{MessageId, MessageState, Seq};
use store::{Store, StoreError};

use crate::backend::{Disk, Fault};
use crate::crash::open;
use crate::files::data;
use crate::rows::rows;
use crate::world::{Expected, Rng, World};

fn old() -> Vec<u8> {
    fs::read(data("v1.redb")).unwrap()
}

#[test]
fn the_file_is_kept_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (path, kept) = (dir.path().join("pool.redb"), dir.path().join("pool.redb.v1"));
    fs::write(&path, old()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::write(&kept, "half of a copy, from elsewhere").unwrap();
    for _ in 0..2 {
        Store::open(&path, |_| {}).unwrap().0.close().unwrap();
        assert!(fs::read(&kept).unwrap() == old());
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
    let (store, loaded) = Store::open(&kept, |_| {}).unwrap();
    assert_eq!(Expected::found(&store, loaded), open(&Disk::holding(old())), "and it is still good");
}

#[test]
fn nothing_is_changed_where_the_file_cannot_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    fs::write(&path, old()).unwrap();
    // A directory that has the copy's name.
    fs::create_dir(dir.path().join("pool.redb.v1")).unwrap();
    assert!(Store::open(&path, |_| {}).is_err());
    assert!(fs::read(&path).unwrap() == old());
}

#[test]
fn d6_a_power_cut_at_any_write_of_a_migration_loses_nothing() {
    let disk = Disk::holding(old());
    let whole = open(&disk);
    assert!(whole.messages.len() > 10 && whole.journal.is_empty());
    let mut rng = Rng(1);
    let mut images = 0;
    for point in 0..=disk.writes() {
        let random = [disk.image(point, &mut rng), disk.image(point, &mut rng)];
        for image in disk.single_images(point).into_iter().chain(random) {
            let survivor = Disk::holding(image);
            assert_eq!(open(&survivor), whole, "cut at {point}");
            assert_eq!(open(&survivor), whole, "cut at {point}, and opened again");
            let tables = rows(&survivor);
            assert!(!tables.contains_key("journal-1") && tables.len() == 9, "cut at {point}: {tables:?}");
            images += 1;
        }
    }
    assert!(images > 100, "{images}");
}

#[test]
fn d5_a_disk_that_fails_during_a_migration_loses_nothing() {
    let disk = Disk::holding(old());
    let whole = open(&disk);
    for nth in 1..=disk.done() {
        let disk = Disk::failing(old(), Fault { nth, persistent: false, kind: ErrorKind::StorageFull });
        // What it reads in vain at its end does not matter.
        let opened = Store::with_backend(disk.clone());
        if let Err(error) = &opened {
            assert!(matches!(error, StoreError::Io(_) | StoreError::Storage(_)), "{nth}: {error:?}");
        }
        drop(opened);
        assert_eq!(open(&Disk::holding(disk.bytes())), whole, "operation {nth}");
    }
}

#[test]
fn the_journal_begins_anew_and_goes_on() {
    let disk = Disk::holding(old());
    let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
    assert_eq!(store.oldest_seq().unwrap(), None);
    let mut world = World::new(5);
    world.now = Expected::found(&store, loaded);
    let before = world.now.pool.seq();
    let batch = world.batch(30);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(before.0 + 1)));
    assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap(), world.now.journal);
    drop(store);
    assert_eq!(open(&disk), world.now);
}

#[test]
fn states_are_carried_over_with_a_step() {
    let (store, _) = Store::with_backend(Disk::holding(old())).unwrap();
    let (typing, _) = store.message(MessageId(78)).unwrap().unwrap();
    assert_eq!((typing.status.state, typing.status.attempts), (MessageState::Typing, 2));
    assert_eq!(typing.steps.len(), 2);
    assert_eq!(typing.steps[1], typing.status.step());
}
