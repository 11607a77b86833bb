//! The end of a session: drained, removed by retention or by a user, archived, pruned, cleared.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::support::{KEEPER, await_lines, await_slots, events, keeper, restart_and_look};
use crate::faults::support::{has, is_root};
use crate::harness::{Mount, Output, PATIENCE, Pool, Program, Talk, wait_until};

const QUICK: &str = "[pool]\nidle_quiet = '200ms'\nidle_settle = '200ms'\n[reaper]\ngrace = '200ms'\n";

fn quick() -> Pool {
    Pool::with(&format!("{QUICK}{KEEPER}"))
}

#[test]
fn p26_a_drained_session_works_off_what_it_has_and_takes_no_more() {
    let pool = quick();
    let id = keeper(&pool, "web");
    // In copy mode nothing is typed, until everything about draining has been checked.
    pool.tmux_text(&["copy-mode", "-t", "=web:"]);
    let texts: Vec<String> = (0..8).map(|n| format!("message {n}")).collect();
    texts.iter().for_each(|text| drop(pool.ok(&["send", &id, text])));
    pool.ok(&["drain", &id]);
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["status"]), (&"draining".into(), &"draining".into()));
    let refused = pool.ctl(&["send", &id, "late"]).expect(5);
    assert!(refused.stderr.contains("takes nothing more"), "{refused:?}");
    pool.ctl(&["send", &id, "--kind", "observation", "late"]).expect(5);
    pool.tmux_text(&["send-keys", "-t", "=web:", "-X", "cancel"]);
    pool.ok(&["--timeout", "60s", "drain", "--wait", &id]);
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["reason"]), (&"stopped".into(), &"drained".into()), "{shown}");
    let wanted: Vec<&str> = texts.iter().map(String::as_str).collect();
    await_lines(&pool, &id, "got", &wanted);
    assert_eq!(shown["queue"]["queued"], 0);
    await_slots(&pool, 0);
}

#[test]
fn p26_what_waits_for_a_worker_is_worked_off_too_and_poold_may_die_meanwhile() {
    let pool = quick();
    let id = keeper(&pool, "web");
    for n in 0..3 {
        pool.ok(&["send", &id, "--kind", "observation", &format!("observation {n}")]);
    }
    pool.ok(&["drain", &id]);
    restart_and_look(&pool);
    assert_eq!(pool.lifecycle(&id), "draining", "its work is not done");
    pool.ctl(&["send", &id, "late"]).expect(5);
    pool.ok(&["--timeout", "60s", "work", &id, "--kind", "observation", "--until-empty", "--", "true"]);
    assert_eq!(pool.await_lifecycle(&id, "stopped")["reason"], "drained");
    // A session that has ended counts as drained.
    pool.ok(&["drain", "--wait", &id]);
}

#[test]
fn p26_a_shell_whose_own_prompt_is_back_is_drained_at_once() {
    // Longer than the test: only programs that confirm nothing are given this time.
    let pool = Pool::with("[pool]\nidle_quiet = '200ms'\nidle_settle = '10m'\n");
    let id = pool.ok(&["new", "sh", "--agent", "shell"]);
    pool.ok(&["send", &id, "--wait", "done", "true"]);
    pool.ok(&["--timeout", "60s", "drain", "--wait", &id]);
    assert_eq!(pool.show(&id)["reason"], "drained");
    let silent = pool.script("silent", "exec cat");
    pool.ok(&["send", &silent, "--wait", "done", "text"]);
    pool.ok(&["drain", &silent]);
    wait_until("it says why", PATIENCE, || {
        pool.ok(&["show", &silent]).contains("it was given something a moment ago")
    });
    pool.ok(&["kill", &silent]);
}

