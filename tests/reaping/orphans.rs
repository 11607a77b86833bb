//! A process with the mark of something that has ended is ended and reported; a mark of nobody's or of
//! another pool's counts for nothing.

use std::path::Path;

use nix::sys::signal::Signal;

use super::support::{
    Ours, Process, SOON, await_end, await_look, events, noted, over, slots, stray, verdict,
};
use crate::harness::{PATIENCE, Pool, Program, Talk, environ, eventually, send_signal, wait_until};

/// A command that leaves a process in a session of its own, which writes its pid to this file.
fn leave(file: &Path) -> String {
    format!("setsid sh -c 'echo $$ >>{}; exec sleep 1000' </dev/null >/dev/null 2>&1 &", file.display())
}

fn mark(process: Process) -> String {
    // While a process executes another program, its environment is empty.
    eventually("its mark", PATIENCE, || {
        let mut all = environ(process.pid).into_iter().map(|entry| String::from_utf8(entry).unwrap());
        all.find_map(|entry| entry.strip_prefix("POOL_INCARNATION=").map(str::to_owned))
    })
}

/// Findings of a rule about a process.
#[track_caller]
fn found(pool: &Pool, rule: &str, process: Process) -> Vec<serde_json::Value> {
    let names =
        |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|word| word == process.pid.to_string());
    let all = events(pool, "stale_found", None);
    all.into_iter().filter(|e| e["rule"] == rule && names(e["evidence"].as_str().unwrap())).collect()
}

/// A session with a program and a process detached from it; returns job, program and init.
#[track_caller]
fn with_a_job(pool: &Pool) -> (String, Process, Process, Process) {
    let id = pool.script("web", &format!("{} exec sleep 1000", leave(&pool.path("job.pid"))));
    let job = noted(&pool.path("job.pid"), 1)[0];
    let (agent, init) = pool.pane_pids(&id);
    (id, job, Process::of(agent).unwrap(), Process::of(init).unwrap())
}

#[test]
fn what_a_killed_init_could_not_end_goes_with_its_pane() {
    let pool = Pool::with(SOON);
    let (id, job, agent, init) = with_a_job(&pool);
    send_signal(init.pid, Signal::SIGKILL);
    wait_until("both are gone", PATIENCE, || !job.runs() && !agent.runs());
    pool.await_lifecycle(&id, "stopped");
    assert_eq!(slots(&pool), 0);
    let killed = verdict(&pool, &id)["gone"]["killed"].to_string();
    assert!(killed.contains(&job.pid.to_string()), "{}", pool.journal());
}

#[test]
fn what_outlived_its_init_and_its_pane_is_an_orphan() {
    let pool = Pool::with(SOON);
    let other = Process::of(pool.pane_pids(&pool.script("other", "exec sleep 1000")).0).unwrap();
    let (id, job, agent, init) = with_a_job(&pool);
    pool.kill9(Program::Reaper);
    let pane = pool.show(&id)["tmux"]["pane_id"].as_str().unwrap().to_owned();
    send_signal(init.pid, Signal::SIGKILL);
    wait_until("its program is gone", PATIENCE, || !init.runs() && !agent.runs());
    // It may be gone already.
    drop(pool.tmux(&["kill-pane", "-t", &pane]));
    wait_until("its end is known", PATIENCE, || slots(&pool) == 1);
    assert!(job.runs(), "{}", pool.journal());
    pool.start(Program::Reaper);
    wait_until("it is ended", PATIENCE, || !job.runs());
    let found = found(&pool, "orphans", job);
    assert_eq!(found.len(), 1, "{}", pool.journal());
    assert_eq!((&found[0]["session"], &found[0]["action"]), (&id.as_str().into(), &"kill".into()));
    assert!(other.runs() && pool.lifecycle("other") == "live");
}

#[test]
fn an_orphan_of_what_is_over_is_ended_and_told() {
    let pool = Pool::with(SOON);
    let other = Process::of(pool.pane_pids(&pool.script("other", "exec sleep 1000")).0).unwrap();
    let (tag, socket) = (over(&pool), pool.socket());
    let socket = socket.to_str().unwrap();
    let orphan = stray(&pool, &[("POOL_INCARNATION", &tag), ("POOL_SOCKET", socket)]);
    wait_until("it is ended", PATIENCE, || !orphan.0[0].runs());
    let found = found(&pool, "orphans", orphan.0[0]);
    assert_eq!(found.len(), 1, "{}", pool.journal());
    assert_eq!(found[0]["action"], "kill");
    assert!(other.runs() && pool.lifecycle("other") == "live");
}

