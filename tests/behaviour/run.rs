//! `run`: its output, its exit code, and what becomes of its session.

use nix::sys::signal::Signal;

use crate::harness::{PATIENCE, Pool, Talk, eventually, send_signal};

#[test]
fn run_streams_and_ends_like_its_program() {
    let pool = Pool::new();
    let run = pool.ctl(&["run", "--rm", "--", "sh", "-c", "echo one; echo two; exit 9"]).expect(9);
    assert_eq!(run.stdout.lines().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
    let silent = pool.ctl(&["run", "kept", "--no-stream", "--", "echo", "text"]).expect(0);
    assert_eq!(silent.stdout, "");
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1);
    let document = pool.ctl(&["--json", "run", "--", "false"]).expect(1).json();
    assert_eq!(document["exit"]["code"], 1);
    pool.ok(&["rm", "--all", "--stopped"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
}

#[test]
fn run_removes_neither_what_waits_for_workers_nor_a_session_that_was_there() {
    let pool = Pool::new();
    let sends = format!("'{}' send - --kind build kept", env!("CARGO_BIN_EXE_poolctl"));
    let run = pool.ctl(&["run", "own", "--rm", "--", "sh", "-c", &sends]).expect(0);
    assert!(run.stderr.contains("own stays for now: 1 message of own is not worked yet;"), "{}", run.stderr);
    pool.ctl(&["run", "prompted", "--rm", "--prompt", "hi", "--", "true"]).expect(0);
    pool.ctl(&["show", "prompted"]).expect(3);
    assert_eq!(pool.lines(&["queue", "ls", "own"])[0]["kind"], "build");
    pool.ctl(&["work", "own", "--until-empty", "--", "true"]).expect(0);
    pool.ctl(&["run", "durable", "--", "sh", "-c", &sends]).expect(0);
    let run = pool.ctl(&["-v", "run", "--rm", "--reuse", "durable", "--", "true"]).expect(0);
    assert!(run.stderr.contains("durable was there already, and stays"), "{}", run.stderr);
    assert_eq!(pool.lines(&["queue", "ls", "durable"])[0]["kind"], "build");
}

#[test]
fn run_says_what_ended_its_session() {
    let pool = Pool::with("[pool]\ncgroup = 'off'\n[reaper]\ngrace = '200ms'\ninterval = '100ms'\n");
    let hog = "(head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 90000000";
    for (bound, script, why) in [
        (["--max-runtime", "100ms"], "exec sleep 1000", "it ran longer than --max-runtime 100ms"),
        (["--limit", "mem=64M"], hog, "it exceeded --limit mem=64M"),
    ] {
        for more in [&[][..], &["--rm"]] {
            let words = [&["run", "web", "--cwd", "own"], &bound[..], more, &["--", "sh", "-c", script]];
            let ran = pool.ctl(&words.concat());
            assert_eq!((ran.code, ran.stderr.trim_end()), (143, &*format!("poolctl: web was ended: {why}")));
            pool.ctl(&["rm", "web"]).expect(if more.is_empty() { 0 } else { 3 });
        }
    }
    let ran = pool.ctl(&["run", "web", "--", "sh", "-c", "kill -TERM $$"]).expect(143);
    assert_eq!(ran.stderr, "", "it ended by itself");
}

#[test]
fn run_says_that_tmux_took_its_session_away() {
    let pool = Pool::new();
    let mut run = Talk::start(pool.poolctl().args(["run", "web", "--", "sleep", "1000"]));
    eventually("it runs", PATIENCE, || (pool.ctl(&["show", "web"]).code == 0).then_some(()));
    pool.await_lifecycle("web", "live");
    send_signal(pool.tmux_pid().unwrap(), Signal::SIGKILL);
    assert_eq!(run.await_end(), Some(129));
    assert!(run.errors().contains("poolctl: web was ended: its tmux server went away"), "{}", run.errors());
}