#[test]
fn a_session_that_drains_is_as_ready_as_it_was() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "sh", "--agent", "shell"]);
    let send = ["--timeout", "20s", "send", &id, "--wake", "--op-id", "one", "true"];
    pool.ok(&[&send[..], &["--wait", "done"]].concat());
    // No worker asks for it, so that the drain goes on.
    pool.ok(&["send", &id, "--kind", "observation", "it waits"]);
    pool.ok(&["drain", &id]);
    assert_eq!(pool.lifecycle(&id), "draining");
    for what in ["started", "ready"] {
        pool.ok(&["--timeout", "20s", "wait", &id, "--for", what]);
    }
    let told = pool.ctl(&["--timeout", "20s", "wait", &id, "--for", "exit,ready"]).expect(0);
    assert_eq!(told.text(), "ready");
    let told = pool.ctl(&send).expect(0);
    assert_eq!(told.stderr, "", "it was ready all the time");
    pool.ok(&["kill", &id]);
}

#[test]
fn what_was_not_worked_when_a_program_ended_by_itself_is_told_who_waits_for_its_drain() {
    let pool = quick();
    let id = pool.script("web", "while [ ! -e end ]; do sleep 0.05; done");
    pool.ok(&["send", &id, "--kind", "observation", "one"]);
    pool.ok(&["drain", &id]);
    std::fs::write(pool.dir(&id).join("work/end"), "").unwrap();
    let told = pool.ctl(&["--timeout", "30s", "drain", "--wait", &id]).expect(1);
    assert!(told.stderr.contains("not worked: 1") && told.stderr.contains("poolctl restart web"), "{told:?}");
}

#[test]
fn what_is_ephemeral_is_removed_at_its_end() {
    let pool = quick();
    let read = pool.ok(&["new", "read", "--ephemeral", "--", "true"]);
    // As a `run` has it that still prints the output.
    let hold = fs::File::open(pool.dir(&read)).unwrap();
    hold.lock_shared().unwrap();
    pool.ctl(&["wait", &read, "--for", "exit"]).expect(0);
    let id = pool.ok(&["new", "web", "--ephemeral", "--", "sh", "-c", "echo kept >note; exit 3"]);
    let dir = pool.dir(&id);
    pool.ctl(&["wait", &id, "--for", "exit"]).expect(3);
    wait_until("it is removed", PATIENCE, || pool.ctl(&["show", &id]).code == 3);
    wait_until("its files, too", PATIENCE, || !dir.join("logs").exists());
    let deleted = events(&pool, "session_deleted");
    assert_eq!(deleted.last().unwrap()["reason"], "ephemeral", "{deleted:#?}");
    assert!(dir.join("work/note").exists(), "work is its user's own");
    assert_eq!(pool.lifecycle(&read), "stopped", "its output is still read");
    drop(hold);
    wait_until("it is removed once nobody reads it", PATIENCE, || pool.ctl(&["show", &read]).code == 3);
}

#[test]
fn what_is_over_is_removed_when_its_time_is_up() {
    let pool = Pool::with(&format!("[pool]\nkeep_stopped = 'never'\n{KEEPER}"));
    let soon = pool.ok(&["new", "soon", "--ttl", "300ms", "--", "true"]);
    let kept = pool.ok(&["new", "kept", "--", "true"]);
    let busy = pool.ok(&["new", "busy", "--ttl", "300ms", "--", "cat"]);
    pool.ok(&["send", &busy, "--kind", "observation", "text"]);
    pool.ok(&["kill", &busy]);
    wait_until("it is removed", PATIENCE, || pool.ctl(&["show", &soon]).code == 3);
    assert_eq!(events(&pool, "session_deleted")[0]["reason"], "ttl");
    assert_eq!(pool.await_lifecycle(&busy, "stopped")["queue"]["queued"], 1, "not with work that is left");
    pool.restart_poold();
    pool.reload("[pool]\nkeep_stopped = '100ms'\n");
    pool.script("other", "exec sleep 1000");
    wait_until("it is removed", PATIENCE, || pool.ctl(&["show", &kept]).code == 3);
    assert_eq!((pool.lifecycle("other").as_str(), pool.lifecycle(&busy).as_str()), ("live", "stopped"));
}

