//! Limits of a session: each really applies, to that session alone, and one that cannot be enforced is
//! refused or named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use super::support::{await_slots, bystander, events, running};
use crate::faults::support::on_a_disk;
use crate::harness::{PATIENCE, Pool, alive, pids, skipped, wait_until};

const NO_GROUPS: &str = "[pool]\ncgroup = 'off'\nmin_free_disk = '0B'\n[reaper]\ngrace = '200ms'\n";

#[test]
fn g06_a_memory_hog_is_ended_and_nobody_else() {
    let pool = Pool::with(NO_GROUPS);
    let other = bystander(&pool);
    let others = running(&pool).remove(0);
    // Several processes that each stay below the limit.
    let script =
        "for n in 1 2 3; do (head -c 40000000 /dev/zero; exec sleep 1000) | tail -c 40000000 & done; wait";
    let id = pool.ok(&["new", "hog", "--limit", "mem=64M", "--", "sh", "-c", script]);
    let shown = pool.await_lifecycle(&id, "stopped");
    assert_eq!(shown["reason"], "memory_limit", "{shown}");
    let exceeded = events(&pool, "limit_exceeded");
    assert_eq!(exceeded.len(), 1, "{exceeded:#?}");
    assert_eq!((&exceeded[0]["limit"], &exceeded[0]["allowed"]), (&"memory".into(), &(64 << 20).into()));
    assert!(exceeded[0]["used"].as_u64().unwrap() > 64 << 20);
    assert!(alive(other) && pool.lifecycle("bystander") == "live");
    wait_until("nothing of it is left", PATIENCE, || pool.marked().iter().all(|(_, tag)| tag == &others));
}

#[test]
fn g06_what_goes_over_a_limit_may_be_reported_alone() {
    let pool = Pool::with(&format!("{NO_GROUPS}[reaper.policy]\nmemory = 'report'\n"));
    let script = "(head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 90000000";
    let id = pool.ok(&["new", "hog", "--limit", "mem=64M", "--", "sh", "-c", script]);
    wait_until("it is reported", PATIENCE, || !events(&pool, "limit_exceeded").is_empty());
    assert_eq!(events(&pool, "limit_exceeded")[0]["ended"], false);
    assert_eq!(pool.lifecycle(&id), "live");
    let usage = &pool.lines(&["stats", &id])[0];
    assert!(usage["memory"].as_u64().unwrap() > 64 << 20, "{usage}");
    assert!(usage["processes"].as_u64().unwrap() >= 3, "{usage}");
}

#[test]
fn g06_a_disk_limit_that_does_not_count_everything_is_told() {
    let pool = Pool::bare_without_rights(NO_GROUPS);
    pool.start_all();
    let script = "mkdir -m 0 shut; exec sleep 1000";
    let id = pool.ok(&["new", "vol", "--limit", "disk=20M", "--", "sh", "-c", script]);
    let is_told = || pool.status()["problems"].to_string().contains("the disk limit of vol does not count");
    wait_until("it is told", PATIENCE, is_told);
    let shut = pool.dir(&id).join("work/shut");
    fs::set_permissions(shut, fs::Permissions::from_mode(0o700)).unwrap();
    wait_until("everything counts", PATIENCE, || !is_told());
}

#[test]
fn g06_what_was_ended_for_its_memory_counts_as_failed() {
    let pool = Pool::with(&format!("{NO_GROUPS}[restart]\nbackoff = '50ms'\n"));
    let script = "echo run >>runs; [ $(wc -l <runs) -gt 1 ] && exec sleep 1000; \
                  (head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 90000000";
    let id =
        pool.ok(&["new", "hog", "--limit", "mem=64M", "--restart", "on-failure", "--", "sh", "-c", script]);
    wait_until("it runs again", PATIENCE, || pool.show(&id)["incarnations"] == 2);
    pool.await_lifecycle(&id, "live");
}

#[test]
fn g06_a_disk_filler_is_ended_before_the_disk_is_full() {
    let Some((_mount, pool)) = on_a_disk(&format!("{NO_GROUPS}[queue]\nmin_free_disk = '0B'\n"), "256m")
    else {
        return;
    };
    pool.start_all();
    let other = bystander(&pool);
    let script = "while :; do head -c 1000000 /dev/zero >>filler; sleep 0.05; done";
    let id = pool.ok(&["new", "filler", "--limit", "disk=8M", "--", "sh", "-c", script]);
    let shown = pool.await_lifecycle(&id, "stopped");
    assert_eq!(shown["reason"], "disk_limit", "{shown}");
    assert_eq!(events(&pool, "limit_exceeded")[0]["limit"], "disk");
    assert!(alive(other));
    pool.ok(&["send", "bystander", "text"]);
    assert!(fs::metadata(pool.dir(&id).join("work/filler")).unwrap().len() > 8 << 20, "its work is left");
}

