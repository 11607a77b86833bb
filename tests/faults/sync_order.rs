//! The order of commit and answer, and of the end of `poold`, as the system sees it.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::Send;
use protocol::{Hello, OpId, Request, Role};

use super::support::{hang_syncs, may_trace};
use crate::harness::{PATIENCE, Pool, Program, Talk, send_signal, wait_until};
use crate::queue::support::sending;

/// Messages whose answers are looked at.
const MESSAGES: usize = 12;

/// Starts a `poold` whose system calls of these names are recorded, with those of all that it starts.
#[track_caller]
fn start_traced(pool: &Pool, names: &str) {
    let mut command = pool.command("strace");
    // Whole buffers, so that a text is found in each call that has it.
    command.args(["-D", "-f", "-qq", "-s", "1000000", "-e"]).arg(format!("trace={names}"));
    command.arg("-o").arg(pool.path("trace")).arg(Program::Poold.path());
    pool.start_as(Program::Poold, command);
    pool.await_poold();
}

/// System calls in the order of their beginnings.
struct Calls(Vec<String>);

impl Calls {
    /// Ends the traced `poold`; returns what it called.
    #[track_caller]
    fn of(pool: &Pool) -> Self {
        pool.kill9(Program::Poold);
        let calls = fs::read_to_string(pool.path("trace")).unwrap();
        Self(calls.lines().map(str::to_owned).collect())
    }

    /// Index of the first such call from call `from` on.
    #[track_caller]
    fn at(&self, from: usize, what: &str, is: impl Fn(&str) -> bool) -> usize {
        let found = self.0[from..].iter().position(|call| is(call));
        from + found.unwrap_or_else(|| panic!("no {what} after call {from} of {}", self.0.len()))
    }

    /// Index at which the sync of the commit that first has this text is over.
    #[track_caller]
    fn synced(&self, text: &str) -> usize {
        let stored = self.at(0, "write of the row", |call| call.contains("pwrite") && call.contains(text));
        let begun = self.at(stored, "sync", |call| call.contains("sync("));
        self.at(begun, "end of a sync", |call| call.contains("sync") && call.ends_with("= 0"))
    }
}

#[test]
fn d04_no_answer_leaves_before_the_sync_of_its_commit_is_over() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    pool.start_poold();
    pool.script("web", "exec sleep 1000");
    pool.kill9(Program::Poold);
    start_traced(&pool, "write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync");
    let hello = Hello::new(Role::Client, "", "test");
    let mut connection = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap().0;
    connection.set_timeout(Some(PATIENCE));
    // The key is in the request, in the row of the message and in the answer.
    let keys: Vec<String> = (0..MESSAGES).map(|n| format!("needle-{n:03}")).collect();
    for key in &keys {
        let send = Send { key: Some(key.clone()), ..sending("observation", b"text") };
        connection.call(Some(OpId::Named(key.clone())), None, Request::Send(send)).unwrap().unwrap();
    }
    let calls = Calls::of(&pool);
    for key in &keys {
        let over = calls.synced(key);
        let answered = calls.at(0, "answer", |call| !call.contains("pwrite") && call.contains(key));
        assert!(over < answered, "{key}: synced at {over}, answered at {answered}");
    }
}

#[test]
fn w16_a_new_session_is_synced_before_its_job_is_written_and_before_tmux_is_told() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    start_traced(&pool, "open,openat,execve,pwrite64,pwritev,fsync,fdatasync");
    pool.script("needle", "exec sleep 1000");
    let calls = Calls::of(&pool);
    let over = calls.synced("needle");
    let writes_job = |call: &str| call.contains(".job\"") && call.contains("O_CREAT");
    let tells_tmux = |call: &str| call.contains("execve") && call.contains("needle");
    let job = calls.at(0, "job", writes_job);
    let tmux = calls.at(0, "call of tmux", tells_tmux);
    assert!(over < job && over < tmux, "synced at {over}, job at {job}, tmux at {tmux}");
}

#[test]
fn o02_a_poold_that_was_told_to_end_takes_no_new_client_and_ends_though_tmux_stands_still() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["kill", &id]);
    // Before `poold` ends, it ends a tmux server without sessions. This server does not answer.
    let tmux = pool.tmux_pid().unwrap();
    send_signal(tmux, Signal::SIGSTOP);
    let poold = pool.pid(Program::Poold).unwrap();
    let told = Instant::now();
    send_signal(poold, Signal::SIGTERM);
    wait_until("its socket is gone", PATIENCE, || !pool.socket().exists());
    assert_eq!(pool.ended(Program::Poold), None, "new clients are turned away first");
    pool.ctl(&["--timeout", "100ms", "ls"]).expect(7);
    assert_eq!(pool.await_end(Program::Poold), 0);
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    send_signal(tmux, Signal::SIGCONT);
}

#[test]
fn o02_a_poold_that_was_told_to_end_ends_though_its_disk_stands_still() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    let poold = pool.start_poold();
    pool.script("web", "exec sleep 1000");
    let tracer = hang_syncs(&pool, poold);
    let mut send = pool.poolctl();
    let mut send = Talk::start(send.args(["--timeout", "60s", "send", "web", "--kind", "a", "text"]));
    wait_until("the engine hangs", PATIENCE, || pool.ctl(&["--timeout", "1s", "ls"]).code != 0);
    let told = Instant::now();
    send_signal(poold, Signal::SIGTERM);
    // The thread that the tracer holds cannot end, so that the process as a whole does not.
    let status = || fs::read_to_string(format!("/proc/{poold}/status")).unwrap_or_default();
    wait_until("its main thread has ended", PATIENCE, || status().contains("State:\tZ"));
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
    drop(tracer);
    pool.await_end(Program::Poold);
    pool.start(Program::Poold);
    // Nobody was told that it is stored; the client tries again until it is.
    assert_eq!(send.await_end(), Some(0), "{}", send.errors());
    assert_eq!(pool.lines(&["queue", "ls", "web"]).len(), 1);
}
