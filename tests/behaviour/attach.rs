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
fn who_only_watches_types_nothing() {
    let pool = Pool::new();
    let got = pool.path("got");
    let id = pool.script("web", &format!("stty raw -echo; : >{0}; exec cat >{0}", got.display()));
    wait_until("the program reads", PATIENCE, || got.exists() && pool.show(&id)["current_command"] == "cat");
    let outer = Outer::run(&pool, "exec poolctl attach web --read-only");
    await_clients(&pool, &id, 1);
    // A client's keys are handled in their order: once it is detached, the others were. What is typed before it has set its
    // terminal is lost.
    wait_until("it is detached", PATIENCE, || {
        outer.tmux(&["send-keys", "-l", "lost"]);
        outer.tmux(&["send-keys", "C-b", "d"]);
        pool.show(&id)["attached_clients"] == 0
    });
    pool.ok(&["keys", "web", "k"]);
    pool.await_file("got", |bytes| !bytes.is_empty());
    assert_eq!(fs::read_to_string(&got).unwrap(), "k");
}
