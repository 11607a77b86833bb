//! Blocking work of a user who may have no more processes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Uid, setuid};
use world::{World, tasks};

/// Marks the process of the test whose user and limit are changed.
const ROLE: &str = "TEST_WITHOUT_THREADS";
/// A user who is bound by the limit, unlike root.
const NOBODY: u32 = 65534;

#[test]
fn blocking_work_is_done_where_no_further_thread_can_be_started() {
    if std::env::var_os(ROLE).is_some() {
        return without_further_threads();
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "--nocapture", "blocking_work_is_done_where_no_further_thread_can_be_started"]);
    let output = alone.env(ROLE, "1").stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn without_further_threads() {
    let runtime = tasks::runtime().unwrap();
    if Uid::effective().is_root() {
        // If there is no such user, the test is skipped below.
        let _ = setuid(Uid::from_raw(NOBODY));
    }
    setrlimit(Resource::RLIMIT_NPROC, 1, 1).unwrap();
    if thread::Builder::new().spawn(|| ()).is_ok() {
        return drop(std::io::stderr().write_all(b"skipped: the limit of processes does not hold here\n"));
    }
    let world = World::system();
    let (first, second) = runtime.block_on(async { tokio::join!(world.block(|| 1), world.block(|| 2)) });
    assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
}
