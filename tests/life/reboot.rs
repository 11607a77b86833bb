//! Everything dies at once, as when the machine is switched off; the pool comes back with all it held.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{KEEPER, await_lines, running, states};
use crate::harness::{PATIENCE, Pool, Program, gone, send_signal, wait_until};

const CONFIG: &str = "[pool]\nidle_quiet = '300ms'\nidle_settle = '300ms'\n[restore]\nspacing = '50ms'\n[reaper]\ngrace = '300ms'\n";

/// Kills the server and all daemons together; nothing of theirs runs on.
#[track_caller]
fn switch_off(pool: &Pool) {
    let server = pool.tmux_pid().unwrap();
    let marked = pool.marked();
    Program::ALL
        .into_iter()
        .filter_map(|program| pool.pid(program))
        .for_each(|pid| send_signal(pid, Signal::SIGSTOP));
    send_signal(server, Signal::SIGKILL);
    Program::ALL.into_iter().for_each(|program| pool.kill9(program));
    wait_until("the server is gone", PATIENCE, || gone(server));
    marked.iter().for_each(|(pid, _)| send_signal(*pid, Signal::SIGKILL));
    wait_until("all is gone", PATIENCE, || pool.marked().is_empty());
}

/// Sessions with everything they can have, one of them parked.
#[track_caller]
fn populated(config: &str) -> (Pool, Vec<String>) {
    let pool = Pool::with(&format!("{config}{KEEPER}"));
    let ids: Vec<String> = (0..5)
        .map(|n| {
            let (name, label) = (format!("s{n}"), format!("n={n}"));
            let id = pool.ok(&[
                "new",
                &name,
                "--agent",
                "keeper",
                "--workspace",
                &format!("w{n}"),
                "--label",
                &label,
            ]);
            pool.ok(&["send", &id, "--wait", "done", &format!("before {n}")]);
            pool.ok(&["send", &id, "--kind", "observation", "for a worker"]);
            id
        })
        .collect();
    for (n, id) in ids.iter().enumerate() {
        await_lines(&pool, id, "got", &[&format!("before {n}")]);
    }
    pool.ok(&["park", "--force", "s4"]);
    (pool, ids)
}

const KEPT: [&str; 12] = [
    "id",
    "name",
    "workspace",
    "dir",
    "agent",
    "command",
    "cwd",
    "labels",
    "queue",
    "total_requests",
    "created_at",
    "policy",
];

fn kept(shown: &Value) -> Vec<Value> {
    KEPT.iter().map(|key| shown[*key].clone()).collect()
}

#[track_caller]
fn all_back(pool: &Pool, ids: &[String], before: &[Value]) {
    for (n, (id, before)) in ids.iter().zip(before).enumerate() {
        let after = pool.show(id);
        assert_eq!(kept(&after), kept(before), "{KEPT:?}");
        let text = format!("after {n}");
        pool.ok(&["send", id, "--wait", "done", &text]);
        await_lines(pool, id, "got", &[&format!("before {n}"), &text]);
        wait_until("its log goes on", PATIENCE, || {
            let log = pool.ok(&["logs", id]);
            log.contains(&format!("before {n}")) && log.contains(&text)
        });
        assert_eq!(pool.lines(&["queue", "ls", id, "--kind", "observation"]).len(), 1);
    }
    assert_eq!(running(pool).len(), ids.len());
}

#[test]
fn w06_restore_brings_back_what_a_reboot_took() {
    let (pool, ids) = populated(CONFIG);
    let before: Vec<Value> = ids.iter().map(|id| pool.show(id)).collect();
    switch_off(&pool);
    pool.start_all();
    wait_until("it is known what was lost", PATIENCE, || states(&pool).get("lost") == Some(&4));
    assert_eq!((states(&pool).get("parked"), running(&pool).len()), (Some(&1), 0));
    assert!(pool.ok(&["logs", &ids[0]]).contains("before 0"), "its log is there while it does not run");
    let restored = pool.lines(&["--timeout", "60s", "restore", "--all"]);
    assert_eq!(restored.len(), 4, "{restored:#?}");
    assert_eq!((states(&pool).get("live"), states(&pool).get("parked")), (Some(&4), Some(&1)));
    for id in &ids[..4] {
        assert_eq!(pool.show(id)["incarnations"], 2);
    }
    all_back(&pool, &ids, &before);
    assert!(pool.ok(&["restore", "--all"]).contains("no session was lost"));
}

#[test]
fn w06_what_was_lost_may_be_restored_at_every_start() {
    let (pool, ids) = populated(&CONFIG.replace("[restore]\n", "[restore]\non_start = true\n"));
    let before: Vec<Value> = ids.iter().map(|id| pool.show(id)).collect();
    switch_off(&pool);
    pool.start_all();
    for id in &ids[..4] {
        assert_eq!(pool.await_lifecycle(id, "live")["incarnations"], 2);
    }
    assert_eq!(pool.lifecycle(&ids[4]), "parked");
    all_back(&pool, &ids, &before);
}

#[test]
fn w06_one_that_was_lost_takes_messages_and_is_restored_by_name() {
    let (pool, ids) = populated(CONFIG);
    switch_off(&pool);
    // The files of incarnations are gone too, as after a real reboot where they are kept in memory.
    let run = pool.state().join("run");
    for file in fs::read_dir(&run).unwrap().flatten() {
        if file.path().is_file() {
            drop(fs::remove_file(file.path()));
        }
    }
    pool.start_all();
    pool.await_lifecycle(&ids[0], "lost");
    let message = pool.ok(&["send", &ids[0], "while away"]);
    assert_eq!(pool.json(&["queue", "show", &ids[0], &message])["state"], "queued");
    assert_eq!(pool.lifecycle(&ids[0]), "lost", "a prompt alone does not start what was lost");
    pool.ok(&["restore", "s0"]);
    await_lines(&pool, &ids[0], "got", &["before 0", "while away"]);
    pool.await_lifecycle(&ids[1], "lost");
    assert_eq!(pool.dir(&ids[0]), pool.state().join("sessions").join(&ids[0]));
}