#[test]
fn a_run_time_is_kept_across_the_death_of_poold() {
    let pool = Pool::with(NO_GROUPS);
    let other = bystander(&pool);
    let id =
        pool.ok(&["new", "long", "--max-runtime", "1500ms", "--restart", "always", "--", "sleep", "1000"]);
    pool.restart_poold();
    let shown = pool.await_lifecycle(&id, "stopped");
    assert_eq!(shown["reason"], "run_time", "{shown}");
    assert_eq!(shown["budget"]["due_at"], serde_json::Value::Null, "its time is over, whatever its policy");
    assert!(alive(other));
}

#[test]
fn g06_limits_of_processes_hold_for_it_and_for_its_children() {
    let pool = Pool::with(&format!("{NO_GROUPS}[agents.small]\nlimits = 'nofile=77,nice=3'\n"));
    let tell =
        "ulimit -n; ulimit -c; ulimit -f; nice; awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status";
    let script = format!("({tell}) >told; touch ready; exec sleep 1000");
    let told = |name: &str, flags: &[&str]| {
        let id = pool.ok(&[&["new", name], flags, &["--", "sh", "-c", &script]].concat());
        let dir = pool.dir(&id).join("work");
        wait_until("it told", PATIENCE, || dir.join("ready").exists());
        let told = fs::read_to_string(dir.join("told")).unwrap();
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let limits = "nofile=100,core=0,fsize=1M,nice=7";
    let mut wanted = vec!["100", "0", "2048", "7"];
    if cfg!(target_os = "linux") {
        wanted.push("0");
    }
    let limits = if cfg!(target_os = "linux") { format!("{limits},cpus=0") } else { limits.to_owned() };
    assert_eq!(told("web", &["--limit", &limits]), wanted);
    assert_eq!(pool.show("web")["limits"]["text"], limits);
    assert_eq!(pool.show("web")["unenforced"], serde_json::json!([]));
    // The agent's limits apply where the session sets none.
    let of_agent = told("agent", &["--agent", "small", "--limit", "nice=9"]);
    assert_eq!((&of_agent[0][..], &of_agent[3][..]), ("77", "9"));
}

#[test]
fn g06_a_limit_that_no_process_can_hold_is_refused_with_what_to_do() {
    let pool = Pool::with(NO_GROUPS);
    for limit in ["cpus=8191", "nofile=1073741824"] {
        let refused = pool.ctl(&["new", "web", "--limit", limit, "--", "true"]).expect(5);
        let key = limit.split('=').next().unwrap();
        assert!(refused.stderr.contains(&format!("its limit {key}=")), "{refused:?}");
        assert!(refused.stderr.contains("`--limits best-effort`"), "{refused:?}");
        assert_eq!(pool.show("web")["reason"], "exec_failed");
        pool.ctl(&["restart", "web"]).expect(5);
        pool.ok(&["rm", "web"]);
        let run = pool.ctl(&["run", "--rm", "--limit", limit, "--", "true"]).expect(126);
        assert!(run.stderr.contains("its limit"), "{run:?}");
        assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
        pool.ok(&["new", "web", "--limit", limit, "--limits", "best-effort", "--", "true"]);
        pool.await_lifecycle("web", "stopped");
        pool.ok(&["rm", "web"]);
    }
}

#[test]
fn g06_a_file_grows_no_larger_than_it_may() {
    let pool = Pool::with(NO_GROUPS);
    let run = pool.ctl(&[
        "run",
        "big",
        "--limit",
        "fsize=1M",
        "--",
        "sh",
        "-c",
        "exec head -c 3000000 /dev/zero >f",
    ]);
    assert_eq!(run.code, 128 + 25, "SIGXFSZ: {run:?}");
    assert_eq!(fs::metadata(pool.dir("big").join("work/f")).unwrap().len(), 1 << 20);
}

#[test]
fn g06_what_needs_a_control_group_is_refused_without_one_unless_best_effort_is_enough() {
    let pool = Pool::with(NO_GROUPS);
    assert!(
        pool.status()["room"]["without"].as_str().is_some_and(|why| !why.is_empty()) || {
            pool.ok(&["new", "--", "true"]);
            pool.status()["room"]["without"].is_string()
        }
    );
    for limit in ["tasks=50", "cpu=50%"] {
        let refused = pool.ctl(&["new", "web", "--limit", limit, "--", "true"]).expect(5);
        assert!(refused.stderr.contains("best-effort"), "{refused:?}");
        pool.ctl(&["show", "web"]).expect(3);
    }
    let id = pool.ok(&[
        "new",
        "web",
        "--limit",
        "tasks=50,cpu=50%",
        "--limits",
        "best-effort",
        "--",
        "sleep",
        "1000",
    ]);
    let unenforced = pool.show(&id)["unenforced"].to_string();
    assert!(unenforced.contains("tasks") && unenforced.contains("cpu"), "{unenforced}");
    let shown = pool.ok(&["show", &id]);
    assert!(shown.contains("tasks") && shown.contains("not limited"), "{shown}");
}

/// A control group of the test's own, removed with everything below it on drop.
struct OwnGroup(PathBuf);

impl OwnGroup {
    /// Creates the group; prints a skip and returns `None` where that is impossible.
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let at = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let at = words.nth(1)?;
            (words.next()? == "cgroup2").then(|| PathBuf::from(at))
        });
        let path = at?.join(format!("tmux-pool-test-{}-{name}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                skipped(&format!("no control group can be made: {error}"));
                None
            }
        }
    }

    fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        walk(&self.0, &mut |dir| {
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        });
        found
    }

    fn groups(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("sessions")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

/// Visits all directories, children before parents.
fn walk(dir: &Path, with: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            walk(&entry.path(), with);
        }
    }
    with(dir);
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        walk(&self.0, &mut |dir| drop(fs::remove_dir(dir)));
        assert!(thread::panicking() || !self.0.exists(), "{} is left", self.0.display());
    }
}

