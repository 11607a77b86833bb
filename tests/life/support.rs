//! Shared helpers: an agent that records its input, an attached client, the running programs.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{PATIENCE, Pool, Talk, wait_until};

/// An agent that may be parked: it notes each of its runs with its arguments in the file `runs` of its
/// directory, and each line it reads in the file `got`. It dies of a hang-up like most programs.
pub(super) const KEEPER: &str = r#"
[agents.keeper]
command = "sh"
args = ["-c", 'echo "$*" >>runs; while IFS= read -r line; do printf "%s\n" "$line" >>got; done', "keeper"]
parkable = true
"#;

/// Configuration with `slots` slots, in which a session quiet for a moment counts as idle.
pub(super) fn few_slots(slots: usize) -> String {
    format!(
        "[pool]\nmax_sessions = {slots}\nidle_quiet = '300ms'\nidle_settle = '300ms'\n[restart]\nmax = 128\n[reaper]\n\
         grace = '300ms'\n{KEEPER}"
    )
}

/// A new session of the agent that may be parked; returns its id.
#[track_caller]
pub(super) fn keeper(pool: &Pool, name: &str) -> String {
    pool.ok(&["new", name, "--agent", "keeper"])
}

/// Lines of a file in a session's `work/`; none where it does not exist.
#[track_caller]
pub(super) fn lines(pool: &Pool, session: &str, file: &str) -> Vec<String> {
    let text = fs::read_to_string(pool.dir(session).join("work").join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
pub(super) fn await_lines(pool: &Pool, session: &str, file: &str, wanted: &[&str]) {
    let file = pool.dir(session).join("work").join(file);
    let read = || fs::read_to_string(&file).unwrap_or_default();
    wait_until(&format!("{} is {wanted:?}, not {:?}", file.display(), read()), PATIENCE, || {
        read().lines().eq(wanted.iter().copied())
    });
}

/// Starts a session that must not be affected; returns its program's pid.
#[track_caller]
pub(crate) fn bystander(pool: &Pool) -> u32 {
    let id = pool.script("bystander", "exec sleep 1000");
    pool.pane_pids(&id).0
}

/// A client attached to a session until dropped.
#[track_caller]
pub(crate) fn attached(pool: &Pool, session: &str) -> Talk {
    let shown = pool.show(session);
    let tmux = shown["tmux"]["session_id"].as_str().unwrap();
    let client = Talk::attached(pool, tmux);
    wait_until("it is attached", PATIENCE, || pool.show(session)["attached_clients"] == 1);
    client
}

/// Tags of the panes whose programs run, one entry a pane.
pub(super) fn running(pool: &Pool) -> Vec<String> {
    let panes = pool.tmux_panes("#{pane_dead} #{@pool_id}");
    panes.iter().filter_map(|pane| pane.strip_prefix("0 ")).map(str::to_owned).collect()
}

/// Kills `poold`, starts it again and makes it observe tmux: a watcher that has just reconnected has seen
/// nothing yet.
#[track_caller]
pub(super) fn restart_and_look(pool: &Pool) {
    pool.restart_poold();
    wait_until("tmux is seen", PATIENCE, || pool.ctl(&["sync"]).code == 0);
}

/// Number of slots in use.
#[track_caller]
pub(crate) fn slots(pool: &Pool) -> u64 {
    pool.status()["slots"]["used"].as_u64().unwrap()
}

#[track_caller]
pub(super) fn await_slots(pool: &Pool, wanted: u64) {
    wait_until(&format!("{wanted} slots are taken: {}", pool.status()["slots"]), PATIENCE, || {
        slots(pool) == wanted
    });
}

/// Number of sessions in each lifecycle.
#[track_caller]
pub(super) fn states(pool: &Pool) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for session in pool.lines(&["ls", "--all"]) {
        *states.entry(session["lifecycle"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    states
}

#[track_caller]
pub(super) fn events(pool: &Pool, kind: &str) -> Vec<Value> {
    pool.lines(&["events", "--kind", kind])
}

/// Runs `run` while counting running programs in panes through tmux; also returns the highest count.
pub(super) fn most_running<R>(pool: &Pool, run: impl FnOnce() -> R) -> (usize, R) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let look = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(running(pool).len());
                thread::sleep(Duration::from_millis(40));
            }
            most
        });
        let ends = EndsWith(&over);
        let result = run();
        drop(ends);
        (look.join().unwrap(), result)
    })
}

/// Sets the flag on drop, also when a test fails.
struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