/// The only archive, unpacked.
#[track_caller]
fn unpacked(pool: &Pool) -> PathBuf {
    let archives: Vec<PathBuf> =
        fs::read_dir(pool.state().join("archive")).unwrap().flatten().map(|file| file.path()).collect();
    let [archive] = archives.as_slice() else { panic!("not one archive: {archives:?}") };
    let to = pool.path("unpacked");
    fs::create_dir(&to).unwrap();
    drop(Output::of(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&to), b"").expect(0));
    let top: Vec<PathBuf> = fs::read_dir(&to).unwrap().flatten().map(|entry| entry.path()).collect();
    let [top] = top.as_slice() else { panic!("not one directory: {top:?}") };
    assert_eq!(archive.file_name().unwrap().to_str().unwrap(), format!("{}.tar.gz", name(top)));
    top.clone()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn g11_an_archive_holds_the_record_the_queue_and_the_logs() {
    let pool = quick();
    let id = pool.ok(&["new", "web", "--agent", "keeper", "--env", "TOKEN=hunter2-secret", "--label", "a=b"]);
    let other = keeper(&pool, "other");
    pool.ok(&["send", &id, "--wait", "done", "text one"]);
    pool.ok(&["send", &id, "--kind", "observation", "for nobody"]);
    await_lines(&pool, &id, "got", &["text one"]);
    pool.ok(&["kill", &id]);
    let dir = pool.dir(&id);
    let log = dir.join("logs/output.log");
    wait_until("its log is written", PATIENCE, || {
        fs::read(&log).is_ok_and(|log| log.ends_with(b"text one\r\n"))
    });
    let log = fs::read(log).unwrap();
    pool.ctl(&["rm", "--archive", &id]).expect(4);
    assert!(
        !pool.state().join("archive").exists()
            || fs::read_dir(pool.state().join("archive")).unwrap().next().is_none()
    );
    pool.ok(&["--timeout", "60s", "rm", "--archive", "--force", "--purge", &id]);
    let top = unpacked(&pool);
    assert!(name(&top).starts_with(&format!("{id}-web-")), "named by its id: {}", top.display());
    let record: Value = serde_json::from_slice(&fs::read(top.join("session.json")).unwrap()).unwrap();
    assert_eq!((&record["name"], &record["labels"]["a"]), (&"web".into(), &"b".into()), "{record}");
    assert_eq!(fs::read(top.join("logs/output.log")).unwrap(), log);
    assert_eq!(fs::read_to_string(top.join("work/got")).unwrap(), "text one\n");
    let messages = fs::read_to_string(top.join("messages.jsonl")).unwrap();
    let messages: Vec<Value> = messages.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bodies: Vec<&Value> = messages.iter().map(|message| &message["body"]).collect();
    assert_eq!(bodies, ["text one", "for nobody"], "{messages:#?}");
    let all = Output::of(Command::new("grep").args(["-r", "hunter2-secret"]).arg(&top), b"");
    assert_eq!(all.code, 1, "no secret is in it: {}", all.stdout);
    assert!(!dir.exists() && pool.dir(&other).join("work").exists(), "its own alone is gone");
    pool.ctl(&["show", &id]).expect(3);
}

#[test]
fn g11_without_an_archive_nothing_is_removed() {
    let pool = quick();
    let id = keeper(&pool, "web");
    pool.ok(&["send", &id, "--wait", "done", "text"]);
    await_lines(&pool, &id, "got", &["text"]);
    pool.ok(&["kill", &id]);
    // A file in place of the archive directory.
    fs::write(pool.state().join("archive"), "").unwrap();
    let dir = pool.dir(&id);
    wait_until("its log is there", PATIENCE, || dir.join("logs/output.log").exists());
    let failed = pool.ctl(&["--timeout", "60s", "rm", "--archive", "--purge", &id]).expect(1);
    assert!(failed.stderr.contains("not archived"), "{failed:?}");
    assert_eq!(pool.lifecycle(&id), "stopped");
    assert!(dir.join("work/got").exists() && dir.join("logs/output.log").exists());
    assert_eq!(pool.lines(&["queue", "ls", &id, "--state", "done"]).len(), 1);
    let pruned = pool.ctl(&["--json", "--timeout", "60s", "prune", "--archive", "--purge"]).expect(1);
    assert!(pruned.stdout.contains("not archived") && dir.join("work/got").exists(), "{pruned:?}");
    fs::remove_file(pool.state().join("archive")).unwrap();
    pool.ok(&["--timeout", "60s", "rm", "--archive", &id]);
    assert!(dir.join("work/got").exists(), "work/ stays without --purge");
}