#[test]
fn g06_a_session_has_a_control_group_of_its_own_that_goes_with_it() {
    let Some(group) = OwnGroup::new("own") else { return };
    let config = format!("[pool]\ncgroup = '{}'\n[reaper]\ngrace = '200ms'\n", group.0.display());
    let pool = Pool::with(&config);
    let id = pool.script("web", "sleep 1000 & exec sleep 1000");
    let shown = pool.show(&id);
    let own = PathBuf::from(shown["cgroup"].as_str().unwrap_or_else(|| panic!("no group: {shown}")));
    assert!(own.starts_with(&group.0) && own.is_dir(), "{}", own.display());
    let (agent, _) = pool.pane_pids(&id);
    let of_agent = fs::read_to_string(format!("/proc/{agent}/cgroup")).unwrap();
    let tail = own.strip_prefix(group.0.parent().unwrap()).unwrap();
    assert!(of_agent.lines().any(|line| line == format!("0::/{}", tail.display())), "{of_agent}");
    wait_until("its program and that one's child are there", PATIENCE, || group.processes().len() == 2);
    assert_eq!(pool.status()["room"]["cgroup"], group.0.to_str().unwrap());
    pool.ok(&["restart", &id]);
    assert_eq!(group.groups().len(), 1, "one for each incarnation that runs: {:?}", group.groups());
    pool.ok(&["kill", &id]);
    pool.ok(&["rm", &id]);
    wait_until("its group is gone", PATIENCE, || group.groups().is_empty());
}

#[test]
fn g06_a_fork_bomb_in_a_control_group_is_ended_whole() {
    let Some(group) = OwnGroup::new("bomb") else { return };
    let config = format!("[pool]\ncgroup = '{}'\n[reaper]\ngrace = '200ms'\n", group.0.display());
    let pool = Pool::with(&config);
    let other = bystander(&pool);
    // Each of these starts others, in sessions of their own and with an empty environment.
    let script = "for n in $(seq 15); do env -i setsid sh -c 'trap \"\" TERM HUP; while :; do setsid sleep 0.3; done' & done; wait";
    let id = pool.script("bomb", script);
    wait_until("it forks", PATIENCE, || group.processes().len() > 25);
    pool.ok(&["--timeout", "60s", "kill", &id]);
    assert_eq!(pool.lifecycle(&id), "stopped");
    wait_until("nothing of it is left", PATIENCE, || group.processes().len() <= 2);
    assert!(alive(other));
    pool.ok(&["rm", &id]);
    wait_until("its group is gone", PATIENCE, || group.groups().len() == 1);
    pool.ok(&["kill", "bystander"]);
    await_slots(&pool, 0);
}

#[test]
fn g06_a_fork_bomb_without_a_control_group_is_ended_whole() {
    let pool = Pool::with(NO_GROUPS);
    let other = bystander(&pool);
    // A word that no other process has in its arguments.
    let word = format!("0.2{}", std::process::id());
    let script = format!(
        "for n in $(seq 12); do setsid sh -c 'trap \"\" TERM HUP; while :; do setsid sleep {word}; done' & done; wait"
    );
    let id = pool.script("bomb", &script);
    let bombs = || {
        let with = |pid: &u32| crate::harness::words(*pid).windows(word.len()).any(|w| w == word.as_bytes());
        pids().into_iter().filter(with).filter(|pid| alive(*pid)).count()
    };
    wait_until("it forks", PATIENCE, || bombs() > 20);
    pool.ok(&["--timeout", "60s", "kill", &id]);
    wait_until("nothing of it is left", PATIENCE, || bombs() == 0);
    assert!(alive(other) && pool.lifecycle("bystander") == "live");
}
