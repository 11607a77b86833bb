//! The pool's knowledge survives restarts of `poold`.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;

use crate::harness::{PATIENCE, Pool, Program, Talk, alive, gone, send_signal, wait_until};

#[test]
fn p10_created_at_and_counts_survive_a_restart() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--label", "team=a", "--", "cat"]);
    for n in 0..42 {
        pool.ok(&["send", &id, &format!("line {n}")]);
    }
    // The prompts are typed one after the other.
    pool.ok(&["--timeout", "55s", "wait", &id, "--for", "queue-empty"]);
    let before = pool.show(&id);
    assert_eq!(before["total_requests"], 42);
    for program in Program::ALL {
        pool.kill9(program);
    }
    pool.start_all();
    let after = pool.show(&id);
    let kept = [
        "id",
        "name",
        "workspace",
        "dir",
        "agent",
        "command",
        "cwd",
        "labels",
        "lifecycle",
        "generator",
        "tmux",
        "total_requests",
        "created_at",
        "incarnations",
        "restarts",
    ];
    for key in kept {
        let (mut before, mut after) = (before[key].clone(), after[key].clone());
        if key == "generator" {
            before["last_activity_at"].take();
            after["last_activity_at"].take();
        }
        assert_eq!(before, after, "{key}");
    }
    assert_eq!(after["active_requests"], 0);
    wait_until("it is idle", PATIENCE, || pool.show(&id)["status"] == "idle");
}

#[test]
fn p10_fallback_without_metadata() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    let (agent, _) = pool.pane_pids(&id);
    for program in Program::ALL {
        pool.kill9(program);
    }
    fs::remove_file(pool.database()).unwrap();
    pool.start_all();
    pool.ok(&["sync"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0, "nothing is invented");
    assert_eq!(pool.status()["foreign"], serde_json::json!(["web"]));
    let told = pool.ctl(&["status"]).expect(1).stdout;
    assert!(told.contains("was missing, and an empty one was begun"), "{told}");
    pool.ctl(&["kill", "web"]).expect(3);
    assert!(alive(agent), "and nothing is touched");
    let other = pool.script("other", "exec sleep 1000");
    assert_eq!(pool.lifecycle(&other), "live");
    pool.ok(&["kill", &other]);
    pool.restart_poold();
    pool.ok(&["sync"]);
    assert!(!pool.status()["problems"].to_string().contains("missing"), "it was taken as it is");
    assert!(alive(agent));
    send_signal(agent, Signal::SIGKILL);
}

#[test]
fn a_database_that_is_removed_while_it_is_open_is_told_and_saved() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    pool.ok(&["status"]);
    fs::remove_file(pool.database()).unwrap();
    let told = pool.ctl(&["status"]);
    assert!(told.code != 0 && told.stdout.contains("`poolctl backup FILE` saves it"), "{told:?}");
    let saved = pool.path("saved");
    pool.ok(&["backup", saved.to_str().unwrap()]);
    pool.end(Program::Poold, Signal::SIGTERM);
    fs::rename(saved, pool.database()).unwrap();
    pool.start_poold();
    assert_eq!(pool.show("web")["name"], "web");
}

#[test]
fn p10_cleanup_on_delete() {
    let pool = Pool::new();
    let id = pool.script("web", "echo kept >note; exec sleep 1000");
    let dir = pool.state().join("sessions").join(&id);
    wait_until("it wrote", PATIENCE, || dir.join("work/note").exists());
    let before: Vec<_> = fs::read_dir(pool.state().join("run")).unwrap().flatten().collect();
    assert!(before.iter().any(|file| file.file_name().to_string_lossy().ends_with(".started")));
    pool.ok(&["rm", &id]);
    pool.ctl(&["show", &id]).expect(3);
    assert!(dir.join("work/note").exists() && !dir.join("logs").exists() && !dir.join("tmp").exists());
    let left = || -> Vec<String> {
        let files = fs::read_dir(pool.state().join("run")).unwrap().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    };
    let of_runs = |name: &String| [".job", ".taken", ".started", ".exit"].iter().any(|s| name.ends_with(s));
    wait_until("no file of a run is left", PATIENCE, || !left().iter().any(of_runs));
    let purged = pool.script("web", "echo kept >note; exec sleep 1000");
    assert_ne!(purged, id, "an id is never used twice");
    pool.ok(&["rm", "--purge", &purged]);
    assert!(!pool.state().join("sessions").join(&purged).exists());
}