#[test]
fn marks_of_nobody_and_of_another_pool_are_no_reason() {
    let (pool, foreign) = (Pool::with(SOON), Pool::with(SOON));
    let (tag, socket, other) = (over(&pool), pool.socket(), foreign.socket());
    let (socket, other) = (socket.to_str().unwrap(), other.to_str().unwrap());
    let id = foreign.script("web", "exec sleep 1000");
    let lives = mark(Process::of(foreign.pane_pids(&id).0).unwrap());
    let unknown = "00112233445566778899aabbccddeeff";
    // Claim marks are numbers: every pool has the same ones.
    let claim = "00000000000000010000000000000001";
    let strays = [
        stray(&pool, &[("POOL_INCARNATION", unknown), ("POOL_SOCKET", socket)]),
        stray(&pool, &[("POOL_INCARNATION", unknown)]),
        stray(&pool, &[("POOL_INCARNATION", &lives), ("POOL_SOCKET", other)]),
        stray(&pool, &[("POOL_INCARNATION", &lives), ("POOL_SOCKET", socket)]),
        stray(&pool, &[("POOL_INCARNATION", claim), ("POOL_SOCKET", "/nowhere/poold.sock")]),
        stray(&pool, &[("POOL_INCARNATION", claim)]),
        stray(&pool, &[("POOL_INCARNATION", &tag[..31]), ("POOL_SOCKET", socket)]),
        stray(&pool, &[("POOL_SOCKET", socket), ("POOL_SESSION", "sess_1")]),
    ];
    // This one belongs to a claim of this pool that is over.
    await_end(&pool, claim);
    for _ in 0..3 {
        await_look(&pool);
    }
    let hurt: Vec<_> = strays.iter().enumerate().filter(|(_, stray)| !stray.0[0].runs()).collect();
    assert!(hurt.is_empty(), "{hurt:?} {}", pool.journal());
    assert_eq!(events(&pool, "stale_found", None).len(), 4, "none was named: {}", pool.journal());
    strays.iter().for_each(Ours::end);
    assert_eq!(foreign.lifecycle(&id), "live");
}

#[test]
fn orphans_may_only_be_told_of() {
    let pool = Pool::with(&format!("{SOON}[reaper.policy]\norphans = 'report'\n"));
    let socket = pool.socket();
    let orphan = |tag: &str| {
        let orphan = stray(&pool, &[("POOL_INCARNATION", tag), ("POOL_SOCKET", socket.to_str().unwrap())]);
        wait_until("it is told", PATIENCE, || !found(&pool, "orphans", orphan.0[0]).is_empty());
        orphan
    };
    let first = orphan(&over(&pool));
    // Once two more orphans were found, several more searches were made.
    let others = [orphan(&over(&pool)), orphan(&over(&pool))];
    let told = found(&pool, "orphans", first.0[0]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["action"], "report");
    assert!(first.0[0].runs() && others.iter().all(|other| other.0[0].runs()));
    assert!(pool.json(&["reap", "--dry-run"])["candidates"].as_array().unwrap().is_empty());
    first.end();
    others.iter().for_each(Ours::end);
}

/// A worker whose handler leaves a process behind.
#[track_caller]
fn working(pool: &Pool) -> (Talk, Process, String) {
    pool.script("web", "exec sleep 1000");
    let (file, mut command) = (pool.path("job.pid"), pool.poolctl());
    let handler = format!("{} exec sleep 1000", leave(&file));
    command.args(["--json", "work", "web", "--kind", "job", "--", "sh", "-c", &handler]);
    let worker = Talk::start(&mut command);
    let message = pool.ok(&["send", "web", "--kind", "job", "text"]);
    (worker, noted(&file, 1)[0], message)
}

#[test]
fn what_a_killed_workers_handler_left_is_ended_and_another_pools_is_not() {
    let config = format!("{SOON}[queue]\nretry_backoff = '60s'\n");
    let (pool, foreign) = (Pool::with(&config), Pool::with(&config));
    let ((worker, left, _), (_other, kept, message)) = (working(&pool), working(&foreign));
    assert_eq!(mark(left), mark(kept), "both pools count alike");
    let handlers = crate::harness::children(worker.pid());
    drop(worker);
    wait_until("what it left is gone", PATIENCE, || !left.runs());
    assert!(handlers.iter().all(|pid| crate::harness::gone(*pid)), "{handlers:?}");
    assert_eq!(found(&pool, "orphans", left).len(), 1, "{}", pool.journal());
    await_look(&pool);
    await_look(&foreign);
    assert!(kept.runs());
    assert_eq!(foreign.json(&["queue", "show", "web", &message])["state"], "claimed");
}

#[test]
fn a_tmux_client_of_a_dead_poold_is_ended() {
    let pool = Pool::with(SOON);
    let id = pool.script("web", "exec sleep 1000");
    let poold = |pool: &Pool| Process::of(pool.pid(Program::Poold).unwrap()).unwrap().dotted();
    let dead = poold(&pool);
    pool.restart_poold();
    pool.await_complete();
    let client = |owner: &str, socket: &Path| {
        let mut command = pool.command("tmux");
        command.arg("-uN").arg("-C").arg("-S").arg(pool.tmux_socket()).arg("attach-session");
        command.env("POOL_TMUX_CLIENT", owner).env("POOL_SOCKET", socket);
        let client = Talk::start(&mut command);
        let process = Process::of(client.pid()).unwrap();
        (client, process)
    };
    let (_lives, living) = client(&poold(&pool), &pool.socket());
    let (_other, foreign) = client(&dead, Path::new("/nowhere/poold.sock"));
    let (_stale, stale) = client(&dead, &pool.socket());
    wait_until("it is ended", PATIENCE, || !stale.runs());
    let found = events(&pool, "stale_found", None);
    assert_eq!((found.len(), &found[0]["rule"]), (1, &"stale_client".into()), "{found:?}");
    let (owner, _) = dead.split_once('.').unwrap();
    assert!(found[0]["evidence"].as_str().unwrap().contains(owner), "{found:?}");
    await_look(&pool);
    assert!(living.runs() && foreign.runs());
    assert_eq!(pool.lifecycle(&id), "live");
}
