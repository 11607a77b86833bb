//! Tests on sockets of this process.

use std::os::unix::net::{UnixListener, UnixStream};

use super::*;
use crate::identity::me;

#[test]
fn sockets_outside_the_private_directory_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (private, path) = (dir.path().join("private"), dir.path().join("private/a b"));
    std::fs::create_dir(&private).unwrap();
    let listens = |private: Option<&Path>| {
        let sockets = ListeningSockets::in_namespace_of(std::process::id()).unwrap();
        // Other tests of this program may listen as well.
        let paths = system::paths_of(&sockets.0, std::process::id()).unwrap();
        let is_outside = |found: &Path| !private.is_some_and(|private| is_inside(found, private));
        paths.into_iter().any(|found| found == path && is_outside(&found))
    };
    assert!(!listens(None));
    let listener = UnixListener::bind(&path).unwrap();
    assert!(listens(None) && listens(Some(&dir.path().join("priv"))));
    assert!(!listens(Some(&private)) && !listens(Some(dir.path())));
    assert!(listening_path(me().unwrap(), None).is_some());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&private, &link).unwrap();
    assert!(!listens(Some(&link)), "the same directory by another name");
    let short = dir.path().join("short");
    std::os::unix::fs::symlink(dir.path(), &short).unwrap();
    assert!(is_inside(&short.join("private/c"), &private), "a socket by another name");
    let stream = UnixStream::connect(&path).unwrap();
    drop(listener);
    assert!(!listens(None), "connected, not listening");
    drop(stream);
}

#[test]
fn an_ended_process_listens_on_nothing() {
    let me = me().unwrap();
    let other = ProcId { start: me.start + 1, ..me };
    assert_eq!(listening_path(other, None), None);
    assert_eq!(listening_path(ProcId { pid: u32::MAX, start: 1 }, None), None);
}
