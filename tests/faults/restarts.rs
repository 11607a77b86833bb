//! The daemons stop and start in every order; the programs in the panes do not notice.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;

use super::support::{panes, records};
use crate::harness::{PATIENCE, Pool, Program, Talk, children, gone, send_signal, wait_until};

const PANES: usize = 8;

/// Every order of the three daemons.
const ORDERS: [[Program; 3]; 6] = {
    use Program::{Poold, Reaper, Watch};
    [
        [Poold, Watch, Reaper],
        [Poold, Reaper, Watch],
        [Watch, Poold, Reaper],
        [Watch, Reaper, Poold],
        [Reaper, Poold, Watch],
        [Reaper, Watch, Poold],
    ]
};

/// Creates sessions with some history.
fn populate(pool: &Pool) {
    for n in 0..PANES {
        let id = pool.ok(&["new", &format!("s{n}"), "--label", &format!("n={n}"), "--", "cat"]);
        for text in 0..=n % 3 {
            pool.ok(&["send", &id, "--wait", "done", &format!("line {text}")]);
        }
    }
    pool.ok(&["sync"]);
}

#[test]
fn the_prompt_of_a_shell_that_was_killed_with_poold_is_not_done() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "sh", "--agent", "shell", "--", "bash", "--norc", "-i"]);
    let sent = pool.ok(&["send", &id, "--wait", "accepted", "while :; do read -t 0.1 </dev/null; done"]);
    let (shell, _) = pool.pane_pids(&id);
    pool.kill9(Program::Poold);
    send_signal(shell, Signal::SIGKILL);
    wait_until("the shell is gone", PATIENCE, || gone(shell));
    pool.start_poold();
    pool.await_lifecycle(&id, "stopped");
    let message = pool.json(&["queue", "show", &id, sent.lines().next().unwrap()]);
    assert_eq!(message["state"], "dead", "{message}");
}

#[test]
fn a_drain_that_was_cut_off_with_tmux_is_a_loss() {
    let pool = Pool::with("[pool]\nidle_quiet = '1s'\n");
    let id = pool.script("web", "while :; do echo tick; sleep 0.1; done");
    pool.ok(&["drain", &id]);
    // Only silence since the start of the program counts, so it has to run for longer than that.
    wait_until("it has run for longer", PATIENCE, || pool.ok(&["logs", &id]).matches("tick").count() > 12);
    let (server, (program, _)) = (pool.tmux_pid().unwrap(), pool.pane_pids(&id));
    let log = pool.dir(&id).join("logs/output.log");
    pool.kill9(Program::Poold);
    send_signal(server, Signal::SIGKILL);
    wait_until("both are gone", PATIENCE, || gone(server) && gone(program));
    // If the age of its log counted, the session would be at rest.
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().append(true).open(log).unwrap().set_modified(long_ago).unwrap();
    pool.start_poold();
    pool.await_lifecycle(&id, "lost");
}

#[test]
fn t05_every_order_of_deaths_and_starts_changes_no_pane() {
    let pool = Pool::new();
    populate(&pool);
    let (panes_before, before) = (panes(&pool), records(&pool));
    assert_eq!((panes_before.len(), before.len()), (PANES, PANES));
    let mut last_id = PANES;
    for (n, deaths) in ORDERS.iter().enumerate() {
        // Every order of the starts comes after two orders of the deaths.
        for starts in ORDERS.iter().cycle().skip(n).take(2) {
            deaths.iter().for_each(|program| pool.kill9(*program));
            for program in starts {
                pool.start(*program);
            }
            pool.await_complete();
            let round = format!("{deaths:?} {starts:?}");
            assert_eq!(panes(&pool), panes_before, "{round}");
            assert_eq!(records(&pool), before, "{round}");
        }
        let id = pool.ok(&["new", &format!("extra{n}"), "--", "cat"]);
        last_id += 1;
        assert_eq!(id, format!("sess_{last_id}"), "an id is never used twice");
        pool.ok(&["rm", "--force", "--purge", &id]);
    }
}

/// Pids of the daemons as `status` reports them.
fn daemon_pids(pool: &Pool) -> Option<[u32; 3]> {
    let status = pool.ctl(&["--json", "--timeout", "1s", "status"]);
    if status.code != 0 {
        return None;
    }
    let status = status.json();
    let pid = |value: &serde_json::Value| u32::try_from(value.as_u64()?).ok();
    let component = |name: &str| {
        let mut all = status["components"].as_array()?.iter();
        pid(&all.find(|component| component["name"] == name)?["pid"])
    };
    Some([pid(&status["pid"])?, component("tmux-watch")?, component("reaper")?])
}

/// Waits until all three daemons run and none of `killed` is among them; returns the time it took.
fn await_others(pool: &Pool, killed: &[u32]) -> Duration {
    let began = Instant::now();
    wait_until("the daemons are back and connected", PATIENCE, || {
        daemon_pids(pool).is_some_and(|pids| pids.iter().all(|pid| !killed.contains(pid)))
    });
    began.elapsed()
}

