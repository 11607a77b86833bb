//! Cost of one call of `poolctl`, from spawn to exit, with many sessions in the pool. Each round measures
//! all commands once.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::options::Options;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::{self, Times};
use crate::{interrupt, print, report};

/// Calls of each command before the first that counts.
const WARM_UP: usize = 10;

/// One measured command.
struct Subject {
    label: &'static str,
    command: Command,
    times: Times,
    /// Maximum ratio to `true`.
    goal: Option<f64>,
}

/// Runs the suite and prints its table.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), sessions, "")?;
    pool.while_up(|pool| print(&table(&measure(pool, options.runs, sessions)?, options.runs, sessions)))
}

fn measure(pool: &Pool, runs: usize, sessions: usize) -> Result<Vec<Subject>> {
    pool.create_all(sessions)?;
    let mut subjects = subjects(pool);
    check(&mut subjects, sessions)?;
    report(&format!("measuring {} commands {runs} times each, in turn", subjects.len()));
    for run in 0..WARM_UP + runs {
        interrupt::check()?;
        for at in order(run, subjects.len()) {
            let subject = &mut subjects[at];
            let began = Instant::now();
            let status = subject.command.status().context(subject.label)?;
            let took = began.elapsed();
            ensure!(status.success(), "{}: {status}", subject.label);
            if run >= WARM_UP {
                subject.times.push(took);
            }
        }
    }
    Ok(subjects)
}

fn subjects(pool: &Pool) -> Vec<Subject> {
    let subject = |label, mut command: Command, arguments: &[&str], goal| {
        command.args(arguments).stdout(Stdio::null());
        Subject { label, command, times: Times::default(), goal }
    };
    vec![
        subject("true", pool.command("true"), &[], None),
        subject("tmux list-sessions", pool.tmux(), &["list-sessions"], None),
        subject("poolctl status", pool.command("poolctl"), &["status"], Some(1.8)),
        subject("poolctl ls", pool.command("poolctl"), &["ls"], Some(2.5)),
        subject("poolctl ls --full", pool.command("poolctl"), &["--json", "ls", "--full"], None),
    ]
}

/// Checks that both lists show all sessions: an empty answer would be too fast.
fn check(subjects: &mut [Subject], sessions: usize) -> Result<()> {
    for subject in subjects.iter_mut().filter(|subject| subject.label.contains(" l")) {
        let output = subject.command.stdout(Stdio::piped()).output().context(subject.label)?;
        subject.command.stdout(Stdio::null());
        let shown = output.stdout.split(|&byte| byte == b'\n').filter(|line| has_session(line)).count();
        ensure!(shown == sessions, "{} shows {shown} of {sessions} sessions", subject.label);
    }
    Ok(())
}

fn has_session(line: &[u8]) -> bool {
    line.windows(6).any(|word| word == b"bench-")
}

fn table(subjects: &[Subject], runs: usize, sessions: usize) -> String {
    let p50 = |at: usize| subjects.get(at).map_or(f64::NAN, |subject| subject.times.quantile_us(0.5));
    let (floor, peer) = (p50(0), p50(1));
    let mut text = format!(
        "spawn to exit with {sessions} sessions, {runs} runs each in turn; load {}\n\n{:<20}{:>10}{:>10}{:>9}{:>9}  goal\n",
        stats::load(),
        "command",
        "p50 us",
        "p99 us",
        "x true",
        "x tmux",
    );
    for subject in subjects {
        let (p50, p99) = (subject.times.quantile_us(0.5), subject.times.quantile_us(0.99));
        let (of_floor, of_peer) = (p50 / floor, p50 / peer);
        let goal = subject.goal.map(|goal| {
            let met = if of_floor <= goal && of_peer < 1.0 { "met" } else { "missed" };
            format!("  {met}: at most {goal} x true, and under tmux")
        });
        text.push_str(&format!(
            "{:<20}{p50:>10.0}{p99:>10.0}{of_floor:>9.2}{of_peer:>9.2}{}\n",
            subject.label,
            goal.unwrap_or_default(),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn subject(label: &'static str, us: u64, goal: Option<f64>) -> Subject {
        let mut times = Times::default();
        times.push(Duration::from_micros(us));
        Subject { label, command: Command::new("true"), times, goal }
    }

    #[test]
    fn the_table_compares_with_floor_and_peer() {
        let subjects = [
            subject("true", 600, None),
            subject("tmux", 1800, None),
            subject("quick", 900, Some(1.8)),
            subject("slow", 1801, Some(9.0)),
        ];
        let text = table(&subjects, 1, 1);
        assert!(text.contains("1.50     0.50  met: at most 1.8 x true"), "{text}");
        assert!(text.contains("3.00     1.00  missed"), "{text}");
    }
}
