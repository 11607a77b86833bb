//! Sessions that the pool did not create: reported and left alone until adopted.

use std::fs;

use serde_json::json;

use super::support::{NO_SWEEP, Theirs, await_connection, await_end_of, await_event};
use crate::faults::support::crash_at;
use crate::harness::{PATIENCE, Pool, Program, Talk, alive, gone, wait_until};

/// Starts foreign sessions in the pool's tmux server.
pub(super) fn theirs_in(pool: &Pool) -> Theirs<'_> {
    let theirs = Theirs::start(pool, &pool.tmux_socket(), "");
    await_event(pool, "tmux_server_changed", |_| true);
    theirs
}

/// Starts a foreign session that records its input in the file `name`; returns session id, pane id and pid.
#[track_caller]
pub(super) fn reader(pool: &Pool, theirs: &Theirs<'_>, name: &str) -> (String, String, u32) {
    let got = pool.path(format!("{name}.got"));
    let script = format!("exec cat >>'{}'", got.display());
    let format = "#{session_id} #{pane_id} #{pane_pid}";
    let made = theirs.text(&["new-session", "-d", "-P", "-F", format, "-s", name, &script]);
    let [session, pane, pid] = made.split(' ').collect::<Vec<_>>()[..] else { panic!("{made}") };
    wait_until("it reads", PATIENCE, || got.exists());
    (session.to_owned(), pane.to_owned(), pid.parse().unwrap())
}

/// The pool's mark on a pane.
pub(super) fn mark(theirs: &Theirs<'_>, pane: &str) -> String {
    theirs.text(&["show-options", "-pqv", "-t", pane, "@pool_id"])
}

#[test]
fn h34_an_adopted_session_is_one_like_any_other() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    let echo = "stty -echo; echo before; while read line; do echo \"got $line\"; done";
    let made =
        theirs.text(&["new-session", "-d", "-P", "-F", "#{pane_pid} #{pane_id}", "-s", "theirs", echo]);
    let (pid, pane) = made.split_once(' ').unwrap();
    let pid: u32 = pid.parse().unwrap();
    wait_until("it began", PATIENCE, || theirs.text(&["capture-pane", "-p", "-t", pane]).contains("before"));
    let id = pool.ok(&["adopt", "theirs", "--workspace", "project"]);
    let shown = pool.show(&id);
    assert_eq!(
        [&shown["name"], &shown["workspace"], &shown["lifecycle"], &shown["tmux"]["pane_id"]],
        [&json!("theirs"), &json!("project"), &json!("live"), &json!(pane)],
        "{shown}"
    );
    assert_eq!(shown["generator"]["pid"], pid, "{shown}");
    assert_eq!(shown["cwd"], pool.path("work").to_str().unwrap(), "{shown}");
    assert_eq!(pool.lines(&["ls"]).len(), 1);
    assert_eq!(pool.status()["slots"]["used"], 1);
    let foreign = || pool.status()["foreign"].clone();
    assert_eq!(foreign(), json!(["first"]), "and not foreign any more");
    await_event(&pool, "foreign_gone", |event| event["name"] == "theirs");
    await_event(&pool, "session_live", |event| event["session"] == id.as_str());
    assert_eq!(mark(&theirs, pane).len(), 32);
    // The session is found by its id, its name and its workspace.
    pool.ok(&["send", "project", "--wait", "done", "hello"]);
    wait_until("it is on the screen", PATIENCE, || pool.ok(&["capture", "theirs"]).contains("got hello"));
    assert!(pool.ok(&["capture", &id]).contains("before"));
    wait_until("it is in the log", PATIENCE, || pool.ok(&["logs", &id]).contains("got hello"));
    assert!(!pool.ok(&["logs", &id]).contains("before"), "from then on");
    pool.ok(&["label", &id, "k=v"]);
    pool.ok(&["rename", &id, "ours"]);
    assert_eq!(theirs.text(&["display-message", "-p", "-t", pane, "#{session_name}"]), "ours");
    assert!(alive(pid), "and all the while it ran on");
    pool.restart_poold();
    pool.await_complete();
    assert_eq!(pool.lifecycle("ours"), "live");
    pool.ok(&["kill", "ours"]);
    wait_until("it is gone", PATIENCE, || gone(pid));
    let panes = theirs.text(&["list-panes", "-a", "-F", "#{pane_id}"]);
    assert!(!panes.lines().any(|other| other == pane), "{panes}");
    assert_eq!((pool.lifecycle("ours").as_str(), alive(theirs.pid())), ("stopped", true));
}

