//! The init, the log writer and the kill ladder against real processes in a real terminal. This
//! program runs itself again to be the init; without arguments it runs every test, with arguments
//! those whose name holds one of them.

#![cfg_attr(target_os = "linux", expect(clippy::unwrap_used, reason = "a test may stop at a surprise"))]

#[cfg(target_os = "linux")]
mod bounds;
#[cfg(target_os = "linux")]
mod ending;
#[cfg(target_os = "linux")]
mod grouped;
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
            process::init::End::Code(code) => ExitCode::from(code),
            process::init::End::Signal(signal) => {
                process::init::resignal(signal);
                ExitCode::FAILURE
            }
        },
        Ok("log") => {
            use process::log_writer::{Options, write_log};
            let options = Options::parse(argument, std::env::args_os().skip(1));
            write_log(&options).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Ok("runner") => run_on(6000, 20_000),
        Ok("bomb") => bomb(),
        Ok("serve") => spared::serve(&argument),
        Ok("reuse") => proofs::reuse(),
        Ok("tracer") => proofs::trace(&argument),
        Ok("killer") => proofs::killer(&argument),
        _ => run_tests(),
    }
}

/// Lives on as ever new processes, as many as told at most, each of which ends after so many microseconds;
/// deaf to TERM, in no session of ours. One that forks without any pause can outrun the looks of an idle machine.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "it forks")]
fn run_on(lives: u32, each: u32) -> ExitCode {
    use nix::libc;
    // SAFETY: there is one thread, and every call is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        for _ in 0..lives {
            if libc::fork() != 0 {
                libc::_exit(0);
            }
            libc::setsid();
            libc::usleep(each);
        }
        libc::_exit(0)
    }
}

/// Two hundred of them, one of which is never where it was seen: thousands of processes a second, half a
/// minute long at most. What is not reaped keeps its number, of which a machine has 32,768.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "it forks")]
fn bomb() -> ExitCode {
    for n in 0..200 {
        // SAFETY: there is one thread, and the child runs only what is async-signal-safe.
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
    let most = [running::TESTS, bounds::TESTS, records::TESTS, ending::TESTS, grouped::TESTS];
    let tests = [&most[..], &[proofs::TESTS, spared::TESTS, logging::TESTS]].concat().concat();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| chosen(name)) {
        if list {
            println!("{name}: test");
            continue;
        }
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u8::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// A test that cannot run here says why.
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

/// A list of tests by their names.
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}
#[cfg(target_os = "linux")]
use tests;