#[test]
fn the_files_of_a_session_stay_while_another_one_runs_in_them() {
    let pool = Pool::new();
    let work = |id: &str| pool.state().join("sessions").join(id).join("work");
    // Made while the first one is being ended.
    let script = "trap 'sleep 2; exit' TERM HUP; echo precious >file; while :; do sleep 0.1; done";
    let slow = pool.script("slow", script);
    wait_until("it is there", PATIENCE, || work(&slow).join("file").exists());
    let mut removal = Talk::start(pool.poolctl().args(["rm", "--purge", "slow"]));
    wait_until("it ends", PATIENCE, || pool.lifecycle(&slow) == "draining");
    pool.ok(&["new", "user", "--cwd", work(&slow).to_str().unwrap(), "--", "sleep", "1000"]);
    assert_eq!(removal.await_end(), Some(1));
    assert!(work(&slow).join("file").exists());
    // Another session uses the directory by a symbolic link.
    let other = pool.script("other", "exec sleep 1000");
    let link = pool.path("link");
    std::os::unix::fs::symlink(work(&other), &link).unwrap();
    pool.ok(&["new", "guest", "--cwd", link.to_str().unwrap(), "--", "sleep", "1000"]);
    let told = pool.ctl(&["rm", "--purge", "other"]).expect(4);
    assert!(told.stderr.contains("is the directory of guest"), "{told:?}");
    // An empty directory would be removed with its session, if nobody used it.
    pool.ok(&["rm", "other"]);
    assert!(work(&other).exists() && !work(&other).with_file_name("logs").exists());
}

#[test]
fn p03_an_end_under_way_is_finished_after_a_restart() {
    // Longer than a busy machine may keep this test from looking.
    let pool = Pool::with("[reaper]\ngrace = '5s'\n");
    let id = pool.script("web", "trap '' TERM HUP; touch ready; while :; do sleep 1; done");
    let ready = pool.state().join("sessions").join(&id).join("work/ready");
    wait_until("it is deaf", PATIENCE, || ready.exists());
    let (agent, _) = pool.pane_pids(&id);
    thread::scope(|scope| {
        let kill = scope.spawn(|| pool.ctl(&["--timeout", "60s", "kill", &id]));
        wait_until("it is draining", PATIENCE, || pool.lifecycle(&id) == "draining");
        pool.restart_poold();
        // The client's repeat of the same operation gets the same result.
        assert_eq!(kill.join().unwrap().code, 0);
    });
    assert_eq!(pool.lifecycle(&id), "stopped");
    assert!(gone(agent));
}

#[test]
fn p04_a_damaged_database_is_loud_and_kept() {
    let pool = Pool::new();
    pool.ok(&["new", "web", "--", "true"]);
    pool.end(Program::Poold, Signal::SIGTERM);
    let garbage = vec![0x5a; 16 * 1024];
    fs::write(pool.database(), &garbage).unwrap();
    pool.start(Program::Poold);
    assert_eq!(pool.await_end(Program::Poold), 9, "{}", pool.logs());
    assert_eq!(fs::read(pool.database()).unwrap(), garbage, "nothing was reset");
}

#[test]
fn p05_a_new_session_of_an_old_name_inherits_nothing() {
    let pool = Pool::new();
    let old = pool.ok(&["new", "web", "--label", "a=b", "--", "cat"]);
    pool.ok(&["send", &old, "--wait", "done", "text"]);
    let before = pool.show(&old);
    pool.ok(&["rm", "web"]);
    let new = pool.script("web", "exec sleep 1000");
    let after = pool.show("web");
    assert_eq!(after["id"], new.as_str());
    assert_ne!(old, new);
    assert_eq!((&after["total_requests"], &after["labels"]), (&0.into(), &serde_json::json!({})));
    assert!(after["created_at"].as_str() > before["created_at"].as_str());
}

#[test]
fn p05_a_stranger_with_the_old_name_is_not_taken_for_it() {
    let pool = Pool::new();
    pool.script("holder", "exec sleep 1000");
    let id = pool.script("web", "exec sleep 1000");
    let (agent, _) = pool.pane_pids(&id);
    pool.kill9(Program::Poold);
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    wait_until("it is gone", PATIENCE, || gone(agent));
    pool.tmux_text(&["new-session", "-d", "-s", "web", "exec sleep 1001"]);
    let stranger: u32 =
        pool.tmux_text(&["display-message", "-p", "-t", "=web:", "#{pane_pid}"]).parse().unwrap();
    pool.start_poold();
    pool.await_lifecycle(&id, "stopped");
    assert_ne!(pool.ctl(&["keys", &id, "x"]).code, 0);
    pool.ok(&["rm", &id]);
    assert!(alive(stranger));
}

#[test]
fn p07_what_a_program_writes_and_what_is_typed_into_it_is_no_commit() {
    let pool = Pool::new();
    // The session is busy as long as it writes, so its state does not change.
    let id = pool.script("web", "while :; do echo line; sleep 0.01; done");
    let written = || pool.ok(&["logs", &id]).lines().count();
    let stored_at = || fs::metadata(pool.database()).unwrap().modified().unwrap();
    wait_until("it is busy", PATIENCE, || pool.show(&id)["activity"] == "busy");
    wait_until("the database rests while it writes and is typed into", PATIENCE, || {
        let (before, first) = (stored_at(), written());
        // Several seconds: its output is sampled once in each.
        wait_until("it writes on", PATIENCE, || {
            pool.tmux_text(&["send-keys", "-t", "=web:", "x"]);
            written() > first + 300
        });
        stored_at() == before
    });
}