#[test]
fn g11_a_directory_without_a_session_is_archived_before_it_is_pruned() {
    let pool = quick();
    let id = pool.ok(&["new", "web", "--cwd", "own", "--", "sh", "-c", "echo precious >kept"]);
    pool.await_lifecycle(&id, "stopped");
    pool.ok(&["rm", &id]);
    let dir = pool.state().join("sessions").join(&id);
    assert!(dir.join("work/kept").exists());
    fs::write(pool.state().join("archive"), "").unwrap();
    let prune = ["--timeout", "60s", "prune", "--archive", "--purge"];
    let failed = pool.ctl(&prune).expect(1);
    assert!(failed.stderr.contains("not archived") && dir.join("work/kept").exists(), "{failed:?}");
    fs::remove_file(pool.state().join("archive")).unwrap();
    let pruned = pool.ok(&prune);
    assert!(pruned.contains(&format!("{id}  removed")), "{pruned}");
    assert!(!dir.exists());
    let top = unpacked(&pool);
    assert!(name(&top).starts_with(&format!("{id}-removed-")), "{}", top.display());
    assert_eq!(fs::read_to_string(top.join("work/kept")).unwrap(), "precious\n");
}

#[test]
fn g11_prune_removes_what_is_over_and_what_belongs_to_nobody() {
    let pool = quick();
    let live = keeper(&pool, "live");
    let parked = keeper(&pool, "parked");
    pool.ok(&["park", &parked]);
    let over: Vec<String> = (0..3).map(|n| pool.ok(&["new", &format!("over{n}"), "--", "true"])).collect();
    let failed = pool.ctl(&["new", "failed", "--", "surely-not-a-program"]);
    assert_ne!(failed.code, 0);
    over.iter().for_each(|id| drop(pool.await_lifecycle(id, "stopped")));
    pool.ok(&["send", "over0", "--kind", "a", "text", "--wake"]);
    pool.ok(&["kill", "over0"]);
    let sessions = pool.state().join("sessions");
    fs::create_dir_all(sessions.join("sess_999/work")).unwrap();
    let orphan = keeper(&pool, "orphan");
    pool.ok(&["rm", &orphan]);
    assert!(sessions.join(&orphan).join("work").exists());
    let would = pool.json(&["prune", "--dry-run", "--purge"]);
    assert_eq!(would["sessions"].as_array().unwrap().len(), 3, "not what has messages left: {would}");
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 6, "nothing was done");
    pool.json(&["prune", "--older", "1h"]);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 6, "nothing is that old");
    let pruned = pool.json(&["--timeout", "60s", "prune", "--purge", "--archive"]);
    assert_eq!(pruned["sessions"].as_array().unwrap().len(), 3, "{pruned}");
    assert_eq!(
        (&pruned["kept"][0]["name"], &pruned["kept"][0]["messages"]),
        (&"over0".into(), &1.into()),
        "{pruned}"
    );
    assert!(!sessions.join(&orphan).exists() && pruned["bytes"].as_u64().unwrap() > 0, "{pruned}");
    assert_eq!(fs::read_dir(pool.state().join("archive")).unwrap().count(), 4);
    let left: Vec<Value> = pool.lines(&["ls", "--all"]).iter().map(|s| s["name"].clone()).collect();
    assert_eq!(left, ["live", "parked", "over0"]);
    assert!(pool.dir(&live).join("work").exists() && pool.dir(&parked).join("work").exists());
}

#[test]
fn files_in_which_another_session_runs_are_not_purged() {
    let pool = quick();
    let first = pool.ok(&["new", "first", "--cwd", "own", "--", "sh", "-c", "echo kept > kept"]);
    pool.await_lifecycle(&first, "stopped");
    let work = pool.dir(&first).join("work");
    pool.ok(&["new", "second", "--cwd", work.to_str().unwrap(), "--", "sleep", "1000"]);
    let refused = pool.ctl(&["rm", "first", "--purge"]).expect(4);
    assert!(refused.stderr.contains("second"), "{refused:?}");
    pool.ctl(&["prune", "--purge"]).expect(1);
    pool.ok(&["rm", "first"]);
    pool.ok(&["prune", "--purge"]);
    assert_eq!(fs::read_to_string(work.join("kept")).unwrap(), "kept\n");
    pool.ok(&["rm", "second"]);
    pool.ok(&["prune", "--purge"]);
    assert!(!work.exists());
}

