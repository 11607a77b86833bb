//! What several of these tests use: an agent that keeps what it is told, a client that looks on, what runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{PATIENCE, Pool, Talk, wait_until};

/// An agent that may be parked: it notes each of its runs with its arguments in the file `runs` of its
/// directory, and each line that it reads in the file `got`. It dies of a hang-up like most programs.
pub(super) const KEEPER: &str = r#"
[agents.keeper]
command = "sh"
args = ["-c", 'echo "$*" >>runs; while IFS= read -r line; do printf "%s\n" "$line" >>got; done', "keeper"]
parkable = true
"#;

/// The configuration of a pool with so many slots, in which what is quiet for a moment counts as idle.
pub(super) fn few_slots(slots: usize) -> String {
    format!(
        "[pool]\nmax_sessions = {slots}\nidle_quiet = '300ms'\nidle_settle = '300ms'\n[restart]\nmax = 128\n[reaper]\n\
         grace = '300ms'\n{KEEPER}"
    )
}

/// A new session of the agent that may be parked; its id.
#[track_caller]
pub(super) fn keeper(pool: &Pool, name: &str) -> String {
    pool.ok(&["new", name, "--agent", "keeper"])
}

/// The directory of a session.
#[track_caller]
pub(super) fn dir(pool: &Pool, session: &str) -> PathBuf {
    PathBuf::from(pool.show(session)["dir"].as_str().unwrap())
}

/// The lines of a file in the `work/` of a session; none where it is not there.
#[track_caller]
pub(super) fn lines(pool: &Pool, session: &str, file: &str) -> Vec<String> {
    let text = fs::read_to_string(dir(pool, session).join("work").join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
pub(super) fn await_lines(pool: &Pool, session: &str, file: &str, wanted: &[&str]) {
    let file = dir(pool, session).join("work").join(file);
    let read = || fs::read_to_string(&file).unwrap_or_default();
    wait_until(&format!("{} is {wanted:?}, not {:?}", file.display(), read()), PATIENCE, || {
        read().lines().eq(wanted.iter().copied())
    });
}

/// A client that is attached to a session until it is dropped.
#[track_caller]
pub(super) fn attached(pool: &Pool, session: &str) -> Talk {
    let shown = pool.show(session);
    let tmux = shown["tmux"]["session_id"].as_str().unwrap();
    let client = Talk::attached(pool, tmux);
    wait_until("it is attached", PATIENCE, || pool.show(session)["attached_clients"] == 1);
    client
}

/// The tags of the panes whose programs run, each once for each pane.
pub(super) fn running(pool: &Pool) -> Vec<String> {
    let panes = pool.tmux_panes("#{pane_dead} #{@pool_id}");
    panes.iter().filter_map(|pane| pane.strip_prefix("0 ")).map(str::to_owned).collect()
}

/// Kills `poold`, starts it again and has it look at tmux: a watcher that only just came back has seen nothing yet.
#[track_caller]
pub(super) fn restart_and_look(pool: &Pool) {
    pool.restart_poold();
    wait_until("tmux is seen", PATIENCE, || pool.ctl(&["sync"]).code == 0);
}

/// How many slots are taken.
#[track_caller]
pub(super) fn slots(pool: &Pool) -> u64 {
    pool.status()["slots"]["used"].as_u64().unwrap()
}

#[track_caller]
pub(super) fn await_slots(pool: &Pool, wanted: u64) {
    wait_until(&format!("{wanted} slots are taken: {}", pool.status()["slots"]), PATIENCE, || {
        slots(pool) == wanted
    });
}

/// How many sessions are in each state.
#[track_caller]
pub(super) fn states(pool: &Pool) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for session in pool.lines(&["ls", "--all"]) {
        *states.entry(session["lifecycle"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    states
}

/// The events of one kind.
#[track_caller]
pub(super) fn events(pool: &Pool, kind: &str) -> Vec<Value> {
    pool.lines(&["events", "--kind", kind])
}

/// Runs this while tmux is asked again and again how many programs run in panes; the most there were.
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

/// Set when dropped, also by a failing test.
struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