#[test]
fn p08_every_change_is_on_disk_when_it_is_answered() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.ok(&["label", &id, "a=1"]);
    pool.ok(&["rename", &id, "site"]);
    let sent = pool.ok(&["send", &id, "--key", "k", "text"]);
    pool.restart_poold();
    let shown = pool.show("site");
    assert_eq!((&shown["id"], &shown["labels"]["a"]), (&id.clone().into(), &"1".into()));
    assert_eq!(pool.ok(&["send", &id, "--key", "k", "text"]), sent);
}

#[test]
fn w01_ids_and_names_are_numbered_apart() {
    let pool = Pool::with("[pool]\nnaming = 'numeric'\n");
    let named = pool.script("web", "exec sleep 1000");
    let numbered = pool.ok(&["new", "--", "sleep", "1000"]);
    assert_eq!((named.as_str(), numbered.as_str()), ("sess_1", "sess_2"));
    assert_eq!(pool.show(&numbered)["name"], "1");
    pool.ok(&["new", "41", "--", "sleep", "1000"]);
    let next = pool.ok(&["new", "--", "sleep", "1000"]);
    assert_eq!(
        (next.as_str(), &pool.show(&next)["name"]),
        ("sess_4", &"42".into()),
        "w05: the highest and one"
    );
}

#[test]
fn w02_an_id_is_never_used_twice_not_even_after_a_crash() {
    let pool = Pool::new();
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let id = pool.ok(&["new", "web", "--", "true"]);
            pool.ok(&["rm", "--force", "--purge", &id]);
            pool.restart_poold();
            pool.start(Program::Reaper);
            id
        })
        .collect();
    assert_eq!(ids, ["sess_1", "sess_2", "sess_3"]);
}

#[test]
fn w06_a_session_whose_server_died_is_kept_as_lost() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.ok(&["send", &id, "--wait", "done", "text"]);
    let _client = Talk::attached(&pool, "=web:");
    wait_until("the client is known", PATIENCE, || pool.show(&id)["attached_clients"] == 1);
    // An observation is on disk with the next change.
    pool.ok(&["thought", "set", &id, "half done"]);
    let server = pool.tmux_pid().unwrap();
    for program in Program::ALL {
        pool.kill9(program);
    }
    send_signal(server, Signal::SIGKILL);
    wait_until("the server is gone", PATIENCE, || gone(server));
    pool.start_all();
    let shown = pool.await_lifecycle(&id, "lost");
    assert_eq!((&shown["rest_state"], &shown["total_requests"]), (&"deep_sleep".into(), &1.into()));
    assert!(shown["status"].is_null());
    assert_eq!(
        (&shown["attached_clients"], &shown["thought"]["text"], &shown["transport_health"]["state"]),
        (&0.into(), &"half done".into(), &"unobserved".into()),
        "{shown}"
    );
    pool.ok(&["restart", &id]);
    assert_eq!((pool.lifecycle(&id).as_str(), &pool.show(&id)["incarnations"]), ("live", &2.into()));
}

#[test]
fn w10_the_last_activity_survives_a_restart() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["sync"]);
    let before = pool.show(&id)["last_activity_at"].clone();
    pool.restart_poold();
    // Once the pool is complete, the pane was found again.
    pool.await_complete();
    let after = (pool.show(&id), pool.lines(&["ls"]).remove(0));
    assert_eq!((&after.0["last_activity_at"], &after.1["last_activity_at"]), (&before, &before));
}

#[test]
fn t05_w06_output_is_activity_and_the_loss_of_its_server_is_none() {
    let pool = Pool::new();
    let go = pool.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; echo line; exec sleep 1000", go.display());
    let id = pool.script("web", &script);
    let active = || pool.show(&id)["last_activity_at"].clone();
    let first = active();
    fs::write(go, "").unwrap();
    wait_until("its output counts", PATIENCE, || active().as_str() > first.as_str());
    let last = active();
    assert_eq!(pool.lines(&["ls"])[0]["last_activity_at"], last);
    pool.tmux_text(&["kill-server"]);
    let lost = pool.await_lifecycle(&id, "lost");
    assert_eq!(lost["last_activity_at"], last, "{lost}");
    // The restart of the daemon, which reads the time of the log, is no activity either.
    pool.restart_poold();
    assert_eq!(active(), last);
    assert_eq!(pool.lifecycle(&id), "lost");
}

#[test]
fn w16_a_creation_is_told_before_the_session_is_live() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    let kinds = pool.event_kinds(&id);
    assert_eq!(&kinds[..2], ["session_created", "session_live"], "{kinds:?}");
}
