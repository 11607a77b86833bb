//! The order of commit and answer, and of the end of `poold`, as the system sees it.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::Send;
use protocol::{Hello, OpId, Request, Role};

use super::support::may_trace;
use crate::harness::{PATIENCE, Pool, Program, send_signal, wait_until};
use crate::queue::support::sending;

/// Messages whose answers are looked at.
const MESSAGES: usize = 12;

#[test]
fn d04_no_answer_leaves_before_the_sync_of_its_commit_is_over() {
    if !may_trace() {
        return;
    }
    let pool = Pool::bare("");
    pool.start(Program::Poold);
    pool.await_poold();
    pool.script("web", "exec sleep 1000");
    pool.kill9(Program::Poold);
    let trace = pool.path("trace");
    let mut command = pool.command("strace");
    // Whole buffers, so that a message is found in each call that has it.
    command.args(["-D", "-f", "-qq", "-s", "1000000", "-e"]);
    command.arg("trace=write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync");
    command.arg("-o").arg(&trace).arg(Program::Poold.path());
    pool.start_as(Program::Poold, command);
    pool.await_poold();
    let hello = Hello::new(Role::Client, "", "test");
    let mut connection = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap().0;
    connection.set_timeout(Some(PATIENCE));
    // The key is in the request, in the row of the message and in the answer.
    let keys: Vec<String> = (0..MESSAGES).map(|n| format!("needle-{n:03}")).collect();
    for key in &keys {
        let send = Send { key: Some(key.clone()), ..sending("observation", b"text") };
        connection.call(Some(OpId::Named(key.clone())), None, Request::Send(send)).unwrap().unwrap();
    }
    pool.kill9(Program::Poold);
    let calls = fs::read_to_string(&trace).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    let at = |from: usize, what: &str, is: &dyn Fn(&str) -> bool| {
        let found = calls[from..].iter().position(|call| is(call));
        from + found.unwrap_or_else(|| panic!("no {what} after call {from} of {}", calls.len()))
    };
    for key in &keys {
        let stored = at(0, "write of the row", &|call| call.contains("pwrite") && call.contains(key));
        let begun = at(stored, "sync", &|call| call.contains("sync("));
        let over = at(begun, "end of a sync", &|call| call.contains("sync") && call.ends_with("= 0"));
        let answered = at(0, "answer", &|call| !call.contains("pwrite") && call.contains(key));
        assert!(over < answered, "{key}: stored {stored}, synced {begun} to {over}, answered {answered}");
    }
}

#[test]
fn o02_a_poold_that_was_told_to_end_takes_no_new_client_and_ends_though_tmux_stands_still() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    pool.ok(&["kill", &id]);
    // Before it ends, it ends a tmux server without sessions: this one does not answer.
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
