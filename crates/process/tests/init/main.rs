//! Tests of the init, the log writer and the kill ladder on real processes in a real terminal. This program
//! runs itself again in other roles, such as the init. Arguments select the tests whose name contains one of
//! them.

#![cfg_attr(target_os = "linux", expect(clippy::unwrap_used, reason = "a test may stop at a surprise"))]

#[cfg(target_os = "linux")]
mod bounds;
#[cfg(target_os = "linux")]
mod cgroups;
#[cfg(target_os = "linux")]
mod ending;
#[cfg(target_os = "linux")]
mod logging;
#[cfg(target_os = "linux")]
mod pane;
#[cfg(target_os = "linux")]
mod proofs;
#[cfg(target_os = "linux")]
mod records;
#[cfg(target_os = "linux")]
mod running;
#[cfg(target_os = "linux")]
mod spared;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let argument = std::env::var_os("TEST_ARGUMENT").map(std::path::PathBuf::from).unwrap_or_default();
    match std::env::var("TEST_ROLE").as_deref() {
        Ok("init") => match process::init::exec(&argument) {
            process::init::InitExit::Code(code) => ExitCode::from(code),
            process::init::InitExit::Signal(signal) => {
                process::init::resignal(signal);
                ExitCode::FAILURE
            }
        },
        Ok("log") => {
            use process::log_writer::{WriterOptions, write_log};
            let options = WriterOptions::parse(argument, std::env::args_os().skip(1));
            write_log(&options).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Ok("runner") => run_on(6000, 20_000),
        Ok("bomb") => bomb(),
        Ok("serve") => spared::serve(&argument),
        Ok("reuse") => proofs::reuse(),
        Ok("threads") => proofs::go_on_without_main_thread(),
        Ok("tracer") => proofs::trace(&argument),
        Ok("killer") => proofs::killer(&argument),
        _ => run_tests(),
    }
}

/// Forks up to `generations` times; each process lives for `lifetime` microseconds, ignores TERM and HUP, and
/// is in a session of its own. Without the lifetime it could evade every scan of an idle machine.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "it ignores a signal and forks")]
fn run_on(generations: u32, lifetime: u32) -> ExitCode {
    use nix::libc;
    // SAFETY: there is one thread, and every call is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        for _ in 0..generations {
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::usleep(lifetime);
        }
        libc::_exit(0)
    }
}

/// Starts 200 of them, one with a very short lifetime: thousands of processes a second, for half a minute at
/// most. Unreaped processes keep their pids, of which a machine may have only 32,768.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "it ignores a signal and forks")]
fn bomb() -> ExitCode {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // Otherwise the end of the terminal, with the init, ends it.
    // SAFETY: the signal gets no handler.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.unwrap();
    for n in 0..200 {
        // SAFETY: there is one thread, and the child makes only async-signal-safe calls.
        if unsafe { nix::libc::fork() } == 0 {
            return if n == 0 { run_on(100_000, 100) } else { run_on(150, 100_000) };
        }
    }
    ExitCode::SUCCESS
}

#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "this is the test runner")]
fn run_tests() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let list = std::env::args().any(|word| word == "--list");
    let most = [running::TESTS, bounds::TESTS, records::TESTS, ending::TESTS, cgroups::TESTS];
    let tests = [&most[..], &[proofs::TESTS, spared::TESTS, logging::TESTS]].concat().concat();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests.into_iter().filter(|(name, _)| chosen(name)) {
        if list {
            println!("{name}: test");
            continue;
        }
        let is_ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        *(if is_ok { &mut passed } else { &mut failed }) += 1;
    }
    if list {
        return ExitCode::SUCCESS;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Reports why a test cannot run here.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn skipped(why: &str) {
    println!("skipped: {why}");
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn main() -> ExitCode {
    println!("skipped: these tests read /proc");
    ExitCode::SUCCESS
}

/// Defines the list of a file's tests.
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}
#[cfg(target_os = "linux")]
use tests;
