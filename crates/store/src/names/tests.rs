//! A directory that forgets, in a power cut, every name that was given since it was last written out.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use pool::Pool;
use protocol::{Event, Seq, Stamped, Timestamp};

use super::{Names, Os, place_new};
use crate::care::{backup_with, import_with};
use crate::{Store, StoreError, migrate};

#[derive(Default)]
struct Forgetful {
    unsynced: RefCell<Vec<(PathBuf, PathBuf)>>,
}

impl Names for Forgetful {
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.replace(from, to)?;
        self.unsynced.borrow_mut().push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn give(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.give(from, to)?;
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
    for name in ["pool.redb", "backup.redb", "import.redb", &format!("pool.redb.v{}", crate::SCHEMA)] {
        assert!(at(name).exists(), "{name} is lost");
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn of_two_that_make_one_file_one_is_refused_and_the_other_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup.redb");
    let (first_path, begun) = (path.clone(), mpsc::channel());
    let go = mpsc::channel();
    let first = thread::spawn(move || {
        place_new(&Os, &first_path, |unfinished| {
            fs::write(unfinished, "the first")?;
            begun.0.send(()).unwrap();
            go.1.recv().unwrap();
            Ok(())
        })
    });
    begun.1.recv().unwrap();
    let second = place_new(&Os, &path, |unfinished| {
        fs::write(unfinished, "half of the sec")?;
        go.0.send(()).unwrap();
        first.join().unwrap()?;
        assert_eq!(fs::read(&path)?, b"the first", "what is acknowledged is whole");
        fs::write(unfinished, "the second")?;
        Ok(())
    });
    assert!(matches!(second, Err(StoreError::Exists(_))), "{second:?}");
    assert_eq!(fs::read(&path).unwrap(), b"the first");
    assert_eq!(names_in(dir.path()), ["backup.redb"]);
}

#[test]
fn what_a_user_has_beside_a_copy_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let names = ["backup.redb", "backup.redb.new", "pool.redb", "pool.redb.new"];
    for name in ["backup.redb.new", "pool.redb.new"] {
        fs::write(at(name), "the user's").unwrap();
    }
    let store = open(&Os, &at("pool.redb")).unwrap();
    backup_with(&Os, &store, &at("backup.redb")).unwrap();
    assert_eq!(names_in(dir.path()), names);
    for name in ["backup.redb.new", "pool.redb.new"] {
        assert_eq!(fs::read(at(name)).unwrap(), b"the user's");
    }
}
