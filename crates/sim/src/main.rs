//! The simulator: runs the whole daemon in a simulated world, from a seed, again and again.
//!
//! `land` is the machine with everything that outlives a daemon; `world` has its parts (clocks, disk,
//! processes, connections, tmux, programs), `actors` those who act on the pool, `judge` and `settled` the
//! promises as code. `run` conducts a run: `daemon_process` starts the real daemon, `climate` decides what
//! goes wrong.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to people")]

mod actors;
mod client;
mod climate;
mod daemon_process;
mod judge;
mod land;
mod rng;
mod run;
mod settled;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;

/// Runs the pool in a simulated world.
#[derive(Parser)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Number of threads.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Tells everything that happens.
    #[arg(long)]
    trace: bool,
    /// Runs each seed twice, and compares.
    #[arg(long)]
    twice: bool,
    /// Prints how often each thing happened.
    #[arg(long)]
    coverage: bool,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
}

/// Sums over all seeds.
#[derive(Default)]
struct Total {
    runs: u64,
    polls: u64,
    counts: BTreeMap<String, u64>,
    failures: Vec<(u64, Vec<String>, Vec<String>)>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.trace {
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned());
        drop(tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init());
    }
    let (next, total) = (AtomicU64::new(args.seed), Mutex::new(Total::default()));
    let end = args.seed.saturating_add(args.seeds);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = !args.keep_going && !lock(&total).failures.is_empty();
                    if seed >= end || failed {
                        return;
                    }
                    run_seed(&args, seed, &total);
                }
            });
        }
    });
    report(&args, &lock(&total))
}

fn run_seed(args: &Args, seed: u64, total: &Mutex<Total>) {
    // Each run has a thread of its own, so that nothing of a thread outlives its run.
    let once = || {
        std::thread::scope(|scope| {
            let run = || {
                let dir = tempfile::Builder::new().prefix("sim").tempdir_in(scratch())?;
                run::run(seed, dir.path(), args.trace)
            };
            scope.spawn(run).join().unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked")))
        })
    };
    let outcome = match once() {
        Ok(outcome) => outcome,
        Err(error) => return lock(total).failures.push((seed, vec![error.to_string()], Vec::new())),
    };
    let mut violations = outcome.violations;
    if args.twice {
        match once() {
            Ok(again) if again.hash == outcome.hash => {}
            Ok(again) => {
                violations.push(format!("two runs differ: {} and {} polls", outcome.polls, again.polls));
            }
            Err(error) => violations.push(error.to_string()),
        }
    }
    let mut total = lock(total);
    total.runs += 1;
    total.polls += outcome.polls;
    for (what, count) in outcome.counts {
        *total.counts.entry(what).or_default() += count;
    }
    if !violations.is_empty() {
        total.failures.push((seed, violations, outcome.story));
    }
}

/// Returns the directory for the files of runs: in memory where there is one.
fn scratch() -> std::path::PathBuf {
    let memory = std::path::PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn report(args: &Args, total: &Total) -> ExitCode {
    if args.coverage {
        for (what, count) in &total.counts {
            println!("{count:>9}  {what}");
        }
    }
    for (seed, violations, story) in &total.failures {
        println!("seed {seed}:");
        if !args.trace {
            story.iter().for_each(|line| println!("  {line}"));
        }
        violations.iter().for_each(|violation| println!("  FAILED: {violation}"));
    }
    println!("{} seeds, {} polls, {} failed", total.runs, total.polls, total.failures.len());
    if total.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