#[test]
fn h34_a_prompt_for_an_adopted_shell_waits_for_the_program_in_front_of_it() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    theirs.text(&["new-session", "-d", "-s", "theirs", "exec bash --norc -i"]);
    let front = || theirs.text(&["display-message", "-p", "-t", "=theirs:", "#{pane_current_command}"]);
    wait_until("the shell runs", PATIENCE, || front() == "bash");
    let id = pool.ok(&["adopt", "theirs"]);
    assert_eq!(pool.show(&id)["agent"], "shell");
    theirs.text(&["send-keys", "-t", "=theirs:", "sleep 1000", "Enter"]);
    wait_until("another program is in front", PATIENCE, || front() == "sleep");
    wait_until("it is busy", PATIENCE, || pool.show(&id)["activity"] == "busy");
    let message = pool.ok(&["send", &id, "touch after"]);
    wait_until("it says why", PATIENCE, || {
        pool.show(&id)["waits"].as_str().is_some_and(|why| why.contains("its shell runs a command"))
    });
    theirs.text(&["send-keys", "-t", "=theirs:", "C-c"]);
    pool.ok(&["wait", &id, "--for", &format!("message:{message}")]);
    assert!(pool.path("work/after").exists());
}

/// tmux continues a child of its own that is stopped: the shell goes on with its line unless it is told to end first.
#[test]
fn h34_an_adopted_shell_that_is_ended_does_not_go_on_with_its_line() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    for (name, shell) in [("one", "exec bash --norc -i"), ("two", "exec sh -i")] {
        theirs.text(&["new-session", "-d", "-s", name, shell]);
        let target = format!("={name}:");
        let front = || theirs.text(&["display-message", "-p", "-t", &target, "#{pane_current_command}"]);
        wait_until("the shell runs", PATIENCE, || shell.contains(&front()));
        let id = pool.ok(&["adopt", name]);
        let went_on = pool.path(format!("work/{name}"));
        let line = format!("sleep 1000; touch {}", went_on.display());
        theirs.text(&["send-keys", "-t", &target, &line, "Enter"]);
        wait_until("its command runs", PATIENCE, || front() == "sleep");
        pool.ok(&["kill", &id]);
        assert!(!went_on.exists(), "{shell}");
    }
}

#[test]
fn h34_what_was_given_back_is_adopted_again_and_ended_like_any_other() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("keep", "exec sleep 1000");
    let (agent, init) = pool.pane_pids(&id);
    pool.ok(&["rm", "--keep-tmux", &id]);
    assert!(alive(agent) && alive(init), "it was given back");
    let again = pool.ok(&["adopt", "keep"]);
    assert_eq!(pool.show(&again)["command"], serde_json::json!(["sleep", "1000"]), "not its init");
    pool.ok(&["--timeout", "60s", "kill", &again]);
    assert!(gone(agent) && gone(init));
    assert_eq!(pool.show(&again)["reason"], "killed");
}

#[test]
fn h34_an_adopted_session_is_watched_from_then_on() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    for (name, ending) in [("killed", "kill-session"), ("renamed", "rename-session")] {
        let (session, _, pid) = reader(&pool, &theirs, name);
        let id = pool.ok(&["adopt", name]);
        if ending == "kill-session" {
            theirs.text(&[ending, "-t", &session]);
            await_end_of(&pool, &id);
            pool.await_lifecycle(&id, "stopped");
            wait_until("it is gone", PATIENCE, || gone(pid));
        } else {
            theirs.text(&[ending, "-t", &session, "other"]);
            await_event(&pool, "session_renamed", |event| event["name"] == "other");
        }
    }
}

