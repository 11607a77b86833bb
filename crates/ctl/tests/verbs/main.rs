//! The verbs from the outside: this program starts itself as `poolctl` and speaks the protocol as
//! the daemon. It has its own main because it plays all the parts of a pool.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this program is a test")]

mod agent;
mod calls;
mod database;
mod fake;
mod hook;
mod life;
mod lock;
mod queue;
mod rules;
#[path = "../../src/testing.rs"]
mod samples;
mod streams;
mod supervisor;
mod tmux;
mod work;

use std::ffi::OsStr;
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;

use protocol::Role;

/// Set where this process is to be `poolctl`.
const ACT: &str = "CTL_TEST_ACT";

fn main() -> ExitCode {
    let program = PathBuf::from(std::env::args_os().next().unwrap());
    match program.file_name().and_then(OsStr::to_str) {
        _ if std::env::args_os().any(|arg| arg == "--check-config") => ExitCode::SUCCESS,
        Some("poold") => fake::poold(&program),
        Some("tmux-watch") => fake::component(&program, Role::Watcher),
        Some("reaper") => fake::component(&program, Role::Reaper),
        _ if std::env::var_os(ACT).is_some() => ctl::run(std::env::args_os()),
        _ => tests(),
    }
}

fn tests() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let all = [
        agent::TESTS,
        calls::TESTS,
        database::TESTS,
        hook::TESTS,
        life::TESTS,
        lock::TESTS,
        queue::TESTS,
        rules::TESTS,
        streams::TESTS,
        supervisor::TESTS,
        tmux::TESTS,
        work::TESTS,
    ]
    .concat();
    if std::env::args().any(|arg| arg == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in all.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let passed = panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
