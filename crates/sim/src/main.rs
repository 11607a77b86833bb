//! The simulator: runs the whole daemon in a simulated world, from a seed, again and again.
//!
//! `land` is the machine with everything that outlives a daemon; `world` has its parts (clocks, disk,
//! processes, connections, tmux, programs), `actors` those who act on the pool, `judge`, `settled` and `rested` the
//! promises as code. `run` conducts a run: `daemon_process` starts the real daemon, `climate` decides what
//! goes wrong, and `harm` does it. `plan` leaves out what a failure does not need.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to people")]

mod actors;
mod client;
mod climate;
mod coverage;
mod daemon_process;
mod harm;
mod judge;
mod land;
mod plan;
mod rested;
mod rng;
mod run;
mod settled;
mod trace;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use clap::Parser;

use crate::plan::Plan;
use crate::run::Outcome;

/// The violation of a seed that gave two different runs.
const DIFFERENT: &str = "two runs differ";

/// Wall-clock time after which a run counts as one that never ends. It is a thousand times the usual time in a slow
/// build, since other programs may occupy the processors.
const RUN_LIMIT: Duration = Duration::from_secs(600);

/// Maximum length of a promise's name, as in "Q6: it was typed twice".
const PROMISE_MAX: usize = 4;

/// Maximum number of failures that are shrunk.
const SHRUNK_MAX: usize = 3;

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
    /// Prints the end of a failed run as it was.
    #[arg(long)]
    no_shrink: bool,
    /// Leaves out all parts of a run but these.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Option<Vec<String>>,
}

/// Sums over all seeds.
#[derive(Default)]
struct Total {
    runs: u64,
    polls: u64,
    counts: BTreeMap<String, u64>,
    failures: Vec<Failure>,
}

/// A seed that broke a promise.
struct Failure {
    seed: u64,
    violations: Vec<String>,
    story: Vec<String>,
    /// The parts that occurred in its run; `None` if they are unknown.
    parts: Option<BTreeSet<String>>,
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
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !args.no_shrink && !args.trace && args.only.is_none() {
        total.failures.iter_mut().take(SHRUNK_MAX).for_each(|failure| shrink(&args, failure));
    }
    report(&args, &total)
}

/// Runs a seed, in a thread of its own, so that no thread-local state survives it. A run in which the time stops never
/// ends; its thread is left behind.
fn run_once(args: &Args, seed: u64, plan: Plan) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("sim").tempdir_in(scratch())?;
    let (sender, outcome) = mpsc::channel();
    let (path, trace) = (dir.path().to_owned(), args.trace);
    std::thread::spawn(move || {
        // Nobody may wait any more.
        sender.send(run::run(seed, plan, &path, trace)).ok();
    });
    match outcome.recv_timeout(RUN_LIMIT) {
        Ok(run) => run,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(anyhow::anyhow!("it does not come to rest")),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(anyhow::anyhow!("it panicked")),
    }
}

fn run_seed(args: &Args, seed: u64, total: &Mutex<Total>) {
    let plan = || match &args.only {
        Some(only) => Plan::only(only.iter().cloned().collect()),
        None => Plan::default(),
    };
    let Outcome { hash, polls, mut violations, counts, story, parts } = match run_once(args, seed, plan()) {
        Ok(outcome) => outcome,
        Err(error) => {
            let (violations, story, parts) = (vec![error.to_string()], Vec::new(), None);
            return lock(total).failures.push(Failure { seed, violations, story, parts });
        }
    };
    if args.twice {
        match run_once(args, seed, plan()) {
            Ok(again) if again.hash == hash => {}
            Ok(again) => violations.push(format!("{DIFFERENT}: {polls} and {} polls", again.polls)),
            Err(error) => violations.push(error.to_string()),
        }
    }
    let mut total = lock(total);
    total.runs += 1;
    total.polls += polls;
    for (what, count) in counts {
        *total.counts.entry(what).or_default() += count;
    }
    if !violations.is_empty() {
        total.failures.push(Failure { seed, violations, story, parts: Some(parts) });
    }
}

/// Leaves out of a failed run what its failure does not need.
fn shrink(args: &Args, failure: &mut Failure) {
    let Some(first) = failure.violations.first().map(|violation| kind_of(violation)) else { return };
    let Some(all) = failure.parts.clone().filter(|_| first != DIFFERENT) else { return };
    let again = |parts: &BTreeSet<String>| {
        let outcome = run_once(args, failure.seed, Plan::only(parts.clone())).ok()?;
        let is_same = outcome.violations.first().is_some_and(|violation| kind_of(violation) == first);
        is_same.then_some(outcome)
    };
    let parts = plan::shrink(all.clone(), |parts| Some(again(parts)?.parts));
    if let Some(outcome) = again(&parts) {
        println!("shrunk: {} of {} parts of seed {} are left", parts.len(), all.len(), failure.seed);
        (failure.story, failure.violations, failure.parts) = (outcome.story, outcome.violations, Some(parts));
    }
}

/// Returns what a violation has in common with others of its kind: the promise, and words without numbers.
fn kind_of(violation: &str) -> String {
    match violation.split_once(": ") {
        Some((promise, what)) if promise.len() <= PROMISE_MAX => {
            let words = what.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic));
            format!("{promise} {}", words.collect::<Vec<_>>().join(" "))
        }
        Some((what, _)) => what.to_owned(),
        None => violation.to_owned(),
    }
}

/// Returns the directory for the files of runs: in memory where there is one.
fn scratch() -> std::path::PathBuf {
    let memory = std::path::PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn report(args: &Args, total: &Total) -> ExitCode {
    if args.coverage {
        coverage::lines(&total.counts, total.runs).iter().for_each(|line| println!("{line}"));
    }
    for Failure { seed, violations, story, parts } in &total.failures {
        println!("seed {seed}:");
        if !args.trace {
            story.iter().for_each(|line| println!("  {line}"));
        }
        violations.iter().for_each(|violation| println!("  FAILED: {violation}"));
        let only = parts.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",");
        let only = if parts.is_some() { format!(" --only '{only}'") } else { String::new() };
        println!("  scripts/sim --seed {seed} --trace{only}");
    }
    println!("{} seeds, {} polls, {} failed", total.runs, total.polls, total.failures.len());
    if total.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