#[test]
fn h34_what_is_meant_is_one_pane_by_its_id_or_exact_name() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    let (session, pane, pid) = reader(&pool, &theirs, "one");
    let (_, other, _) = reader(&pool, &theirs, "two");
    for missing in ["on", "one:", "tw*", "$99", "%99", "nobody", "first2", ""] {
        let missed = pool.ctl(&["adopt", missing]);
        assert!([2, 3].contains(&missed.code), "{missing:?}: {missed:?}");
    }
    assert!(pool.ctl(&["adopt", "nobody"]).expect(3).stderr.contains("one"), "what there is is named");
    let id = pool.ok(&["adopt", &session]);
    for again in ["one", &session, &pane] {
        assert_eq!(pool.ok(&["adopt", again]), id, "twice is once");
    }
    assert_eq!(pool.json(&["adopt", &pane])["generator"]["pid"], pid);
    assert_eq!(pool.lines(&["events", "--kind", "session_created"]).len(), 1);
    // With several panes, one must be named.
    let split = theirs.text(&["split-window", "-d", "-t", &other, "-P", "-F", "#{pane_id}", "exec cat"]);
    let several = pool.ctl(&["adopt", "two"]).expect(4);
    assert!(several.stderr.contains(&other) && several.stderr.contains(&split), "{}", several.stderr);
    let two = pool.ok(&["adopt", &split]);
    assert_eq!(pool.show(&two)["tmux"]["pane_id"], split.as_str());
    assert_eq!(mark(&theirs, &other), "", "the other is left alone");
    pool.ok(&["kill", &two]);
    wait_until("the pane is removed", PATIENCE, || {
        !theirs.text(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().any(|pane| pane == split)
    });
    assert!(theirs.text(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().any(|pane| pane == other));
}

#[test]
fn h34_what_has_ended_or_has_no_room_is_not_adopted() {
    let pool = Pool::with(&format!("[pool]\nmax_sessions = 1\n{NO_SWEEP}"));
    let theirs = theirs_in(&pool);
    theirs.text(&["set-option", "-g", "remain-on-exit", "on"]);
    let ended = theirs.text(&["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", "ended", "exit 3"]);
    wait_until("it has ended", PATIENCE, || {
        theirs.text(&["display-message", "-p", "-t", &ended, "#{pane_dead}"]) == "1"
    });
    let refused = pool.ctl(&["adopt", "ended"]).expect(5);
    assert!(refused.stderr.contains("ended"), "{}", refused.stderr);
    assert_eq!(mark(&theirs, &ended), "");
    let (_, pane, pid) = reader(&pool, &theirs, "one");
    let (_, other, _) = reader(&pool, &theirs, "two");
    pool.ok(&["adopt", &pane]);
    let full = pool.ctl(&["adopt", &other]).expect(5);
    assert!(full.stderr.contains('1'), "{}", full.stderr);
    assert_eq!((mark(&theirs, &other).as_str(), pool.lines(&["ls", "--all"]).len()), ("", 1));
    pool.ctl(&["adopt", &other, "--workspace", "Not A Name"]).expect(2);
    pool.ok(&["rm", "--keep-tmux", "--force", "one"]);
    assert!(alive(pid));
    pool.ok(&["adopt", &other]);
    let taken = pool.ctl(&["adopt", &pane, "--workspace", "two"]);
    assert!([4, 5].contains(&taken.code), "{taken:?}");
}

#[test]
fn h34_names_that_are_no_names_of_a_pool_are_made_such() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    let id = pool.script("my-work", "exec cat");
    for name in ["My Work", "#{pid}", "$7", "--", "sess_3"] {
        let pane = theirs.text(&["new-session", "-d", "-P", "-F", "#{pane_id}", "-s", name, "exec cat"]);
        let adopted = pool.ok(&["adopt", &pane]);
        let shown = pool.show(&adopted);
        let given = shown["name"].as_str().unwrap();
        assert!(given.parse::<protocol::Name>().is_ok() && given != "my-work", "{name}: {given}");
        assert_eq!(shown["workspace"], given);
        assert_eq!(pool.show(given)["id"], adopted.as_str());
    }
    assert_eq!(pool.show("my-work")["id"], id.as_str());
}

#[test]
fn h34_a_name_that_a_failed_session_keeps_is_told_with_what_frees_it() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    reader(&pool, &theirs, "web");
    let frees = "`poolctl rm web` frees";
    let failed = pool.ctl(&["new", "web", "--", "true"]).expect(4).stderr;
    assert!(failed.contains("keeps the name web") && failed.contains(frees), "{failed}");
    reader(&pool, &theirs, "brief");
    let failed = pool.ctl(&["new", "brief", "--ephemeral", "--", "true"]).expect(4).stderr;
    assert!(failed.contains("removed by itself") && !failed.contains("keeps the name"), "{failed}");
    let taken = pool.ctl(&["adopt", "web", "--workspace", "web"]).expect(4).stderr;
    assert!(taken.contains(frees), "{taken}");
    let adopted = pool.ctl(&["adopt", "web"]).expect(0).stderr;
    assert!(adopted.contains("web is web-2 in the pool: ") && adopted.contains(frees), "{adopted}");
    pool.ok(&["rm", "web"]);
    pool.ok(&["rename", "web-2", "web"]);
}

