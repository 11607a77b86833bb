//! Shared helpers: stopped processes, panes as tmux lists them, a program that records each of its runs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Mount, Output, PATIENCE, Pool, Program, Talk, is_stopped, send_signal, wait_until};

/// A process stopped by a signal; continued on drop, however the test ends.
#[derive(Debug)]
pub(crate) struct Stopped(u32);

impl Stopped {
    #[track_caller]
    pub(crate) fn new(pid: u32) -> Self {
        send_signal(pid, Signal::SIGSTOP);
        let stopped = Self(pid);
        if cfg!(target_os = "linux") {
            wait_until("it is stopped", PATIENCE, || is_stopped(pid));
        }
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        send_signal(self.0, Signal::SIGCONT);
    }
}

/// A tmux server that the harness cannot reach by its socket; killed on drop, also when a test fails.
#[derive(Debug)]
pub(super) struct OutOfReach(pub(super) u32);

impl Drop for OutOfReach {
    fn drop(&mut self) {
        if thread::panicking() {
            send_signal(self.0, Signal::SIGKILL);
        }
    }
}

/// Panes of the pool's server: id, process, tag; in order.
#[track_caller]
pub(super) fn panes(pool: &Pool) -> Vec<String> {
    let mut lines = pool.tmux_panes("#{pane_id} #{pane_pid} #{pane_dead} #{@pool_id}");
    lines.sort();
    lines
}

/// Sessions in every state, reduced to the fields that must never change while one runs.
#[track_caller]
pub(super) fn records(pool: &Pool) -> Vec<Value> {
    let keys = [
        "id",
        "name",
        "workspace",
        "dir",
        "command",
        "cwd",
        "labels",
        "lifecycle",
        "tmux",
        "total_requests",
        "active_requests",
        "created_at",
        "incarnations",
        "restarts",
    ];
    let sessions = pool.lines(&["ls", "--all"]);
    let kept = |session: &Value| {
        let mut kept: Vec<Value> = keys.iter().map(|key| session[*key].clone()).collect();
        kept.extend([session["generator"]["pid"].clone(), session["generator"]["start_time"].clone()]);
        Value::from(kept)
    };
    sessions.iter().map(kept).collect()
}

/// A session whose shell script notes each of its runs in the file `runs` and its input in the file `got`.
pub(crate) fn recorder(pool: &Pool) -> String {
    let (runs, got) = (pool.path("runs"), pool.path("got"));
    format!("echo run >>{}; exec cat >>{}", runs.display(), got.display())
}

/// Lines of one of the test's files; none where it does not exist.
pub(crate) fn lines_of(pool: &Pool, name: &str) -> Vec<String> {
    let text = fs::read_to_string(pool.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A `poold` that aborts at `point`.
pub(crate) fn crashing(pool: &Pool, point: &str) -> Command {
    let mut command = pool.daemon(Program::Poold);
    command.env("POOL_CRASH_AT", point);
    command
}

/// Replaces the running `poold` by one that aborts at `point`.
#[track_caller]
pub(crate) fn crash_at(pool: &Pool, point: &str) {
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(pool, point));
    pool.await_complete();
}

/// `poold` started through a shell prefix such as `ulimit -n 64; exec`.
pub(super) fn under(pool: &Pool, prefix: &str) -> Command {
    let mut command = pool.command("sh");
    command.arg("-c").arg(format!("{prefix} \"$0\"")).arg(Program::Poold.path());
    command
}

/// Key and id of every message ever queued.
#[track_caller]
pub(super) fn queued(pool: &Pool) -> Vec<(String, u64)> {
    let events = pool.lines(&["events", "--kind", "message_queued"]);
    let of = |event: &Value| {
        (event["key"].as_str().unwrap_or_default().to_owned(), event["id"].as_u64().unwrap_or_default())
    };
    events.iter().map(of).collect()
}

/// True if this test may mount, change owners and become another user; prints a skip otherwise.
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root() && cfg!(target_os = "linux");
    if !root {
        crate::harness::skipped("needs root on Linux");
    }
    root
}

/// True if a program is installed; prints a skip otherwise.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir: PathBuf| dir.join(program).is_file());
    if !found {
        crate::harness::skipped(&format!("needs {program}"));
    }
    found
}

/// A pool whose state is on a disk of this size; `None`, after a skip, where none may be mounted. The pool, which is
/// declared last, ends before its disk is unmounted.
pub(crate) fn on_a_disk(config: &str, size: &str) -> Option<(Mount, Pool)> {
    if !is_root() || !has("mount") {
        return None;
    }
    let pool = Pool::bare(config);
    Some((Mount::new(pool.state(), size)?, pool))
}

/// True if system calls may be traced and failed here; prints a skip otherwise.
pub(super) fn may_trace() -> bool {
    if !cfg!(target_os = "linux") || !has("strace") {
        return false;
    }
    let may = Output::of(Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]), b"").code == 0;
    if !may {
        crate::harness::skipped("strace may not trace here");
    }
    may
}

/// Makes every sync of a file of a running `poold` hang until dropped, at most for a minute: its engine hangs in
/// the next commit, and all other threads run. Only where [`may_trace`].
#[track_caller]
pub(super) fn hang_syncs(pool: &Pool, poold: u32) -> Talk {
    let mut tracer = pool.command("strace");
    tracer.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
    tracer.args(["-e", "inject=fsync,fdatasync:delay_enter=60000000", "-p", &poold.to_string()]);
    let tracer = Talk::start(&mut tracer);
    let traced = || {
        let tasks = fs::read_dir(format!("/proc/{poold}/task")).unwrap().flatten();
        let mut statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
        statuses.all(|status| status.lines().any(|l| l.starts_with("TracerPid:") && !l.ends_with("\t0")))
    };
    wait_until("it is traced", PATIENCE, traced);
    tracer
}
