//! Many panes, much output, many renames: the pool's view stays exact, and the server survives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;

use super::support::{NO_SWEEP, assert_exact, await_connection, await_event};
use crate::harness::{Chance, PATIENCE, Pool, Program, alive, wait_until};

/// Runs a list of tmux commands of any length.
#[track_caller]
fn source(pool: &Pool, commands: &str) {
    std::fs::write(pool.path("commands"), commands).unwrap();
    pool.tmux_text(&["source-file", pool.path("commands").to_str().unwrap()]);
}

#[test]
fn t01_a_snapshot_of_five_hundred_panes_is_exact() {
    let pool = Pool::with("[reaper]\ngrace = \"500ms\"\n");
    pool.script("ours", "exec sleep 1000");
    let mut commands = String::new();
    for session in 0..5 {
        commands.push_str(&format!("new-session -d -s many{session} -x 200 -y 50 'exec sleep 1000'\n"));
        for window in 0..50 {
            if window > 0 {
                commands.push_str(&format!("new-window -d -t =many{session}: 'exec sleep 1000'\n"));
            }
            commands.push_str(&format!("split-window -d -t =many{session}:{window} 'exec sleep 1000'\n"));
        }
    }
    source(&pool, &commands);
    let listed = assert_exact(&pool);
    assert_eq!((listed.sessions(), listed.panes()), (6, 501));
    let mut commands = "kill-session -t =many0\nrename-session -t =many1 'Renamed: once'\n".to_owned();
    for window in (0..50).step_by(2) {
        commands.push_str(&format!("kill-window -t =many2:{window}\n"));
        commands.push_str(&format!("respawn-pane -k -t =many3:{window}.0 'exec sleep 1001'\n"));
        commands.push_str(&format!("swap-pane -d -s =many4:{window}.0 -t =many3:{window}.1\n"));
        commands.push_str(&format!("resize-window -t =many4:{window} -x 120 -y 40\n"));
    }
    source(&pool, &commands);
    let listed = assert_exact(&pool);
    assert_eq!((listed.sessions(), listed.panes()), (5, 351));
    assert_eq!(pool.lifecycle("ours"), "live");
    pool.tmux_text(&["kill-session", "-t", "=ours"]);
    await_event(&pool, "session_stopped", |_| true);
}

#[test]
fn t08_a_flood_of_output_hides_no_change() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec sleep 1000");
    for flood in ["flood1", "flood2"] {
        pool.tmux_text(&["new-session", "-d", "-s", flood, "exec yes"]);
    }
    await_connection(&pool, "native");
    for round in 0..5 {
        let name = format!("theirs{round}");
        pool.tmux_text(&["new-session", "-d", "-s", &name, "exec sleep 1001"]);
        await_event(&pool, "foreign_seen", |event| event["name"] == name.as_str());
        pool.tmux_text(&["rename-session", "-t", &format!("={name}"), &format!("{name}x")]);
        await_event(&pool, "foreign_seen", |event| event["name"] == format!("{name}x").as_str());
        pool.tmux_text(&["kill-session", "-t", &format!("={name}x")]);
        await_event(&pool, "foreign_gone", |event| event["name"] == format!("{name}x").as_str());
    }
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    await_event(&pool, "session_stopped", |event| event["session"] == id.as_str());
    assert_exact(&pool);
    for flood in ["=flood1", "=flood2"] {
        pool.tmux_text(&["kill-session", "-t", flood]);
    }
}

#[test]
fn t05_a_rename_storm_survives_many_watchers() {
    const WATCHERS: usize = 12;
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec sleep 1000");
    for name in ["a", "b", "c"] {
        pool.tmux_text(&["new-session", "-d", "-s", name, "exec sleep 1001"]);
    }
    let ids = pool.tmux_text(&["list-sessions", "-f", "#{m:[abc],#{session_name}}", "-F", "#{session_id}"]);
    let (server, stop) = (pool.tmux_pid().unwrap(), AtomicBool::new(false));
    let storm = || {
        let mut renames = 0;
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let one = |n: usize, id: &str| format!("rename-session -t '{id}' r{n}-{}\n", round % 7);
            let commands: String =
                (0..40).flat_map(|_| ids.lines().enumerate()).map(|(n, id)| one(n, id)).collect();
            source(&pool, &commands);
            renames += 40 * 3;
        }
        renames
    };
    let renames: usize = thread::scope(|scope| {
        let storm = scope.spawn(storm);
        // The storm ends even if the test fails in here.
        let _stopped = Stops(&stop);
        for round in 0..WATCHERS {
            pool.end(Program::Watch, if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGTERM });
            pool.start(Program::Watch);
            wait_until("it has seen tmux", PATIENCE, || {
                let status = pool.status();
                status["tmux"]["state"] == "up" && !status["tmux"]["connection"].is_null()
            });
        }
        stop.store(true, Ordering::Relaxed);
        storm.join().unwrap()
    });
    assert!(renames > WATCHERS, "there was a storm: {renames}");
    assert!(alive(server) && pool.tmux_pid() == Some(server), "the server lives");
    await_connection(&pool, "native");
    assert_exact(&pool);
    wait_until("only the last watcher is attached", PATIENCE, || {
        let clients = pool.tmux_text(&["list-clients", "-F", "#{session_name}"]);
        clients.lines().count() <= 1
    });
    let kinds = pool.event_kinds(&id);
    assert!(!kinds.iter().any(|kind| kind.contains("drain") || kind.contains("stop")), "{kinds:?}");
    assert_eq!(pool.status()["foreign"].as_array().unwrap().len(), 3);
}

/// Sets the flag on drop.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn t02_a_storm_of_changes_ends_in_exactly_what_there_is() {
    let pool = Pool::with(NO_SWEEP);
    pool.script("web", "exec sleep 1000");
    await_connection(&pool, "native");
    let mut chance = Chance::new(7);
    for round in 0..3 {
        let mut commands = String::new();
        for n in 0..60 {
            let name = format!("s{round}-{n}");
            commands.push_str(&format!("new-session -d -s {name} -x 100 -y 30 'exec sleep 1000'\n"));
            match chance.below(4) {
                0 => commands.push_str(&format!("kill-session -t ={name}\n")),
                1 => commands.push_str(&format!("rename-session -t ={name} x{name}\n")),
                2 => commands.push_str(&format!("new-window -t ={name}: 'exec sleep 1000'\n")),
                _ => {}
            }
        }
        source(&pool, &commands);
        // The state is known by events alone: no snapshot is requested.
        let listed = super::support::Listed::by(|args| pool.tmux(args));
        wait_until("what is seen is what there is", PATIENCE, || {
            super::support::Listed::of(&super::support::seen(&pool)) == listed
        });
        let foreign = pool.status()["foreign"].as_array().unwrap().len();
        assert_eq!(foreign, listed.sessions() - 1);
    }
}