/// Begins a request that archives a session, which takes a while.
fn begin_to_archive(pool: &Pool, id: &str, args: &[&str]) -> Talk {
    let large = pool.dir(id).join("work/large");
    fs::File::create(&large).unwrap().set_len(256 << 20).unwrap();
    let talk = Talk::start(pool.poolctl().args(args));
    let archives = pool.state().join("archive");
    wait_until("an archive is begun", PATIENCE, || {
        fs::read_dir(&archives).is_ok_and(|mut archives| archives.next().is_some())
    });
    talk
}

#[test]
fn what_was_started_again_since_it_was_listed_is_not_pruned() {
    let pool = quick();
    let first = pool.ok(&["new", "first", "--cwd", "own", "--", "true"]);
    let second = keeper(&pool, "second");
    pool.ok(&["kill", &second]);
    pool.await_lifecycle(&first, "stopped");
    let mut prune = begin_to_archive(&pool, &first, &["--timeout", "60s", "prune", "--purge", "--archive"]);
    pool.ok(&["restart", &second]);
    assert_eq!(prune.await_end(), Some(1));
    assert!(prune.errors().contains("second was used since it had ended"), "{}", prune.errors());
    assert_eq!(pool.lifecycle(&second), "live");
    pool.ctl(&["show", &first]).expect(3);
}

#[test]
fn what_is_not_in_the_archive_is_not_removed() {
    let pool = quick();
    let id = keeper(&pool, "web");
    pool.ok(&["park", &id]);
    let rm = ["--timeout", "60s", "rm", &id, "--purge", "--archive"];
    let mut removal = begin_to_archive(&pool, &id, &rm);
    let message = pool.ok(&["send", &id, "--kind", "job", "late"]);
    pool.ok(&["queue", "cancel", &id, &message]);
    assert_eq!(removal.await_end(), Some(4));
    assert!(removal.errors().contains("was used while it was archived"), "{}", removal.errors());
    assert_eq!(pool.json(&["queue", "show", &id, &message])["state"], "cancelled");
    assert!(pool.dir(&id).join("work/large").exists());
    pool.ok(&rm);
    pool.ctl(&["show", &id]).expect(3);
}

#[test]
fn only_files_that_are_left_are_said_to_stay() {
    let pool = quick();
    for (script, more, stays) in [
        (": >kept", &[][..], true),
        ("true", &[], false),
        (": >kept; cat", &["--keep-tmux"], true),
        ("cat", &["--keep-tmux"], false),
    ] {
        let id = pool.ok(&["new", "web", "--cwd", "own", "--", "sh", "-c", script]);
        if more.is_empty() {
            pool.await_lifecycle(&id, "stopped");
        } else if stays {
            pool.await_file(pool.dir(&id).join("work/kept"), |_| true);
        }
        let told = pool.ok(&[&["rm", &id], more].concat());
        assert_eq!(told.contains("its files stay in"), stays, "{script}: {told}");
        if !more.is_empty() {
            pool.tmux_text(&["kill-session", "-t", "=web"]);
        }
    }
}

#[test]
fn g20_all_that_are_stopped_are_removed_at_once() {
    let pool = quick();
    keeper(&pool, "live");
    let parked = keeper(&pool, "parked");
    pool.ok(&["park", &parked]);
    for n in 0..3 {
        let id = pool.ok(&["new", &format!("over{n}"), "--", "true"]);
        pool.await_lifecycle(&id, "stopped");
    }
    pool.ctl(&["rm", "--stopped"]).expect(2);
    pool.ok(&["--timeout", "60s", "rm", "--all", "--stopped"]);
    let left: Vec<Value> = pool.lines(&["ls", "--all"]).iter().map(|s| s["name"].clone()).collect();
    assert_eq!(left, ["live", "parked"]);
    pool.ok(&["rm", "--all", "--stopped"]);
}