#[test]
fn a_session_that_cannot_be_woken_is_told_with_the_command_that_goes_on() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = theirs_in(&pool);
    pool.ok(&["new", "web", "--agent", "shell"]);
    pool.ok(&["park", "web"]);
    reader(&pool, &theirs, "web");
    pool.ok(&["send", "web", "echo hello"]);
    let next = "poolctl rename web NAME && poolctl restart NAME";
    wait_until("it is told", PATIENCE, || pool.lines(&["inbox"]).iter().any(|item| item["next"] == next));
    let status = pool.ctl(&["status"]).expect(1).stdout;
    assert!(
        status.contains("web: it failed to start, and 1 prompt waits") && status.contains(next),
        "{status}"
    );
    pool.ok(&["rename", "web", "web2"]);
    pool.ok(&["restart", "web2"]);
    pool.ok(&["wait", "web2", "--for", "queue-empty", "--timeout", "60s"]);
    assert_eq!(pool.lines(&["inbox"]), [] as [serde_json::Value; 0]);
}

#[test]
fn h34_by_itself_only_what_is_configured_is_adopted() {
    let pool = Pool::with(&format!("[tmux]\nadopt = \"prefix:x-\"\n{NO_SWEEP}"));
    let theirs = theirs_in(&pool);
    let (_, other, _) = reader(&pool, &theirs, "other");
    let (_, pane, pid) = reader(&pool, &theirs, "x-one");
    wait_until("it is adopted", PATIENCE, || pool.ctl(&["show", "x-one"]).code == 0);
    let id = pool.show("x-one")["id"].as_str().unwrap().to_owned();
    pool.await_lifecycle(&id, "live");
    assert_eq!(mark(&theirs, &pane).len(), 32);
    assert_eq!(mark(&theirs, &other), "");
    // A session that was given back is not adopted again by itself, not by a later `poold` either.
    pool.ok(&["rm", "--keep-tmux", &id]);
    let (_, again, _) = reader(&pool, &theirs, "x-two");
    wait_until("the next one is adopted", PATIENCE, || pool.ctl(&["show", "x-two"]).code == 0);
    pool.restart_poold();
    pool.await_complete();
    pool.ok(&["sync"]);
    pool.ctl(&["show", "x-one"]).expect(3);
    assert!(alive(pid) && mark(&theirs, &pane).len() != 32);
    assert_eq!(pool.show("x-two")["tmux"]["pane_id"], again.as_str());
    let back = pool.ok(&["adopt", "x-one"]);
    assert_ne!(back, id, "as a session of its own");
    assert_eq!(pool.show(&back)["generator"]["pid"], pid);
}

#[test]
fn h34_all_is_all_as_far_as_there_is_room() {
    let pool = Pool::with(&format!("[pool]\nmax_sessions = 3\n[tmux]\nadopt = \"all\"\n{NO_SWEEP}"));
    let theirs = theirs_in(&pool);
    for name in ["a", "b", "c", "d"] {
        reader(&pool, &theirs, name);
    }
    wait_until("all slots are taken", PATIENCE, || pool.status()["slots"]["used"] == 3);
    wait_until("the others are named", PATIENCE, || pool.status()["foreign"].as_array().unwrap().len() == 2);
    let listed = pool.lines(&["ls"]);
    assert!(listed.iter().all(|session| session["lifecycle"] == "live"), "{listed:?}");
    pool.ok(&["kill", listed[0]["id"].as_str().unwrap()]);
    wait_until("the slot is used again", PATIENCE, || {
        pool.lines(&["events", "--kind", "session_created"]).len() == 4
    });
    let marks = theirs.text(&["list-panes", "-a", "-F", "#{@pool_id}"]);
    assert!(marks.lines().filter(|mark| mark.len() == 32).count() <= 4, "{marks}");
}

