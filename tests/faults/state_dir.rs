//! Hostile things in place of the state directory: `poold` touches nothing that it does not trust.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::signal::Signal;

use super::support::is_root;
use crate::harness::{Output, Pool, Program};

/// Starts `poold`, which must exit by itself with `code`; returns its log.
#[track_caller]
fn refused(pool: &Pool, code: i32) -> String {
    pool.start(Program::Poold);
    assert_eq!(pool.await_end(Program::Poold), code, "{}", pool.logs());
    pool.logs()
}

#[track_caller]
fn works(pool: &Pool) {
    pool.start_poold();
    pool.end(Program::Poold, Signal::SIGTERM);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_state_directory_that_is_open_to_others_is_refused() {
    let pool = Pool::bare("");
    fs::create_dir(pool.state()).unwrap();
    for bits in [0o777, 0o770, 0o755, 0o701] {
        fs::set_permissions(pool.state(), fs::Permissions::from_mode(bits)).unwrap();
        let said = refused(&pool, 2);
        assert!(said.contains("chmod 700"), "{said}");
        assert_eq!((mode(&pool.state()), fs::read_dir(pool.state()).unwrap().count()), (bits, 0));
    }
    fs::set_permissions(pool.state(), fs::Permissions::from_mode(0o700)).unwrap();
    works(&pool);
    for path in [pool.state(), pool.state().join("run")] {
        assert_eq!(mode(&path), 0o700);
    }
    assert_eq!(mode(&pool.database()), 0o600);
}

#[test]
fn a_state_directory_that_is_none_is_refused() {
    let pool = Pool::bare("");
    let elsewhere = pool.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, pool.state()).unwrap();
    refused(&pool, 2);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    fs::remove_file(pool.state()).unwrap();
    fs::write(pool.state(), "precious").unwrap();
    refused(&pool, 2);
    assert_eq!(fs::read(pool.state()).unwrap(), b"precious");
}

#[test]
fn a_state_directory_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let pool = Pool::bare("");
    fs::create_dir(pool.state()).unwrap();
    fs::set_permissions(pool.state(), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(pool.state(), Some(65534), Some(65534)).unwrap();
    let said = refused(&pool, 2);
    assert!(said.contains("65534"), "{said}");
    assert_eq!(fs::read_dir(pool.state()).unwrap().count(), 0);
}

#[test]
fn what_is_in_the_place_of_the_socket_is_left_alone() {
    let pool = Pool::bare("");
    works(&pool);
    let socket = pool.socket();
    assert!(!socket.exists(), "it was removed at the end");
    fs::write(&socket, "precious").unwrap();
    let said = refused(&pool, 1);
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(fs::read(&socket).unwrap(), b"precious");
    fs::remove_file(&socket).unwrap();

    let target = pool.path("target");
    let listener = UnixListener::bind(&target).unwrap();
    symlink(&target, &socket).unwrap();
    let said = refused(&pool, 1);
    assert!(said.contains("not a socket"), "{said}");
    assert!(target.exists() && fs::symlink_metadata(&socket).unwrap().is_symlink());
    fs::remove_file(&socket).unwrap();
    drop(listener);

    let listener = UnixListener::bind(&socket).unwrap();
    let said = refused(&pool, 1);
    assert!(said.contains("another program listens"), "{said}");
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    drop(listener);
    // Now nobody listens on it, as after a crash.
    works(&pool);
}

#[test]
fn l01_a_second_poold_touches_nothing() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let first = pool.pid(Program::Poold).unwrap();
    let identity = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino())).unwrap();
    let before = (identity(&pool.socket()), identity(&pool.database()));
    let said = refused(&pool, 4);
    assert!(said.contains(&format!("pid {first}")), "{said}");
    assert_eq!((identity(&pool.socket()), identity(&pool.database())), before);
    assert_eq!(pool.lifecycle(&id), "live");
    assert_eq!(pool.json(&["status"])["pid"], first);
}

#[test]
fn a_state_directory_is_the_same_by_whatever_path_and_place() {
    let pool = Pool::bare("");
    let real = pool.path("real");
    let link = pool.path("link");
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let ctl = |dir: &Path, args: &[&str]| {
        let mut command = pool.poolctl();
        command.env("POOL_STATE_DIR", dir.join("s")).args(["--timeout", "40s"]);
        Output::of(command.args(args), b"").expect(0)
    };
    ctl(&real, &["up"]);
    for name in ["one", "two"] {
        ctl(&real, &["new", name, "--", "sleep", "1000"]);
    }
    ctl(&real, &["down"]);
    ctl(&link, &["up"]);
    ctl(&link, &["kill", "one"]);
    ctl(&link, &["down"]);
    let moved = pool.path("moved");
    fs::rename(&real, &moved).unwrap();
    ctl(&moved, &["up"]);
    ctl(&moved, &["kill", "two"]);
    ctl(&moved, &["down", "--stop-sessions"]);
}
