//! Cost of running a command under a session's lock, beside the command alone and under a file lock.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::Times;

/// Number of runs of each, after one that does not count.
const RUNS: usize = 100;

/// A measured command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `true`.
    Alone,
    /// `flock FILE true`, if the program exists.
    File,
    /// `poolctl status`: the same start, with one request.
    Status,
    /// `poolctl lock SESSION -- true`.
    Session,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Alone, Self::File, Self::Status, Self::Session];
}

/// Duration of each run, in the order of [`Kind::ALL`]; empty for a missing program.
pub(super) struct Locks(pub(super) [Times; Kind::ALL.len()]);

/// Runs each in turn, with this session.
pub(super) fn measure(pool: &Pool, session: &str) -> Result<Locks> {
    let has_flock = Command::new("flock").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut times: [Times; Kind::ALL.len()] = std::array::from_fn(|_| Times::default());
    for run in 0..=RUNS {
        interrupt::check()?;
        for at in order(run, times.len()) {
            let kind = Kind::ALL[at];
            if kind == Kind::File && !has_flock {
                continue;
            }
            let mut command = command(pool, kind, session);
            let began = Instant::now();
            let status = command.status().with_context(|| format!("{command:?}"))?;
            let took = began.elapsed();
            ensure!(status.success(), "{command:?}: {status}");
            if run > 0 {
                times[at].push(took);
            }
        }
    }
    Ok(Locks(times))
}

fn command(pool: &Pool, kind: Kind, session: &str) -> Command {
    let mut command = match kind {
        Kind::Alone => pool.command("true"),
        Kind::File => pool.command("flock"),
        Kind::Status | Kind::Session => pool.command("poolctl"),
    };
    match kind {
        Kind::Alone => {}
        Kind::File => drop(command.arg(pool.dir().join("a.lock")).arg("true")),
        Kind::Status => drop(command.arg("status")),
        Kind::Session => drop(command.args(["lock", session, "--", "true"])),
    }
    command.stdout(Stdio::null());
    command
}
