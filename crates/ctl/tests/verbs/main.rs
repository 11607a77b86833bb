//! The verbs from the outside: this program starts itself as `poolctl`, and speaks the protocol as
//! the daemon. It has its own main because it acts as every program of a pool.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this program is a test")]

mod agent;
mod calls;
mod completions;
mod database;
mod fake;
mod hook;
mod lifecycle;
mod lock;
mod manual;
mod queue;
mod rules;
#[path = "../../src/testing.rs"]
mod samples;
mod streams;
mod supervisor;
mod terminal;
mod tmux;
mod work;
mod worker;

use std::ffi::OsStr;
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use protocol::Role;

/// The variable that makes this process act as `poolctl`.
const ACT: &str = "CTL_TEST_ACT";

fn main() -> ExitCode {
    let program = PathBuf::from(std::env::args_os().next().unwrap());
    match program.file_name().and_then(OsStr::to_str) {
        _ if std::env::args_os().any(|arg| arg == "--check-config") => ExitCode::SUCCESS,
        Some("poold") => fake::poold(&program),
        Some("tmux-watch") => fake::component(&program, Role::Watcher),
        Some("reaper") => fake::component(&program, Role::Reaper),
        _ if std::env::var_os(ACT).is_some() => ctl::run(std::env::args_os()),
        _ => run_tests(),
    }
}

fn run_tests() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let all = [
        // The longest first, so that none of them is what the others are waited for.
        supervisor::TESTS,
        agent::TESTS,
        calls::TESTS,
        completions::TESTS,
        database::TESTS,
        hook::TESTS,
        lifecycle::TESTS,
        lock::TESTS,
        manual::TESTS,
        queue::TESTS,
        rules::TESTS,
        streams::TESTS,
        terminal::TESTS,
        tmux::TESTS,
        work::TESTS,
        worker::TESTS,
    ]
    .concat();
    if std::env::args().any(|arg| arg == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<_> = all.into_iter().filter(|(name, _)| name.contains(&filter)).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // The tests run in parallel: most of the time most of them wait.
    thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = panic::catch_unwind(test).is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    close(chosen.len(), &failed.into_inner().unwrap())
}

/// The number of threads, as in the standard test runner.
fn threads() -> usize {
    let set = std::env::var("RUST_TEST_THREADS").ok().and_then(|set| set.parse().ok());
    set.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Prints the result as the standard test runner does.
fn close(all: usize, failed: &[&str]) -> ExitCode {
    if !failed.is_empty() {
        println!("\nfailures:");
        failed.iter().for_each(|name| println!("    {name}"));
    }
    let (word, passed) = (if failed.is_empty() { "ok" } else { "FAILED" }, all - failed.len());
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; 0 filtered out",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Defines the list of a file's tests. Each is listed by the name of its function.
macro_rules! tests {
    ($($(#[$cfg:meta])* $name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$($(#[$cfg])* (stringify!($name), $name)),*];
    };
}
use tests;
