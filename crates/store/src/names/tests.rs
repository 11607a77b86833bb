//! A directory that forgets, in a power cut, every name that was given since it was last written out.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use pool::Pool;
use protocol::{Event, Seq, Stamped, Timestamp};

use super::Names;
use crate::care::{backup_with, import_with};
use crate::{Store, StoreError, migrate};

#[derive(Default)]
struct Forgetful {
    unsynced: RefCell<Vec<(PathBuf, PathBuf)>>,
}

impl Names for Forgetful {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        self.unsynced.borrow_mut().push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        self.unsynced.borrow_mut().retain(|(_, to)| to.parent() != Some(directory));
        Ok(())
    }
}

impl Forgetful {
    fn power_cut(&self) {
        for (from, to) in self.unsynced.borrow_mut().drain(..).rev() {
            fs::rename(to, from).unwrap();
        }
    }
}

fn open(names: &dyn Names, path: &Path) -> Result<Store, StoreError> {
    Store::open_with(names, path, Rc::new(|_| {})).map(|(store, _)| store)
}

#[test]
fn d7_the_directory_is_on_disk_before_anything_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let names = Forgetful::default();
    let mut store = open(&names, &path).unwrap();
    let mut pool = Pool::default();
    let event = Event::WatcherLost { reason: "gone".to_owned() };
    let fact = Stamped { seq: Seq(1), at: Timestamp(5), event };
    pool.apply(&fact);
    store.commit(&pool, std::slice::from_ref(&fact), &[]).unwrap();
    drop(store);
    names.power_cut();
    assert!(path.exists(), "the database's name was lost with what was acknowledged");
    assert_eq!(open(&names, &path).unwrap().events_since(Seq(0), 9).unwrap(), [fact]);
}

#[test]
fn d7_copies_have_their_names_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let names = Forgetful::default();
    let store = open(&names, &at("pool.redb")).unwrap();
    backup_with(&names, &store, &at("backup.redb")).unwrap();
    let mut lines = Vec::new();
    crate::care::export(&store, &mut lines).unwrap();
    import_with(&names, &at("import.redb"), &mut lines.as_slice()).unwrap();
    migrate::keep(&names, &at("pool.redb"), crate::SCHEMA).unwrap();
    names.power_cut();
    for name in ["pool.redb", "backup.redb", "import.redb", "pool.redb.v2"] {
        assert!(at(name).exists(), "{name} is lost");
    }
}
