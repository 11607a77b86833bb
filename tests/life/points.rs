//! `poold` dies between any two steps of a session's lifecycle. No slot is lost, nothing runs twice, and no
//! acknowledged message is forgotten.

use std::thread;

use super::support::{KEEPER, await_lines, keeper, lines, most_running, running, slots};
use crate::faults::support::crashing;
use crate::harness::{Output, PATIENCE, Pool, Program, eventually, number, wait_until};

/// Rounds at each crash point; `POOL_CRASH_ROUNDS` sets more.
const ROUNDS: usize = 1;
/// Pools running at a time.
const LANES: usize = 4;

/// Crash points; `:N` means the N-th time it is reached.
const POINTS: [&str; 12] = [
    "park-hang-up",
    "new-before-tmux",
    "new-after-tmux",
    "commit-begin:2",
    "commit-begin:3",
    "commit-begin:4",
    "commit-begin:5",
    "commit-written:2",
    "commit-written:3",
    "commit-written:4",
    "commit-written:5",
    "commit-written:6",
];

const CONFIG: &str = "[pool]\nmax_sessions = 3\nidle_quiet = '100ms'\nidle_settle = '100ms'\n[restart]\nmax = 128\n[reaper]\ngrace = '200ms'\n";

/// Makes a request while `poold` is to die at `point`, and starts another `poold` once it has. Where the
/// point is never reached, `poold` is killed after the request is done.
#[track_caller]
fn across_a_crash(pool: &Pool, point: &str, args: &[&str]) {
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(pool, point));
    let args = [&["--timeout", "60s"], args].concat();
    // A client that finds no `poold`, or comes before the reaper is connected, repeats the request.
    let again = |told: &Output| told.code == 7 || told.stderr.contains("no reaper is connected");
    let ask =
        || eventually("there is a poold", PATIENCE * 2, || Some(pool.ctl(&args)).filter(|told| !again(told)));
    thread::scope(|scope| {
        let client = scope.spawn(ask);
        let died = || pool.ended(Program::Poold).is_some();
        wait_until("it is done, or poold died", PATIENCE * 2, || died() || client.is_finished());
        pool.kill9(Program::Poold);
        pool.start(Program::Poold);
        let told = client.join().unwrap();
        assert_eq!(told.code, 0, "{point}: {told:?} {}", pool.logs());
    });
    pool.await_poold();
}

/// Takes one session through all its changes, with a crash at `point` in each; a second session is never
/// touched.
fn all_changes(point: &str) {
    let pool = Pool::with(&format!("{CONFIG}{KEEPER}"));
    let id = keeper(&pool, "web");
    let bystander = pool.script("bystander", "exec sleep 1000");
    let agent = pool.pane_pids(&bystander).0;
    let mut told: Vec<String> = Vec::new();
    for round in 0..number("POOL_CRASH_ROUNDS", ROUNDS) {
        for (n, change) in ["park", "wake", "restart", "park", "restore", "evict"].into_iter().enumerate() {
            let what = format!("{point}.{round}.{n}.{change}");
            let (most, ()) = most_running(&pool, || match change {
                "park" => across_a_crash(&pool, point, &["park", &id, "--op-id", &what]),
                "wake" => {
                    let text = format!("{change} {round}");
                    across_a_crash(&pool, point, &["send", &id, "--key", &text, &text]);
                    settle_doubt(&pool, &id, &text);
                    told.push(text);
                }
                "evict" => {
                    evict(&pool, point, &id, &what);
                    told.push("evicted".to_owned());
                }
                _ => across_a_crash(&pool, point, &[change, &id, "--op-id", &what]),
            });
            assert!(most <= 3, "{what}: {most} ran");
            let parked = matches!(change, "park" | "evict");
            pool.await_lifecycle(&id, if parked { "parked" } else { "live" });
            let wanted = if parked { 1 } else { 2 };
            wait_until(&format!("{what}: as many programs as slots, and no more"), PATIENCE, || {
                slots(&pool) == wanted && running(&pool).len() == wanted as usize
            });
            // A start that was decided but never ran counts too.
            let runs = lines(&pool, &id, "runs").len() as u64;
            assert!(runs <= pool.show(&id)["incarnations"].as_u64().unwrap(), "{what}");
        }
    }
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    await_lines(&pool, &id, "got", &told);
    assert_eq!(pool.pane_pids(&bystander).0, agent);
}

/// Settles a message left in doubt by the crash as a user would: by looking at the program's input.
#[track_caller]
fn settle_doubt(pool: &Pool, id: &str, text: &str) {
    let state = || {
        let queue = pool.lines(&["queue", "ls", id]);
        let found = queue.iter().find(|message| message["key"] == text)?;
        Some((found["id"].to_string(), found["state"].as_str()?.to_owned()))
    };
    let (message, state) = eventually("it was typed or is in doubt", PATIENCE, || {
        state().filter(|(_, state)| ["done", "in_doubt"].contains(&state.as_str()))
    });
    if state == "in_doubt" {
        let got = pool.dir(id).join("work/got");
        let arrived = std::fs::read_to_string(got).unwrap_or_default().lines().any(|line| line == text);
        if !arrived {
            // The text may stand there without its Enter.
            pool.ok(&["keys", id, "C-u"]);
        }
        pool.ok(&["queue", "resolve", id, &message, "--as", if arrived { "done" } else { "retry" }]);
    }
    wait_until("it arrived", PATIENCE, || lines(pool, id, "got").iter().any(|line| line == text));
}

/// Makes the session give up its slot to another one, which is then removed.
#[track_caller]
fn evict(pool: &Pool, point: &str, id: &str, what: &str) {
    pool.ok(&["send", id, "--wait", "done", "evicted"]);
    pool.script("holder", "exec sleep 1000");
    let new = ["new", "other", "--op-id", what, "--wait-slot", "40s", "--", "sleep", "1000"];
    across_a_crash(pool, point, &new);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 4, "{what}");
    for name in ["holder", "other"] {
        pool.ok(&["rm", "--force", "--purge", name]);
    }
}

#[test]
#[ignore = "a campaign, run by scripts/soak: the simulator crashes at every step"]
fn q06_a_crash_at_any_step_of_a_life_loses_no_slot_and_runs_nothing_twice() {
    thread::scope(|scope| {
        for lane in 0..LANES {
            let lane = POINTS.iter().skip(lane).step_by(LANES);
            scope.spawn(move || lane.for_each(|point| all_changes(point)));
        }
    });
}