#[test]
fn t07_foreign_sessions_are_never_changed() {
    let pool = Pool::with(NO_SWEEP);
    // The first listing is taken before anything of the pool has touched this server.
    for program in Program::ALL {
        pool.kill9(program);
    }
    let theirs = Theirs::start(&pool, &pool.tmux_socket(), "");
    theirs.text(&["new-session", "-d", "-s", "Their Own", "-x", "90", "-y", "30", "exec cat"]);
    theirs.text(&["split-window", "-d", "-t", "=Their Own:", "exec cat"]);
    theirs.text(&["set-option", "-t", "=first:", "@theirs", "kept"]);
    let before = theirs.everything();
    pool.start_all();
    await_connection(&pool, "native");
    let pool_id = pool.script("ours", "exec cat");
    pool.ok(&["sync"]);
    pool.ok(&["kill", &pool_id]);
    pool.ok(&["rm", &pool_id]);
    let (_, pane, _) = reader(&pool, &theirs, "short");
    let adopted = pool.ok(&["adopt", &pane]);
    pool.ok(&["kill", &adopted]);
    for verb in ["kill", "rm", "restart", "capture", "show"] {
        pool.ctl(&[verb, "first"]).expect(3);
    }
    assert_eq!(pool.status()["foreign"], json!(["first", "Their Own"]));
    wait_until("what is not theirs is gone", PATIENCE, || {
        theirs.text(&["list-panes", "-a", "-F", "#{pane_id}"]).lines().count() == 4
    });
    // This is the pool's own server, whoever started it: the pool may set what new panes get.
    let sessions = |all: Vec<String>| -> Vec<String> {
        all.into_iter().filter(|line| !line.starts_with("history-limit ")).collect()
    };
    assert_eq!(sessions(theirs.everything()), sessions(before));
}

#[test]
fn h34_a_crash_at_any_step_of_adopt_leaves_one_live_session() {
    for point in ["adopt-intent", "adopt-marked"] {
        let pool = Pool::with(NO_SWEEP);
        let theirs = theirs_in(&pool);
        let (_, pane, pid) = reader(&pool, &theirs, "theirs");
        crash_at(&pool, point);
        let told = std::thread::scope(|scope| {
            let adopt = || pool.ctl(&["--json", "--timeout", "40s", "adopt", "theirs", "--op-id", "once"]);
            let client = scope.spawn(adopt);
            assert_eq!(pool.await_end(Program::Poold), 134, "{point}: {}", pool.logs());
            pool.kill9(Program::Poold);
            pool.start(Program::Poold);
            client.join().unwrap()
        });
        let told = told.expect(0).json();
        pool.await_complete();
        let id = told["id"].as_str().unwrap();
        pool.await_lifecycle(id, "live");
        assert_eq!(pool.lines(&["ls", "--all"]).len(), 1, "{point}");
        assert_eq!((pool.show(id)["generator"]["pid"].clone(), alive(pid)), (pid.into(), true), "{point}");
        let tag = mark(&theirs, &pane);
        assert_eq!(tag.len(), 32, "{point}");
        assert_eq!(pool.ok(&["adopt", "theirs"]), id, "{point}");
        assert_eq!(mark(&theirs, &pane), tag, "{point}: marked once");
        pool.ok(&["send", id, "--wait", "done", "text"]);
        pool.await_file("theirs.got", |bytes| bytes == b"text\n");
        wait_until("its output is logged, by one writer", PATIENCE, || {
            theirs.text(&["display-message", "-p", "-t", &pane, "#{pane_pipe}"]) == "1"
        });
        let dir = pool.show(id)["dir"].as_str().unwrap().to_owned();
        assert!(fs::metadata(&dir).unwrap().is_dir(), "{point}: {dir}");
    }
}

#[test]
fn h34_a_crash_at_a_step_of_adopt_whose_server_then_dies_leaves_no_ghost() {
    for point in ["adopt-intent", "adopt-marked"] {
        let pool = Pool::with(NO_SWEEP);
        let theirs = theirs_in(&pool);
        reader(&pool, &theirs, "theirs");
        crash_at(&pool, point);
        let adopt = Talk::start(pool.poolctl().args(["--timeout", "40s", "adopt", "theirs"]));
        assert_eq!(pool.await_end(Program::Poold), 134, "{point}: {}", adopt.errors());
        // The client does not repeat its request.
        drop(adopt);
        crate::harness::send_signal(theirs.pid(), nix::sys::signal::Signal::SIGKILL);
        wait_until("their server is gone", PATIENCE, || gone(theirs.pid()));
        pool.restart_poold();
        wait_until("nothing lives", PATIENCE, || {
            let listed = pool.lines(&["ls", "--all"]);
            listed
                .iter()
                .all(|session| ["lost", "failed", "stopped"].iter().any(|s| session["lifecycle"] == *s))
        });
        assert_eq!(pool.status()["slots"]["used"], 0, "{point}");
        pool.await_complete();
    }
}