#[test]
fn up_brings_killed_daemons_back_each_and_all() {
    let pool = Pool::bare("");
    pool.ok(&["--timeout", "30s", "up"]);
    populate(&pool);
    let (panes_before, before) = (panes(&pool), records(&pool));
    let mut took = Vec::new();
    for which in [&[0][..], &[1], &[2], &[0, 1, 2]] {
        let pids = daemon_pids(&pool).unwrap();
        let killed: Vec<u32> = which.iter().map(|n| pids[*n]).collect();
        killed.iter().for_each(|pid| send_signal(*pid, Signal::SIGKILL));
        wait_until("they are dead", PATIENCE, || killed.iter().all(|pid| gone(*pid)));
        took.push(await_others(&pool, &killed));
        assert_eq!(panes(&pool), panes_before, "{which:?}");
        assert_eq!(records(&pool), before, "{which:?}");
    }
    eprintln!("back after {took:?}");
    pool.ok(&["down"]);
    assert_eq!(panes(&pool), panes_before, "the end of the pool is not the end of its sessions");
}

/// Starts a shell that marks its prompts and its commands, and has run one.
fn marking_shell(pool: &Pool, name: &str) -> String {
    let prompt = ["--env", "PS1=\x1b]133;A\x07$ \x1b]133;B\x07", "--env", "PS0=\x1b]133;C\x07"];
    let shell =
        ["new", name, "--agent", "shell"].into_iter().chain(prompt).chain(["--", "bash", "--norc", "-i"]);
    let id = pool.ok(&shell.collect::<Vec<_>>());
    pool.ok(&["send", &id, "--wait", "done", "true"]);
    wait_until("its marks are known", PATIENCE, || pool.show(&id)["activity_source"] == "terminal");
    id
}

/// Sends a command, and waits until it runs. Returns the message's id.
fn run_sleep(pool: &Pool, id: &str) -> String {
    let message = pool.ok(&["send", id, "sleep 1000"]);
    wait_until("it runs", PATIENCE, || {
        pool.json(&["queue", "show", id, &message])["state"] == "accepted"
            && pool.show(id)["current_command"] == "sleep"
    });
    message
}

#[test]
fn p12_a_command_that_is_ended_with_its_session_is_dead_though_the_shell_draws_its_prompt_again() {
    let pool = Pool::new();
    for (name, end) in [("a", &["kill", "a"][..]), ("b", &["restart", "b"]), ("c", &["park", "--force", "c"])]
    {
        let id = marking_shell(&pool, name);
        let message = run_sleep(&pool, &id);
        pool.ok(end);
        let state = || pool.json(&["queue", "show", &id, &message])["state"].clone();
        wait_until("the message is final", PATIENCE, || state() != "accepted");
        assert_eq!(state(), "dead", "{end:?}");
    }
}

#[test]
fn p12_a_command_whose_end_the_log_times_too_early_is_done_all_the_same() {
    let pool = Pool::new();
    let id = marking_shell(&pool, "web");
    let work = pool.dir(&id);
    let message = run_sleep(&pool, &id);
    let bash = pool.pane_pids(&id).0;
    pool.kill9(Program::Poold);
    children(bash).into_iter().for_each(|sleep| send_signal(sleep, Signal::SIGTERM));
    wait_until("it ended", PATIENCE, || children(bash).is_empty());
    // The index is exact to a second: here, all was written in the first one.
    let times = work.join("logs/output.times");
    let text = fs::read_to_string(&times).unwrap();
    let first = text.split(' ').next().unwrap();
    let rest = text.lines().map(|line| line.split_once(' ').unwrap().1);
    fs::write(&times, rest.map(|line| format!("{first} {line}\n")).collect::<String>()).unwrap();
    pool.start(Program::Poold);
    pool.await_complete();
    pool.ok(&["--timeout", "60s", "wait", &id, "--for", &format!("message:{message}")]);
}

#[test]
fn o02_who_waits_is_answered_by_the_next_poold() {
    let pool = Pool::new();
    pool.script("web", "exec sleep 1000");
    let script = format!("until [ -e {} ]; do sleep 0.02; done; exit 5", pool.path("go").display());
    let mut run = Talk::start(pool.poolctl().args(["run", "job", "--", "sh", "-c", &script]));
    let send = ["send", "web", "--kind", "note", "--wait", "done", "text"];
    let mut sent = Talk::start(pool.poolctl().args(send));
    wait_until("the message is sent", PATIENCE, || !sent.lines().is_empty());
    wait_until("the command runs", PATIENCE, || pool.ctl(&["show", "job"]).code == 0);
    pool.await_lifecycle("job", "live");
    for _ in 0..3 {
        pool.end(Program::Poold, Signal::SIGTERM);
        pool.start(Program::Poold);
        pool.await_complete();
    }
    assert!(run.runs() && sent.runs(), "{} {}", run.errors(), sent.errors());
    fs::write(pool.path("go"), "").unwrap();
    assert_eq!(run.await_end(), Some(5), "{}", run.errors());
    pool.ok(&["work", "web", "--once", "--", "true"]);
    assert_eq!(sent.await_end(), Some(0), "{}", sent.errors());
}