#[test]
fn g14_clear_empties_the_log_and_the_history_and_it_runs_on() {
    let pool = quick();
    let id = pool.script("web", "seq 1 500; while read -r line; do echo \"got $line\"; done");
    wait_until("it is logged", PATIENCE, || pool.ok(&["logs", &id]).contains("500"));
    let (agent, _) = pool.pane_pids(&id);
    pool.ok(&["clear", &id]);
    assert!(!pool.ok(&["logs", &id]).contains("250"));
    assert!(!pool.ok(&["capture", &id, "--all"]).lines().any(|line| line == "250"));
    pool.ok(&["send", &id, "--wait", "done", "after"]);
    wait_until("the log goes on", PATIENCE, || pool.ok(&["logs", &id]).contains("got after"));
    assert_eq!(pool.pane_pids(&id).0, agent);
    pool.ok(&["kill", &id]);
    pool.ok(&["clear", &id]);
    assert_eq!(pool.ok(&["logs", &id]), "");
}

#[test]
fn a_stopped_session_is_sent_something_and_starts() {
    let pool = quick();
    let id = keeper(&pool, "web");
    pool.ok(&["kill", &id]);
    let refused = pool.ctl(&["send", &id, "text"]).expect(5);
    assert!(refused.stderr.contains("--wake"), "{refused:?}");
    pool.ok(&["send", "--wake", &id, "text"]);
    await_lines(&pool, &id, "got", &["text"]);
    assert_eq!(pool.lifecycle(&id), "live");
    pool.kill9(Program::Reaper);
    pool.start(Program::Reaper);
}

#[test]
fn a_removal_that_leaves_the_directory_says_so_when_it_is_repeated() {
    if !is_root() || !has("mount") {
        return;
    }
    // Declared first, so that it is unmounted after the pool has ended.
    let mount;
    let pool = quick();
    let id = keeper(&pool, "web");
    mount = Mount::new(pool.dir(&id).join("work/busy"), "64k");
    if mount.is_none() {
        return;
    }
    let remove = || pool.ctl(&["rm", "--force", "--purge", "--op-id", "purge", &id]).expect(1).stderr;
    let told = remove();
    assert!(told.contains("is removed, but not its directory"), "{told}");
    assert_eq!(remove(), told);
}

#[test]
fn a_removal_that_leaves_files_of_the_pool_says_so() {
    if !is_root() || !has("mount") {
        return;
    }
    // Declared first, so that it is unmounted after the pool has ended.
    let mount;
    let pool = quick();
    let id = keeper(&pool, "web");
    mount = Mount::new(pool.dir(&id).join("tmp/busy"), "64k");
    if mount.is_none() {
        return;
    }
    let remove = || pool.ctl(&["rm", "--force", "--op-id", "rm", &id]).expect(0).stderr;
    let told = remove();
    assert!(
        told.contains("is removed, but not all of its files") && told.contains("poolctl prune"),
        "{told}"
    );
    assert_eq!(remove(), told);
}

#[test]
fn a_log_that_cannot_be_looked_at_is_named_by_who_would_remove_it() {
    let pool = Pool::bare_without_rights(QUICK);
    pool.start_all();
    let id = pool.script("web", "echo text; exec sleep 1000");
    let logs = pool.dir(&id).join("logs");
    wait_until("its log is there", PATIENCE, || logs.join("output.log").exists());
    pool.ok(&["kill", &id]);
    let allow = |mode| fs::set_permissions(&logs, fs::Permissions::from_mode(mode)).unwrap();
    allow(0);
    let why = format!("the log in {} cannot be looked at", logs.parent().unwrap().display());
    let told = pool.ctl(&["rm", &id]).expect(0).stderr;
    assert!(told.contains("is removed, but not all of its files") && told.contains(&why), "{told}");
    let told = pool.ctl(&["prune", "--purge"]).expect(1).stderr;
    assert!(told.contains(&why), "{told}");
    allow(0o700);
    pool.ok(&["prune", "--purge"]);
    assert!(!logs.exists());
}
