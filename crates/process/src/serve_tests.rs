//! Sockets of this very process and of children.

use std::os::unix::net::{UnixListener, UnixStream};

use super::*;
use crate::identity::me;

#[test]
fn whoever_listens_outside_what_is_private_serves() {
    let dir = tempfile::tempdir().unwrap();
    let (private, path) = (dir.path().join("private"), dir.path().join("private/a b"));
    std::fs::create_dir(&private).unwrap();
    let held = |private: Option<&Path>| {
        let listeners = Listeners::seen_by(std::process::id()).unwrap();
        // Other tests of this program may listen too.
        let paths = system::held(&listeners.0, std::process::id()).unwrap();
        paths.into_iter().any(|held| held == path && !private.is_some_and(|private| is_in(&held, private)))
    };
    assert!(!held(None));
    let listener = UnixListener::bind(&path).unwrap();
    assert!(held(None) && held(Some(&dir.path().join("priv"))));
    assert!(!held(Some(&private)) && !held(Some(dir.path())));
    assert!(served(me().unwrap(), None).is_some());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&private, &link).unwrap();
    assert!(!held(Some(&link)), "the same directory by another name");
    let stream = UnixStream::connect(&path).unwrap();
    drop(listener);
    assert!(!held(None), "a connection is no service");
    drop(stream);
}

#[test]
fn what_has_ended_serves_nobody() {
    let me = me().unwrap();
    let other = ProcId { start: me.start + 1, ..me };
    assert_eq!(served(other, None), None);
    assert_eq!(served(ProcId { pid: u32::MAX, start: 1 }, None), None);
}
