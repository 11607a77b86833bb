//! A directory that loses, in a power cut, every entry that was not synced.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use pool::Pool;
use protocol::{Event, Seq, Stamped, Timestamp};

use super::{Directory, OsDirectory, create_new};
use crate::maintenance::{backup_with, export, import_with};
use crate::migrate::keep_copy;
use crate::{SCHEMA, Store, StoreError};

#[derive(Default)]
struct LossyDirectory {
    unsynced: RefCell<Vec<(PathBuf, PathBuf)>>,
}

impl Directory for LossyDirectory {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDirectory.rename(from, to)?;
        self.unsynced.borrow_mut().push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDirectory.rename_new(from, to)?;
        self.unsynced.borrow_mut().push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        self.unsynced.borrow_mut().retain(|(_, to)| to.parent() != Some(directory));
        Ok(())
    }
}

impl LossyDirectory {
    fn power_cut(&self) {
        for (from, to) in self.unsynced.borrow_mut().drain(..).rev() {
            fs::rename(to, from).unwrap();
        }
    }
}

fn open(directory: &dyn Directory, path: &Path) -> Result<Store, StoreError> {
    Store::open_with(directory, path, Rc::new(|_| {})).map(|(store, _)| store)
}

#[test]
fn d7_the_directory_is_on_disk_before_anything_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let directory = LossyDirectory::default();
    let mut store = open(&directory, &path).unwrap();
    let mut pool = Pool::default();
    let event = Event::WatcherLost { reason: "gone".to_owned() };
    let fact = Stamped { seq: Seq(1), at: Timestamp(5), event };
    pool.apply(&fact);
    store.commit(&pool, std::slice::from_ref(&fact), &[]).unwrap();
    drop(store);
    directory.power_cut();
    assert!(path.exists(), "the database's name is lost, and with it an acknowledged commit");
    assert_eq!(open(&directory, &path).unwrap().events_since(Seq(0), 9).unwrap(), [fact]);
}

#[test]
fn d7_copies_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let directory = LossyDirectory::default();
    let store = open(&directory, &at("pool.redb")).unwrap();
    backup_with(&directory, &store, &at("backup.redb")).unwrap();
    let mut lines = Vec::new();
    export(&store, &mut lines).unwrap();
    import_with(&directory, &at("import.redb"), &mut lines.as_slice()).unwrap();
    keep_copy(&directory, &at("pool.redb"), SCHEMA).unwrap();
    directory.power_cut();
    for name in ["pool.redb", "backup.redb", "import.redb", &format!("pool.redb.v{SCHEMA}")] {
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
fn of_two_creations_of_a_file_one_is_refused_and_the_other_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup.redb");
    let (first_path, begun) = (path.clone(), mpsc::channel());
    let go = mpsc::channel();
    let first = thread::spawn(move || {
        create_new(&OsDirectory, &first_path, |temporary| {
            fs::write(temporary, "the first")?;
            begun.0.send(()).unwrap();
            go.1.recv().unwrap();
            Ok(())
        })
    });
    begun.1.recv().unwrap();
    let second = create_new(&OsDirectory, &path, |temporary| {
        fs::write(temporary, "half of the sec")?;
        go.0.send(()).unwrap();
        first.join().unwrap()?;
        assert_eq!(fs::read(&path)?, b"the first", "the acknowledged file is complete");
        fs::write(temporary, "the second")?;
        Ok(())
    });
    assert!(matches!(second, Err(StoreError::Exists(_))), "{second:?}");
    assert_eq!(fs::read(&path).unwrap(), b"the first");
    assert_eq!(names_in(dir.path()), ["backup.redb"]);
}

#[test]
fn other_files_of_the_user_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let names = ["backup.redb", "backup.redb.new", "pool.redb", "pool.redb.new"];
    for name in ["backup.redb.new", "pool.redb.new"] {
        fs::write(at(name), "the user's").unwrap();
    }
    let store = open(&OsDirectory, &at("pool.redb")).unwrap();
    backup_with(&OsDirectory, &store, &at("backup.redb")).unwrap();
    assert_eq!(names_in(dir.path()), names);
    for name in ["backup.redb.new", "pool.redb.new"] {
        assert_eq!(fs::read(at(name)).unwrap(), b"the user's");
    }
}
