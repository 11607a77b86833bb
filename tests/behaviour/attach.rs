//! `attach` from inside of tmux: another server's terminal, and one of the pool's own.

use std::fs;

use crate::harness::{Outer, PATIENCE, Pool, wait_until};

/// Waits until a session has so many clients attached.
#[track_caller]
fn await_clients(pool: &Pool, session: &str, clients: u64) {
    wait_until(&format!("{clients} clients of {session}"), PATIENCE, || {
        pool.show(session)["attached_clients"] == clients
    });
}

#[test]
fn attach_within_another_tmux_nests_and_says_so() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let said = pool.path("said");
    let outer = Outer::run(&pool, &format!("exec poolctl attach web 2>{}", said.display()));
    await_clients(&pool, &id, 1);
    let text = fs::read_to_string(&said).unwrap();
    assert!(text.contains("inside another tmux") && text.contains("prefix"), "{text}");
    assert_eq!(outer.tmux(&["list-windows", "-F", "#{window_id}"]).expect(0).text().lines().count(), 1);
    drop(outer);
    await_clients(&pool, &id, 0);
}

#[test]
fn attach_in_a_window_opens_one_in_the_tmux_around_it() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let said = pool.path("said");
    let line = format!("poolctl attach web --window 2>{}; exec sleep 1000", said.display());
    let outer = Outer::run(&pool, &line);
    await_clients(&pool, &id, 1);
    let windows = outer.tmux(&["list-windows", "-F", "#{window_name} #{window_active}"]).expect(0);
    let windows: Vec<&str> = windows.text().lines().collect();
    assert_eq!((windows.len(), windows[1]), (2, "web 1"), "{windows:?}");
    assert_eq!(fs::read_to_string(&said).unwrap(), "", "its prefix is no surprise in a window of its own");
}

#[test]
fn attach_within_the_pools_own_tmux_switches_the_client() {
    let pool = Pool::new();
    let (first, second) = (pool.ok(&["new", "first", "--agent", "shell"]), pool.script("second", "exec cat"));
    let _outer = Outer::run(&pool, "exec poolctl attach first");
    await_clients(&pool, &first, 1);
    let clients = || {
        let all = pool.tmux_text(&["list-clients", "-F", "#{session_name} #{client_readonly}"]);
        all.lines().filter(|line| !line.starts_with('_')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(clients(), ["first 0"]);
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    pool.ok(&["send", "first", "--wait", "done", &format!("{ctl} attach second --read-only")]);
    await_clients(&pool, &second, 1);
    await_clients(&pool, &first, 0);
    assert_eq!(clients(), ["second 1"], "the same client, and it only watches");
}

#[test]
fn attach_in_a_session_that_nobody_sees_is_refused_and_moves_nobody() {
    let pool = Pool::new();
    pool.ok(&["new", "unseen", "--agent", "shell"]);
    let (seen, target) = (pool.script("seen", "exec cat"), pool.script("target", "exec cat"));
    let _outer = Outer::run(&pool, "exec poolctl attach seen");
    await_clients(&pool, &seen, 1);
    let clients = || pool.tmux_text(&["list-clients", "-F", "#{client_name} #{session_name}"]);
    let before = clients();
    let (ctl, said) = (env!("CARGO_BIN_EXE_poolctl"), pool.path("said"));
    let line = format!("{ctl} attach target 2>{}", said.display());
    let sent = pool.ctl(&["send", "unseen", "--wait", "done", &line]);
    assert!(fs::read_to_string(&said).unwrap().contains("nobody is attached"), "{sent:?}");
    assert_eq!(clients(), before);
    assert_eq!(pool.show(&target)["attached_clients"], 0);
}

#[test]
fn attach_in_a_program_of_the_pool_switches_the_client_and_does_not_nest() {
    let pool = Pool::new();
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    let (go, second) = (pool.path("go"), pool.script("second", "exec cat"));
    let line = format!("until [ -e {} ]; do sleep 0.1; done; {ctl} attach second; exec cat", go.display());
    let first = pool.script("first", &line);
    let _outer = Outer::run(&pool, "exec poolctl attach first");
    await_clients(&pool, &first, 1);
    fs::write(&go, "").unwrap();
    await_clients(&pool, &second, 1);
    await_clients(&pool, &first, 0);
}

#[test]
fn who_only_watches_types_nothing() {
    let pool = Pool::new();
    let got = pool.path("got");
    let id = pool.script("web", &format!("stty raw -echo; : >{0}; exec cat >{0}", got.display()));
    wait_until("the program reads", PATIENCE, || got.exists() && pool.show(&id)["current_command"] == "cat");
    let outer = Outer::run(&pool, "exec poolctl attach web --read-only");
    await_clients(&pool, &id, 1);
    // A client's keys are handled in their order: once it is detached, the others were. What is typed before it has set
    // its terminal is lost.
    wait_until("it is detached", PATIENCE, || {
        outer.tmux(&["send-keys", "-l", "lost"]);
        outer.tmux(&["send-keys", "C-b", "d"]);
        pool.show(&id)["attached_clients"] == 0
    });
    pool.ok(&["keys", "web", "k"]);
    pool.await_file("got", |bytes| !bytes.is_empty());
    assert_eq!(fs::read_to_string(&got).unwrap(), "k");
}
