//! The log writer as a process.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use process::log_writer::LOG_NAME;

use crate::pane::{myself, wait_until};

crate::tests![
    the_output_is_appended_in_private_files,
    the_lock_says_when_the_log_is_whole,
    only_the_end_of_its_input_ends_it,
    a_full_disk_never_stops_the_reading,
];

fn writer(dir: &std::path::Path) -> Child {
    myself("log", dir).stdin(Stdio::piped()).spawn().unwrap()
}

fn finish(mut writer: Child) {
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
}

fn the_output_is_appended_in_private_files() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("sess_1");
    for text in ["first\n", "second\n"] {
        let mut writer = writer(&dir);
        writer.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        finish(writer);
    }
    let log = dir.join(LOG_NAME);
    assert_eq!(fs::read_to_string(&log).unwrap(), "first\nsecond\n");
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&log)), (0o700, 0o600));
}

fn the_lock_says_when_the_log_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join(LOG_NAME);
    let mut first = writer(dir.path());
    first.stdin.as_mut().unwrap().write_all(b"one ").unwrap();
    let holds = |text: &str| fs::read_to_string(&log).is_ok_and(|found| found == text);
    wait_until("the first output", || holds("one "));
    let reader = File::open(&log).unwrap();
    assert!(reader.try_lock_shared().is_err(), "more may come");
    let mut second = writer(dir.path());
    second.stdin.as_mut().unwrap().write_all(b"two ").unwrap();
    wait_until("the second writer, beside the first", || holds("one two "));
    finish(first);
    second.stdin.as_mut().unwrap().write_all(b"three ").unwrap();
    wait_until("the second writer, alone", || holds("one two three "));
    assert!(reader.try_lock_shared().is_err(), "the second has the lock now");
    finish(second);
    reader.try_lock_shared().unwrap();
}

fn only_the_end_of_its_input_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join(LOG_NAME);
    let mut writer = writer(dir.path());
    writer.stdin.as_mut().unwrap().write_all(b"a").unwrap();
    wait_until("the first output", || fs::read(&log).is_ok_and(|found| found == b"a"));
    let id = identity::identify(writer.id()).unwrap().unwrap();
    let handle = Handle::open(id).unwrap().unwrap();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        assert!(handle.signal(signal).unwrap());
    }
    writer.stdin.as_mut().unwrap().write_all(b"b").unwrap();
    finish(writer);
    assert_eq!(fs::read(&log).unwrap(), b"ab");
}

fn a_full_disk_never_stops_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    symlink("/dev/full", dir.path().join(LOG_NAME)).unwrap();
    let mut writer = writer(dir.path());
    writer.stdin.as_mut().unwrap().write_all(&vec![b'x'; 3 << 20]).unwrap();
    finish(writer);
}
