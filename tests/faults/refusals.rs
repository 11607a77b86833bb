//! Impossible requests are refused with the contract's code and advice on what to do.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::harness::{PATIENCE, Pool, Program, eventually};

#[test]
fn without_tmux_a_new_session_says_what_to_install() {
    let pool = Pool::bare("");
    let bin = pool.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink("/bin/sh", bin.join("sh")).unwrap();
    for program in Program::ALL {
        let mut command = pool.daemon(program);
        command.env("PATH", &bin);
        pool.start_as(program, command);
    }
    pool.await_poold();
    let refused = pool.ctl(&["new", "web", "--", "true"]).expect(7);
    assert!(refused.stderr.contains("install tmux"), "{}", refused.stderr);
    assert_eq!(pool.lifecycle("web"), "failed");
    let status = eventually("the watcher says so too", PATIENCE, || {
        let status = pool.ctl(&["status"]);
        (status.code == 1 && status.stdout.contains("tmux")).then_some(status)
    });
    assert_eq!(status.code, 1);
    pool.ok(&["rm", "web"]);
}

#[test]
fn a_tmux_that_is_too_old_is_refused_with_what_to_do() {
    let pool = Pool::bare("");
    let binary = pool.path("tmux");
    fs::write(
        &binary,
        "#!/bin/sh\n[ \"$1\" = -V ] && exec echo tmux 3.1c\necho \"$*\" >>\"${0%/*}/asked\"\n",
    )
    .unwrap();
    fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
    pool.configure(&format!("[tmux]\nbinary = '{}'\n", binary.display()));
    for program in Program::ALL {
        pool.start(program);
    }
    pool.await_poold();
    let advice = |text: &str| {
        text.contains("tmux 3.1 is too old")
            && text.contains("3.2 or newer")
            && text.contains("[tmux] binary")
    };
    let refused = pool.ctl(&["new", "web", "--", "true"]).expect(7);
    assert!(advice(&refused.stderr), "{}", refused.stderr);
    assert_eq!(pool.lifecycle("web"), "failed");
    let status = pool.ctl(&["status"]).expect(1).stdout;
    let is_problem = |line: &str| line.starts_with("problem: tmux 3.1 is too old") && advice(line);
    assert!(status.lines().any(is_problem), "{status}");
    assert!(!pool.path("asked").exists(), "it was used for nothing else");
    pool.ok(&["rm", "web"]);
    let ends = pool.lines(&["events", "--kind", "generator_ended"]);
    assert_eq!(ends.len(), 1, "its only run has one end: {ends:?}");
}

#[test]
fn what_cannot_work_is_refused_by_its_code() {
    let pool = Pool::with("[pool]\nmax_sessions = 2\n[reaper]\ngrace = '200ms'\n");
    let nowhere = pool.path("nowhere");
    let refused = pool.ctl(&["new", "lost", "--cwd", nowhere.to_str().unwrap(), "--", "true"]).expect(2);
    assert!(refused.stderr.contains("nowhere"), "{}", refused.stderr);
    pool.ctl(&["show", "lost"]).expect(3);
    pool.script("one", "exec cat");
    pool.script("two", "exec cat");
    let full = pool.ctl(&["new", "three", "--", "cat"]).expect(5);
    assert!(full.stderr.contains('2'), "it says how many there may be: {}", full.stderr);
    pool.ctl(&["show", "three"]).expect(3);
    pool.ok(&["kill", "two"]);
    pool.ctl(&["send", "two", "text"]).expect(5);
    assert_eq!(pool.lines(&["queue", "ls", "two"]).len(), 0);
    pool.script("three", "exec cat");
    pool.ctl(&["restart", "two"]).expect(5);
}
