//! Under the init a program has the same terminal as in a bare pane.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::harness::{PATIENCE, Pool, Talk, is_stopped, skipped, wait_until};

/// Path of a program; a counted skip where it is not installed.
fn installed(name: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').map(|dir| format!("{dir}/{name}")).find(|file| Path::new(file).is_file());
    if found.is_none() {
        skipped(&format!("{name} is not installed"));
    }
    found
}

fn await_screen(pool: &Pool, session: &str, holds: impl Fn(&str) -> bool) {
    let mut last = String::new();
    wait_until("the screen is as expected", PATIENCE, || {
        last = pool.ok(&["capture", session]);
        holds(&last)
    });
}

#[test]
fn ctrl_c_ends_the_program_and_the_record_says_how() {
    let pool = Pool::new();
    pool.script("trapped", "trap 'exit 3' INT; touch ready; while :; do sleep 0.05; done");
    pool.ok(&["new", "plain", "--", "sleep", "1000"]);
    let ready = |name: &str| pool.dir(name).join("work/ready").exists();
    wait_until("the trap is set", PATIENCE, || ready("trapped"));
    for name in ["trapped", "plain"] {
        pool.ok(&["keys", name, "C-c"]);
    }
    pool.ctl(&["wait", "trapped", "--for", "exit"]).expect(3);
    pool.ctl(&["wait", "plain", "--for", "exit"]).expect(130);
    let shown = pool.show("plain");
    assert_eq!((&shown["reason"], &shown["exit"]["signal"]), (&"exited".into(), &2.into()), "{shown}");
}

#[test]
fn ctrl_z_does_nothing_to_a_program_without_a_shell() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "plain", "--", "sleep", "1000"]);
    let (agent, _) = pool.pane_pids(&id);
    for _ in 0..3 {
        pool.ok(&["keys", &id, "C-z"]);
    }
    wait_until("it runs", PATIENCE, || !is_stopped(agent));
    assert_eq!(pool.lifecycle(&id), "live");
    pool.ok(&["keys", &id, "C-c"]);
    pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit"]).expect(130);
}

#[test]
fn a_shell_has_job_control() {
    let Some(bash) = installed("bash") else { return };
    let pool = Pool::new();
    let id = pool.ok(&["new", "sh", "--", &bash, "--norc", "-i"]);
    pool.ok(&["send", &id, "sleep 1000"]);
    wait_until("sleep is in front", PATIENCE, || pool.show(&id)["current_command"] == "sleep");
    pool.ok(&["keys", &id, "C-z"]);
    pool.ok(&["send", &id, "echo back-$((6*7)) $(jobs | grep -c Stopped)"]);
    await_screen(&pool, &id, |screen| screen.contains("back-42 1"));
    pool.ok(&["send", &id, "fg"]);
    wait_until("sleep is in front again", PATIENCE, || pool.show(&id)["current_command"] == "sleep");
    pool.ok(&["keys", &id, "C-c"]);
    pool.ok(&["send", &id, "exit 7"]);
    pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit"]).expect(7);
}

#[test]
fn a_new_size_reaches_the_program() {
    let pool = Pool::new();
    let script = "stty size >first; trap 'stty size >size' WINCH; touch ready; while :; do sleep 0.05; done";
    let id = pool.ok(&["new", "sized", "--size", "90x30", "--", "sh", "-c", script]);
    let work = pool.dir(&id).join("work");
    pool.await_file(work.join("ready"), |_| true);
    assert_eq!(pool.await_file(work.join("first"), |bytes| !bytes.is_empty()), b"30 90\n");
    let shown = || pool.show(&id)["size"].clone();
    // A client imposes its own size, and what it leaves gets the session's again.
    let mut client = Talk::attached(&pool, "=sized:");
    client.say("refresh-client -C 70,20");
    pool.await_file(work.join("size"), |bytes| bytes == b"20 70\n");
    wait_until("it is shown", PATIENCE, || shown() == json!({"cols": 70, "rows": 20}));
    assert_eq!(pool.show(&id)["attached_clients"], 1);
    drop(client);
    pool.await_file(work.join("size"), |bytes| bytes == b"30 90\n");
    wait_until("it is shown", PATIENCE, || shown() == json!({"cols": 90, "rows": 30}));
    pool.tmux_text(&["resize-window", "-t", "=sized:", "-x", "101", "-y", "33"]);
    pool.await_file(work.join("size"), |bytes| bytes == b"33 101\n");
    wait_until("it is shown", PATIENCE, || shown() == json!({"cols": 101, "rows": 33}));
}

#[test]
fn less_draws_and_quits() {
    if installed("less").is_none() {
        return;
    }
    let pool = Pool::new();
    let text: String = (1..500).map(|n| format!("row {n}\n")).collect();
    std::fs::write(pool.path("text"), text).unwrap();
    let id = pool.ok(&["new", "pager", "--", "less", pool.path("text").to_str().unwrap()]);
    await_screen(&pool, &id, |screen| screen.starts_with("row 1\n"));
    wait_until("it is the current command", PATIENCE, || pool.show(&id)["current_command"] == "less");
    pool.ok(&["keys", &id, "G"]);
    await_screen(&pool, &id, |screen| screen.contains("row 499"));
    pool.ok(&["keys", &id, "q"]);
    pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit"]).expect(0);
}

#[test]
fn vi_draws_edits_and_quits() {
    let Some(vi) = installed("vi") else { return };
    let pool = Pool::new();
    let file = pool.path("edited");
    let id = pool.ok(&["new", "editor", "--", &vi, "-u", "NONE", file.to_str().unwrap()]);
    await_screen(&pool, &id, |screen| screen.lines().filter(|line| *line == "~").count() > 10);
    pool.ok(&["keys", &id, "i", "h", "i", "Escape"]);
    await_screen(&pool, &id, |screen| screen.starts_with("hi\n"));
    pool.ok(&["keys", &id, ":", "w", "q", "Enter"]);
    pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit"]).expect(0);
    assert_eq!(std::fs::read(&file).unwrap(), b"hi\n");
}

#[test]
fn a_full_screen_program_draws_and_quits() {
    let Some(top) = installed("top") else { return };
    let pool = Pool::new();
    let id = pool.ok(&["new", "monitor", "--", &top]);
    await_screen(&pool, &id, |screen| screen.contains("PID") && screen.contains("COMMAND"));
    wait_until("it is the current command", PATIENCE, || pool.show(&id)["current_command"] == "top");
    pool.ok(&["keys", &id, "q"]);
    pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit"]).expect(0);
}

#[test]
fn the_current_command_is_the_programs() {
    let pool = Pool::new();
    let id = pool.script("web", "sleep 1000; exit 0");
    wait_until("sleep is in front", Duration::from_secs(20), || {
        pool.show(&id)["current_command"] == "sleep" || pool.show(&id)["current_command"] == "sh"
    });
    assert_ne!(pool.show(&id)["current_command"], "reaper", "the init is not in front");
}
